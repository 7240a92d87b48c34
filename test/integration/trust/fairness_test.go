package trust

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/harness"
)

const (
	memberLevel = "seamark-members." + namespace
	leaseLevel  = "seamark-leases." + namespace

	bulkSlices    = 400 // about 6 MB in all
	bulkEndpoints = 100
)

// narrowServer is a broker on an API server with few seats: 60, of which members have 10 and leases
// 6. A request waits at most 5 s for a seat, and holds it for at most 20 s.
type narrowServer struct {
	cp          *controlplane.ControlPlane
	admin       client.Client
	memberships map[string]objects.Membership
}

func newNarrowServer(t *testing.T) *narrowServer {
	t.Helper()
	cp := harness.Fresh(t, 1, func(o *controlplane.Options) {
		o.APIServerArgs = append(o.APIServerArgs,
			"--max-requests-inflight=40", "--max-mutating-requests-inflight=20", "--request-timeout=20s")
	})[0]
	admin, err := brokeradmin.NewClient(cp.DirectConfig())
	must(t, err)
	s := &narrowServer{cp: cp, admin: admin, memberships: map[string]objects.Membership{}}
	s.deploy(t)
	for _, id := range []string{"noisy", "quiet"} {
		invited, err := brokeradmin.Invite(t.Context(), admin, id,
			brokeradmin.InviteOptions{Namespace: namespace, Server: cp.DirectConfig().Host, CAData: cp.DirectConfig().CAData})
		must(t, err)
		s.memberships[id] = invited.Membership
	}
	must(t, harness.Parallel(8, bulkSlices, func(i int) error {
		service := types.NamespacedName{Namespace: "bulk", Name: fmt.Sprintf("s%03d", i)}
		return admin.Create(t.Context(), largeSlice("noisy", service, bulkEndpoints))
	}))
	return s
}

func (s *narrowServer) deploy(t *testing.T) {
	t.Helper()
	_, err := brokeradmin.Deploy(t.Context(), s.admin, brokeradmin.DeployOptions{Namespace: namespace})
	must(t, err)
}

// largeSlice returns a slice as agents publish it, with many endpoints.
func largeSlice(id string, service types.NamespacedName, endpoints int) *discoveryv1.EndpointSlice {
	s := slice(id, service)
	s.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080)), Protocol: ptr.To(corev1.ProtocolTCP)}}
	s.Endpoints = nil
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			NodeName:   ptr.To(fmt.Sprintf("node-%04d", i)), Zone: ptr.To("zone-a"),
		})
	}
	return s
}

// account is a user of an API server. It counts how often it was served, and how often it was
// rejected with status 429. It does not retry what was rejected, as client-go does.
type account struct {
	t                testing.TB
	host             string
	client           *http.Client
	served, rejected atomic.Int64
}

func newAccount(t *testing.T, config *rest.Config) *account {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	must(t, err)
	return &account{t: t, host: config.Host, client: c}
}

// workload returns an account of the broker's cluster itself.
func (s *narrowServer) workload(t *testing.T) *account {
	t.Helper()
	config := s.cp.DirectConfig()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:default:controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"},
	}
	return newAccount(t, config)
}

// do sends a request and fails the test on a status that is neither want nor 429.
func (a *account) do(method, path, contentType string, body []byte, want int) {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.host+path, bytes.NewReader(body))
	must(a.t, err)
	request.Header.Set("Content-Type", contentType)
	response, err := a.client.Do(request)
	must(a.t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	must(a.t, err)
	switch response.StatusCode {
	case want:
		a.served.Add(1)
	case http.StatusTooManyRequests:
		a.rejected.Add(1)
	default:
		a.t.Fatalf("%s %s: %s %s", method, path, response.Status, answer)
	}
}

const brokerLeases = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"

// renew renews the lease of the quiet member.
func (a *account) renew() {
	a.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	a.do(http.MethodPatch, brokerLeases+"/quiet", string(types.MergePatchType), []byte(patch), http.StatusOK)
}

