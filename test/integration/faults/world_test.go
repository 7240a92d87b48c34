package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// imported waits until a member has a ServiceImport with exactly these addresses.
func imported(t *testing.T, m *fleet.Member, ns, name string, want sources) *mcsv1beta1.ServiceImport {
	t.Helper()
	var si *mcsv1beta1.ServiceImport
	harness.Eventually(t, fmt.Sprintf("%s/%s imported in %s", ns, name, m.ID), func() (err error) {
		if si, err = m.Import(ns, name); err != nil {
			return err
		}
		if len(si.Status.Conditions) == 0 {
			return fmt.Errorf("no status yet")
		}
		return sameAddresses(m, ns, name, want)
	})
	return si
}

func notImported(t *testing.T, m *fleet.Member, ns, name string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s/%s gone from %s", ns, name, m.ID), func() error {
		if _, err := m.Import(ns, name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the ServiceImport is still there (%w)", err)
		}
		return sameAddresses(m, ns, name, sources{})
	})
}

// ready waits until a member's export has this Ready condition, and returns it.
func ready(t *testing.T, m *fleet.Member, ns, name string, status metav1.ConditionStatus, reason mcsv1beta1.ServiceExportConditionReason) metav1.Condition {
	t.Helper()
	return m.Awaits(t, ns, name, mcsv1beta1.ServiceExportConditionReady, status, reason)
}

func exported(t *testing.T, m *fleet.Member, ns, name string) {
	t.Helper()
	ready(t, m, ns, name, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonExported)
}

func pending(t *testing.T, m *fleet.Member, ns, name string) string {
	t.Helper()
	return ready(t, m, ns, name, metav1.ConditionFalse, v1alpha1.ServiceExportReasonWaitingForBroker).Message
}

// onBroker lists what the broker holds with these labels.
func onBroker(f *fleet.Fleet, labels client.MatchingLabels) ([]string, error) {
	var names []string
	for _, list := range []client.ObjectList{&v1alpha1.ExportRecordList{}, &discoveryv1.EndpointSliceList{}, &mcsv1beta1.ServiceImportList{}} {
		if err := f.Admin.List(context.Background(), list, client.InNamespace(objects.DefaultNamespace), labels); err != nil {
			return nil, err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			obj := o.(client.Object)
			names = append(names, fmt.Sprintf("%T %s", obj, obj.GetName()))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// brokerHolds waits until the broker holds so many objects of a namespace.
func brokerHolds(t *testing.T, f *fleet.Fleet, ns string, want int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d objects of %s on the broker", want, ns), func() error {
		names, err := onBroker(f, client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns})
		if err != nil || len(names) != want {
			return fmt.Errorf("%d: %v %w", len(names), names, err)
		}
		return nil
	})
}

// versions are the resourceVersions of all that agents write in a namespace of a server; on the broker's, of what it holds of
// the namespace. Two that are equal mean that nothing at all was written.
func versions(c client.Client, ns string, onBroker bool) (map[string]string, error) {
	out := map[string]string{}
	where := []client.ListOption{client.InNamespace(ns)}
	kinds := []client.ObjectList{&discoveryv1.EndpointSliceList{}, &mcsv1beta1.ServiceImportList{}, &mcsv1beta1.ServiceExportList{}}
	if onBroker {
		where = []client.ListOption{client.InNamespace(objects.DefaultNamespace), client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns}}
		kinds = []client.ObjectList{&discoveryv1.EndpointSliceList{}, &mcsv1beta1.ServiceImportList{}, &v1alpha1.ExportRecordList{}}
	}
	for _, list := range kinds {
		if err := c.List(context.Background(), list, where...); err != nil {
			return nil, err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			obj := o.(client.Object)
			out[fmt.Sprintf("%T %s", obj, obj.GetName())] = obj.GetResourceVersion()
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// frozen returns a check that nothing of a namespace has changed in these members since it was called.
func frozen(t *testing.T, ns string, members ...*fleet.Member) func() error {
	t.Helper()
	before := make([]map[string]string, len(members))
	for i, m := range members {
		var err error
		before[i], err = versions(m.Client, ns, false)
		must(t, err)
	}
	return func() error {
		for i, m := range members {
			now, err := versions(m.Client, ns, false)
			if err != nil {
				return err
			}
			if changed := difference(before[i], now); len(changed) > 0 {
				return fmt.Errorf("%s: %v", m.ID, changed)
			}
		}
		return nil
	}
}

// difference names what is in one map and not, or other, in the other.
func difference(before, after map[string]string) []string {
	var out []string
	for name, version := range before {
		if now, ok := after[name]; !ok {
			out = append(out, name+" is gone")
		} else if now != version {
			out = append(out, name+" was written")
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			out = append(out, name+" is new")
		}
	}
	slices.Sort(out)
	return out
}

// writes counts the write requests a server has served, by verb and resource, refused ones and those that changed nothing
// included. What API servers write by themselves, and heartbeats, is left out.
func writes(t *testing.T, cp *controlplane.ControlPlane) map[string]int {
	t.Helper()
	hc, err := rest.HTTPClientFor(cp.DirectConfig())
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cp.DirectConfig().Host+"/metrics", http.NoBody)
	must(t, err)
	resp, err := hc.Do(req)
	must(t, err)
	defer resp.Body.Close()
	ours := []string{"endpointslices", "serviceimports", "serviceexports", "exportrecords", "clusters", "clustersets", "clusterproperties", "clusterclaims", "secrets", "events"}
	out := map[string]int{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, ok := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(series, "} ")
		label := labelsOf(labels)
		if !slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, label["verb"]) || !slices.Contains(ours, label["resource"]) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		must(t, err)
		out[label["verb"]+" "+label["resource"]+"/"+label["subresource"]] += int(n)
	}
	must(t, lines.Err())
	return out
}

func labelsOf(text string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		out[name] = strings.Trim(value, `"`)
	}
	return out
}

// quiet waits until no server has served a write for three seconds, and returns the counts.
func quiet(t *testing.T, cps ...*controlplane.ControlPlane) []map[string]int {
	t.Helper()
	count := func() []map[string]int {
		var all []map[string]int
		for _, cp := range cps {
			all = append(all, writes(t, cp))
		}
		return all
	}
	last, since := count(), time.Now()
	harness.Eventually(t, "no writes for three seconds", func() error {
		next := count()
		if !slices.EqualFunc(last, next, maps.Equal) {
			last, since = next, time.Now()
		}
		if time.Since(since) < 3*time.Second {
			return fmt.Errorf("the last writes were %s ago", time.Since(since))
		}
		return nil
	})
	return last
}

// importNames are the names of a member's ServiceImports in a namespace.
func importNames(ctx context.Context, m *fleet.Member, ns string) (map[string]bool, error) {
	var list mcsv1beta1.ServiceImportList
	err := m.Client.List(ctx, &list, client.InNamespace(ns))
	out := map[string]bool{}
	for i := range list.Items {
		out[list.Items[i].Name] = true
	}
	return out, err
}
