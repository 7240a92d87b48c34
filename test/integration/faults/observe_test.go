package faults_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/controlplane"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// awaitNotReady waits until a member's export is not ready for this reason, and checks that the
// message has all the parts.
func awaitNotReady(
	t *testing.T, m *fleet.Member, ns, name string, reason mcsv1beta1.ServiceExportConditionReason, parts ...string,
) {
	t.Helper()
	c := m.Awaits(t, ns, name, mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, reason)
	for _, part := range parts {
		if !strings.Contains(c.Message, part) {
			t.Errorf("%q is missing in the message %q", part, c.Message)
		}
	}
}

// awaitOnBroker waits until the broker has exactly this number of objects of a namespace.
func awaitOnBroker(t *testing.T, f *fleet.Fleet, ns string, want int) {
	t.Helper()
	f.AwaitOnBroker(t, want, client.MatchingLabels{v1alpha1.LabelServiceNamespace: ns})
}

// versions returns the resourceVersions of all objects that agents write in a namespace of a
// member, or, with onBroker, of all objects of the namespace on the broker. Equal results mean that
// nothing was written in between.
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

// unchangedCheck returns a check that nothing in a namespace of these members was written since it
// was called.
func unchangedCheck(t *testing.T, ns string, members ...*fleet.Member) func() error {
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
			if changed := changedObjects(before[i], now); len(changed) > 0 {
				return fmt.Errorf("%s: %v", m.ID, changed)
			}
		}
		return nil
	}
}

// changedObjects describes the differences between two results of versions.
func changedObjects(before, after map[string]string) []string {
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

// agentResources are the resources that agents write. Leases are left out: agents renew them all
// the time.
var agentResources = []string{
	"endpointslices", "serviceimports", "serviceexports", "services", "exportrecords", "clusters", "clustersets",
	"clusterproperties", "clusterclaims", "secrets", "configmaps", "events",
}

// writeCounts returns how many write requests for agentResources a server has served, by verb and
// resource. Requests that were refused or changed nothing count, too.
func writeCounts(t *testing.T, cp *controlplane.ControlPlane) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, s := range harness.Metric(t, cp, "apiserver_request_total") {
		isWrite := slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, s.Labels["verb"])
		if isWrite && slices.Contains(agentResources, s.Labels["resource"]) {
			out[s.Labels["verb"]+" "+s.Labels["resource"]+"/"+s.Labels["subresource"]] += int(s.Value)
		}
	}
	return out
}

// awaitNoWrites waits until no server has served a write for three seconds, and returns the counts.
func awaitNoWrites(t *testing.T, cps ...*controlplane.ControlPlane) []map[string]int {
	t.Helper()
	count := func() []map[string]int {
		var all []map[string]int
		for _, cp := range cps {
			all = append(all, writeCounts(t, cp))
		}
		return all
	}
	last, since := count(), time.Now()
	harness.Eventually(t, "no writes for three seconds", func() error {
		time.Sleep(500 * time.Millisecond) // all metrics of a server are megabytes, which it renders for each request
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

// importNames returns the names of a member's ServiceImports in a namespace.
func importNames(ctx context.Context, m *fleet.Member, ns string) (map[string]bool, error) {
	var list mcsv1beta1.ServiceImportList
	err := m.Client.List(ctx, &list, client.InNamespace(ns))
	out := map[string]bool{}
	for i := range list.Items {
		out[list.Items[i].Name] = true
	}
	return out, err
}