// publish creates a record of the quiet member.
func (a *account) publish(name string) {
	a.t.Helper()
	r := record("quiet", types.NamespacedName{Namespace: "shop", Name: name})
	r.APIVersion, r.Kind = v1alpha1.GroupVersion.String(), "ExportRecord"
	body, err := json.Marshal(r)
	must(a.t, err)
	a.do(http.MethodPost, "/apis/"+r.APIVersion+"/namespaces/"+namespace+"/exportrecords", "application/json", body, http.StatusCreated)
}

// listConfigMaps is a request of a workload. Its account may not list ConfigMaps, but the answer
// needs a seat too.
func (a *account) listConfigMaps() {
	a.t.Helper()
	a.do(http.MethodGet, "/api/v1/namespaces/default/configmaps", "", nil, http.StatusForbidden)
}

// levelGauge returns the value of a metric of a priority level, over all its flow schemas.
func (s *narrowServer) levelGauge(t *testing.T, metric, level string) float64 {
	t.Helper()
	sum := 0.0
	for _, sample := range harness.Metric(t, s.cp, metric) {
		if sample.Labels["priority_level"] == level {
			sum += sample.Value
		}
	}
	return sum
}

// awaitLevels waits until the API server has served members at both levels.
func (s *narrowServer) awaitLevels(t *testing.T, quiet *account) {
	t.Helper()
	harness.Eventually(t, "the API server uses the priority levels of the broker", func() error {
		quiet.renew()
		quiet.do(http.MethodGet, brokerLeases, "", nil, http.StatusOK)
		for _, level := range []string{memberLevel, leaseLevel} {
			if s.levelGauge(t, "apiserver_flowcontrol_dispatched_requests_total", level) == 0 {
				return errors.New(level + " has served no request")
			}
		}
		return nil
	})
}

// noise is a member's requests that are sent again and again until the test ends.
type noise struct {
	pending, rejected, served atomic.Int64
	// stop ends it and waits until it has ended.
	stop func()
}

