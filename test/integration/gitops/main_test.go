// Package gitops_test tests installations that no command makes: rendered manifests and invitations
// are applied to real API servers as GitOps tools apply them, and agents run with the permissions
// that the manifests give them.
package gitops_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/daemon"
	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// gitOps is the field manager with which the tests apply manifests.
const gitOps = "kustomize-controller"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// decode returns the objects of YAML documents.
func decode(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		if errors.Is(err, io.EOF) {
			return out
		}
		must(t, err)
		if len(obj.Object) > 0 {
			out = append(out, obj)
		}
	}
}

// rendered returns what `seamark chart render` prints for these values.
func rendered(t *testing.T, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	text, err := chart.RenderAll(values, chart.RenderOptions{})
	must(t, err)
	return decode(t, []byte(text))
}

// asSecret returns what `seamark broker invite -o yaml` prints.
func asSecret(t *testing.T, m objects.Membership) []*unstructured.Unstructured {
	t.Helper()
	text, err := brokeradmin.EncodeSecret(m)
	must(t, err)
	return decode(t, text)
}

// apply applies objects by server-side apply, in their order and, unless an option says so, without
// force. It retries until the API server serves the kinds that are among them.
func apply(t *testing.T, c client.Client, objs []*unstructured.Unstructured, more ...client.ApplyOption) {
	t.Helper()
	for _, obj := range objs {
		harness.Eventually(t, "apply "+obj.GetKind()+" "+obj.GetName(), func() error {
			return c.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(obj.DeepCopy()),
				append(more, client.FieldOwner(gitOps))...)
		})
	}
}

// broker is a broker that was applied, and what its admin does.
type broker struct {
	cp    *controlplane.ControlPlane
	admin client.Client
	// manifests are what was applied.
	manifests []*unstructured.Unstructured
}

func newBroker(t *testing.T, cp *controlplane.ControlPlane) *broker {
	t.Helper()
	admin, err := brokeradmin.NewClient(cp.Config())
	must(t, err)
	text, err := brokeradmin.Render(brokeradmin.DeployOptions{})
	must(t, err)
	b := &broker{cp: cp, admin: admin, manifests: decode(t, text)}
	apply(t, admin, b.manifests)
	return b
}

// invite invites a cluster, or gives it a new credential.
func (b *broker) invite(t *testing.T, id string, change ...func(*brokeradmin.InviteOptions)) objects.Membership {
	t.Helper()
	o := brokeradmin.InviteOptions{Server: b.cp.Config().Host, CAData: b.cp.Config().CAData}
	for _, c := range change {
		c(&o)
	}
	invited, err := brokeradmin.Invite(context.Background(), b.admin, id, o)
	must(t, err)
	return invited.Membership
}

func renew(o *brokeradmin.InviteOptions)  { o.Renew = true }
func revoke(o *brokeradmin.InviteOptions) { o.Renew, o.Revoke = true, true }

// renewLater gives a member a credential that was issued in a later second than the given token.
func (b *broker) renewLater(t *testing.T, id, token string, change ...func(*brokeradmin.InviteOptions)) objects.Membership {
	t.Helper()
	var m objects.Membership
	before, _ := objects.TokenTimes(token)
	harness.Eventually(t, "a later token", func() error {
		m = b.invite(t, id, append([]func(*brokeradmin.InviteOptions){renew}, change...)...)
		if issued, _ := objects.TokenTimes(m.Token); !issued.After(before) {
			return fmt.Errorf("it was issued at %s", issued)
		}
		return nil
	})
	return m
}

// logLines are the lines of an agent's log.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) add(_, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, args)
}

func (l *logLines) await(t *testing.T, parts ...string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("a line of the log with %q", parts), func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, line := range l.lines {
			if containsAll(line, parts...) {
				return nil
			}
		}
		return fmt.Errorf("it has %s", strings.Join(l.lines, "\n"))
	})
}

func containsAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// runAgent runs the agent of a cluster as the chart does, with the permissions of its
// ServiceAccount and the data plane of its Deployment, until stop is called or the test ends.
func runAgent(t *testing.T, cp *controlplane.ControlPlane) (log *logLines, stop func()) {
	t.Helper()
	admin, err := brokeradmin.NewClient(cp.Config())
	must(t, err)
	request := &authenticationv1.TokenRequest{}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: chart.Namespace, Name: "seamark-agent"}}
	must(t, admin.SubResource("token").Create(context.Background(), owner, request))
	config := rest.AnonymousClientConfig(cp.Config())
	config.BearerToken = request.Status.Token
	agentDeployment := &appsv1.Deployment{}
	must(t, admin.Get(context.Background(), types.NamespacedName{Namespace: chart.Namespace, Name: "seamark-agent"}, agentDeployment))
	plane := v1alpha1.DataPlane("")
	for _, arg := range agentDeployment.Spec.Template.Spec.Containers[0].Args {
		if value, found := strings.CutPrefix(arg, "--dataplane="); found {
			plane = v1alpha1.DataPlane(value)
		}
	}
	log = &logLines{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Run(ctx, agent.Options{
			LeaderElection: true, ConfigureClusterDNS: true, DataPlane: plane, RenewEvery: time.Second, LeaseDuration: 5 * time.Second,
			Options: daemon.Options{Local: config, Log: funcr.New(log.add, funcr.Options{}), MetricsAddress: "0", ProbeAddress: "0"},
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the agent of %s: %v", cp.Name(), err)
		}
	})
	t.Cleanup(stop)
	t.Cleanup(func() {
		if t.Failed() {
			log.mu.Lock()
			defer log.mu.Unlock()
			t.Logf("the log of the agent of %s:\n%s", cp.Name(), strings.Join(log.lines[max(0, len(log.lines)-40):], "\n"))
		}
	})
	return log, stop
}

// stored returns what the agent of a cluster has stored.
func stored(c client.Client) (objects.Membership, error) {
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.MembershipSecret}
	if err := c.Get(context.Background(), key, secret); err != nil {
		return objects.Membership{}, err
	}
	return objects.MembershipFrom(secret)
}

// awaitStored waits until the agent has stored a membership with this token.
func awaitStored(t *testing.T, c client.Client, want objects.Membership) {
	t.Helper()
	harness.Eventually(t, "the agent takes up the invitation", func() error {
		m, err := stored(c)
		if err == nil && (m.Token != want.Token || m.Server != want.Server) {
			err = fmt.Errorf("it has stored a token of %s and server %s", issuedAt(m), m.Server)
		}
		return err
	})
}

func issuedAt(m objects.Membership) time.Time {
	at, _ := objects.TokenTimes(m.Token)
	return at
}

// memberOf returns helpers for a cluster whose agent the test runs itself.
func memberOf(t *testing.T, cp *controlplane.ControlPlane, id string) *fleet.Member {
	t.Helper()
	m, err := fleet.Joined(cp, id, fleet.Options{})
	must(t, err)
	return m
}

// absent reports whether an object does not exist.
func absent(c client.Client, obj client.Object) bool {
	return apierrors.IsNotFound(c.Get(context.Background(), client.ObjectKeyFromObject(obj), obj))
}