// makeNoise sends lists of slices from many goroutines. Each sends the next one when the last
// was consumed. After a rejection it waits for pause, or the rejections would take all the CPU.
func (s *narrowServer) makeNoise(
	t *testing.T, senders int, query string, transport *http.Transport, consume func(context.Context, io.Reader) error,
) *noise {
	t.Helper()
	const pause = time.Second
	n := &noise{}
	m := s.memberships["noisy"]
	config := m.Config()
	tlsConfig, err := rest.TLSConfigFor(config)
	must(t, err)
	transport.TLSClientConfig = tlsConfig
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	n.stop = func() { cancel(); sending.Wait(); transport.CloseIdleConnections() }
	t.Cleanup(n.stop)
	list := config.Host + "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices" + query
	send := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, list, http.NoBody)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+m.Token)
		request.Header.Set("Accept-Encoding", "identity")
		n.pending.Add(1)
		defer n.pending.Add(-1)
		response, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			n.rejected.Add(1)
			return errors.New(response.Status)
		}
		n.served.Add(1)
		return consume(ctx, response.Body)
	}
	for range senders {
		sending.Go(func() {
			for ctx.Err() == nil {
				if send() == nil {
					continue
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	return n
}

// A member lists slices, over and over, with more requests at a time than may wait. Its
// requests are rejected; not one of another member's is. Without the distinguisher ByUser of the
// FlowSchemas, a fifth of the other member's requests was rejected too. An API server's own
// FlowSchema for ServiceAccounts has that distinguisher as well.
func TestNoisyMemberIsRejectedAlone(t *testing.T) {
	s := newNarrowServer(t)
	quiet := newAccount(t, s.memberships["quiet"].Config())
	s.awaitLevels(t, quiet)
	const senders, writes = 400, 20
	n := s.makeNoise(t, senders, "?limit=50", &http.Transport{MaxIdleConnsPerHost: senders}, func(_ context.Context, r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
	harness.Eventually(t, "the noisy member is rejected", func() error {
		if n.rejected.Load() == 0 {
			return fmt.Errorf("%d are pending, %d were served", n.pending.Load(), n.served.Load())
		}
		return nil
	})
	servedBefore := quiet.served.Load()
	least, noisyBefore := n.pending.Load(), n.served.Load()
	for i := range writes {
		quiet.renew()
		quiet.publish(fmt.Sprintf("s%02d", i))
		least = min(least, n.pending.Load())
	}
	t.Logf("quiet: %d served, %d rejected; noisy: %d served meanwhile, %d rejected in all, at least %d pending",
		quiet.served.Load()-servedBefore, quiet.rejected.Load(), n.served.Load()-noisyBefore, n.rejected.Load(), least)
	if quiet.rejected.Load() > 0 {
		t.Errorf("%d requests of the quiet member were rejected", quiet.rejected.Load())
	}
	if got := quiet.served.Load() - servedBefore; got != 2*writes {
		t.Errorf("the quiet member was served %d times, want %d", got, 2*writes)
	}
	if least < 200 {
		t.Error("the noisy member was not noisy enough to prove anything")
	}
}

// A member opens many lists and hardly reads them, so it occupies every seat of its level. Leases
// are renewed all the same, and the cluster's own workloads are served. Without the objects of the
// broker both are rejected.
func TestSlowReaderDoesNotStopHeartbeats(t *testing.T) {
	s := newNarrowServer(t)
	quiet, workload := newAccount(t, s.memberships["quiet"].Config()), s.workload(t)
	s.awaitLevels(t, quiet)
	const readers = 120 // more than the API server has seats
	n := s.makeNoise(t, readers, "", slowTransport(), readSlowly)
	// When a list has waited for 5 s it is rejected and sent again, so at times none waits.
	awaitFull := func(level string) {
		t.Helper()
		harness.Eventually(t, "all seats of "+level+" are taken", func() error {
			if s.levelGauge(t, "apiserver_flowcontrol_current_inqueue_requests", level) == 0 {
				return errors.New("no request waits")
			}
			return nil
		})
	}
	awaitFull(memberLevel)
	for range 50 {
		quiet.renew()
		workload.listConfigMaps()
	}
	awaitFull(memberLevel)
	if quiet.rejected.Load()+workload.rejected.Load() > 0 {
		t.Errorf("%d renewals and %d requests of a workload were rejected", quiet.rejected.Load(), workload.rejected.Load())
	}

	// The control: the same without the objects. All lists start at once, so no seat becomes free for
	// 20 s.
	n.stop()
	for _, name := range []string{memberLevel, leaseLevel} {
		must(t, s.admin.Delete(t.Context(), &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	const before = "workload-low"
	served := s.levelGauge(t, "apiserver_flowcontrol_dispatched_requests_total", before)
	harness.Eventually(t, "members are served with other ServiceAccounts", func() error {
		quiet.renew()
		if s.levelGauge(t, "apiserver_flowcontrol_dispatched_requests_total", before) == served {
			return errors.New("not yet")
		}
		return nil
	})
	s.makeNoise(t, readers, "", slowTransport(), readSlowly)
	awaitFull(before)
	harness.Eventually(t, "renewals and a workload's requests are rejected", func() error {
		quiet.renew()
		workload.listConfigMaps()
		if quiet.rejected.Load() == 0 || workload.rejected.Load() == 0 {
			return fmt.Errorf("%d and %d were rejected", quiet.rejected.Load(), workload.rejected.Load())
		}
		return nil
	})
}

// slowTransport returns a transport with a connection for each request and a small receive buffer:
// the API server cannot send a list that is not read.
func slowTransport() *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err == nil {
				err = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			}
			return conn, err
		},
	}
}

// readSlowly reads so slowly that a list is never complete. It returns when the API server gives
// up, or when ctx ends.
func readSlowly(ctx context.Context, r io.Reader) error {
	for one := make([]byte, 1); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if _, err := r.Read(one); err != nil {
			return err
		}
	}
}
