package reach_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
	"github.com/seamark-dev/seamark/test/fleet"
	"github.com/seamark-dev/seamark/test/harness"
)

// observationPeriod is longer than a restarted agent needs to decide.
const observationPeriod = 8 * time.Second

type sources = map[string][]string

// published returns the clusters that the agent of a member publishes as unreachable.
func published(m *fleet.Member) (string, error) {
	property := reachable.Property(nil)
	err := m.Client.Get(context.Background(), client.ObjectKeyFromObject(property), property)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return property.Spec.Value, err
}

// awaitPublishedUnreachable waits until exactly these clusters are published as unreachable.
func awaitPublishedUnreachable(t *testing.T, m *fleet.Member, clusters ...string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%s publishes %v as unreachable", m.ID, clusters), func() error {
		value, err := published(m)
		if err != nil {
			return err
		}
		listed := reachable.Parse(value)
		for _, c := range clusters {
			if !listed.Has(reachable.Key{Cluster: c, Family: corev1.IPv4Protocol}) {
				return fmt.Errorf("%q lacks %s", value, c)
			}
		}
		if len(listed) != len(clusters) {
			return fmt.Errorf("%q lists others", value)
		}
		return nil
	})
}

// keptMessage returns the message about kept endpoints of an import, "" if there is none.
func keptMessage(m *fleet.Member, ns, name string) (string, error) {
	si, err := m.Import(ns, name)
	if err != nil {
		return "", err
	}
	if c := meta.FindStatusCondition(si.Status.Conditions, string(v1alpha1.ServiceImportConditionStaleEndpointsKept)); c != nil {
		return c.Message, nil
	}
	return "", nil
}

func awaitKept(t *testing.T, m *fleet.Member, ns, name, want string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("message %q on %s in %s", want, name, m.ID), func() error {
		got, err := keptMessage(m, ns, name)
		if err == nil && got != want {
			err = fmt.Errorf("%q", got)
		}
		return err
	})
}

// versions returns the versions of all imports and imported slices of a namespace, and the
// property.
func versions(m *fleet.Member, ns string, names ...string) (string, error) {
	var out strings.Builder
	for _, name := range names {
		si, err := m.Import(ns, name)
		if err != nil {
			return "", err
		}
		slices, err := m.ImportedSlices(ns, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&out, "ServiceImport", name, si.ResourceVersion)
		for i := range slices {
			fmt.Fprintln(&out, "EndpointSlice", slices[i].Name, slices[i].ResourceVersion)
		}
	}
	value, err := published(m)
	fmt.Fprintln(&out, value)
	return out.String(), err
}

// expectUnchanged fails if an object changes while event happens or within the observation period
// after it.
func expectUnchanged(t *testing.T, m *fleet.Member, ns, what string, event func()) {
	t.Helper()
	before, err := versions(m, ns, "both", "solo")
	if err != nil {
		t.Fatal(err)
	}
	event()
	harness.Consistently(t, what, observationPeriod, func() error {
		now, err := versions(m, ns, "both", "solo")
		if err == nil && now != before {
			err = fmt.Errorf("before:\n%s\nnow:\n%s", before, now)
		}
		return err
	})
}

func restart(t *testing.T, m *fleet.Member) {
	t.Helper()
	m.Stop()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
}

// three returns sites east and west, whose beacons answer, and north, which imports from them:
// service both from both, and solo from east. No process listens on the endpoints.
func three(t *testing.T) (f *fleet.Fleet, east, west, north *site, ns string) {
	t.Helper()
	cps := harness.Fresh(t, 3)
	f, err := fleet.New(t.Context(), cps[0], cps, fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	east, west, north = newSite(t, f.Members[0], 2), newSite(t, f.Members[1], 1), newSite(t, f.Members[2], 0)
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Stop)
	ns = fleet.NewNamespace(t, f.Members...)
	for _, s := range []*site{east, west} {
		s.Serve(t, fleet.NewService(ns, "both"), s.ips[0].String())
		s.Export(t, ns, "both")
		s.publishPods(0)
	}
	east.Serve(t, fleet.NewService(ns, "solo"), east.ips[0].String())
	east.Export(t, ns, "solo")
	for _, s := range []*site{east, west} {
		s.mountSecret()
		s.startBeacons()
	}
	north.AwaitImport(t, ns, "both", sources{"east": {east.ips[0].String()}, "west": {west.ips[0].String()}})
	north.AwaitImport(t, ns, "solo", sources{"east": {east.ips[0].String()}})
	for _, s := range []*site{north, west} { // who never had an answer judges no one by beacons
		s.awaitReached("east", objects.Reachable, objects.ReachBeaconsAnswer)
	}
	north.awaitReached("west", objects.Reachable, objects.ReachBeaconsAnswer)
	return f, east, west, north, ns
}

const (
	soloUnreachable = "cluster east cannot be reached from here; its last known endpoints are kept, because no other cluster serves this service"
)

func TestUnreachableClusterIsReplaced(t *testing.T) {
	_, east, west, north, ns := three(t)
	onlyWest := sources{"west": {west.ips[0].String()}}
	both := sources{"east": {east.ips[0].String()}, "west": {west.ips[0].String()}}
	before, err := north.Import(ns, "both")
	if err != nil {
		t.Fatal(err)
	}

	// The agent of east reaches the broker all the time: its lease is live.
	east.stopBeacons()
	awaitPublishedUnreachable(t, north.Member, "east")
	north.AwaitImport(t, ns, "both", onlyWest)
	awaitKept(t, north.Member, ns, "solo", soloUnreachable)
	north.AwaitImport(t, ns, "solo", sources{"east": {east.ips[0].String()}})
	if after, err := north.Import(ns, "both"); err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the ServiceImport was written (%v): %+v, before %+v", err, after, before)
	}
	// West reaches east no more either, and uses its own endpoints, which need no beacon.
	awaitPublishedUnreachable(t, west.Member, "east")
	west.AwaitImport(t, ns, "both", onlyWest)
	awaitPublishedUnreachable(t, east.Member)

	expectUnchanged(t, north.Member, ns, "nothing changes after a restart", func() { restart(t, north.Member) })
	north.awaitReached("east", objects.Unreachable, objects.ReachNoAnswer)

	value, err := published(north.Member)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(property client.Object) error{
		"deletes": func(p client.Object) error { return north.Client.Delete(t.Context(), p) },
		"edits": func(p client.Object) error {
			return north.Client.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"value":"nonsense"}}`)))
		},
	} {
		if err := change(reachable.Property(nil)); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the property is restored after a user "+what+" it", func() error {
			now, err := published(north.Member)
			if err == nil && now != value {
				err = fmt.Errorf("%q, want %q", now, value)
			}
			return err
		})
	}
	if err := north.CheckAddresses(ns, "both", onlyWest); err != nil {
		t.Error(err)
	}

	east.startBeacons()
	north.AwaitImport(t, ns, "both", both)
	awaitPublishedUnreachable(t, north.Member)
	awaitKept(t, north.Member, ns, "solo", "")
}

func TestSilentClusterThatServesIsUsed(t *testing.T) {
	f, east, west, north, ns := three(t)
	both := sources{"east": {east.ips[0].String()}, "west": {west.ips[0].String()}}
	expectUnchanged(t, north.Member, ns, "nothing changes while beacons answer", func() {
		east.Stop()
		awaitStale(t, north.Member, "east")
	})
	expectUnchanged(t, north.Member, ns, "nothing changes after a restart", func() { restart(t, north.Member) })
	if err := north.CheckAddresses(ns, "both", both); err != nil {
		t.Error(err)
	}

	// Now it dies as a whole, and the admin removes it: no verdict about it is left.
	east.stopBeacons()
	awaitPublishedUnreachable(t, north.Member, "east")
	north.AwaitImport(t, ns, "both", sources{"west": {west.ips[0].String()}})
	awaitKept(t, north.Member, ns, "solo", soloUnreachable)
	if _, err := brokeradmin.RemoveMember(t.Context(), f.Admin, objects.DefaultNamespace, "east"); err != nil {
		t.Fatal(err)
	}
	north.AwaitNoImport(t, ns, "solo")
	// The verdict is kept for half a minute, in case the services come back.
	deadline := time.Now().Add(40 * time.Second)
	for {
		if value, err := published(north.Member); err == nil && value == "" {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("still published: %q (%v)", value, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// awaitStale waits until the agent of a member has judged the lease of another one.
func awaitStale(t *testing.T, m *fleet.Member, other string) {
	t.Helper()
	harness.Eventually(t, m.ID+" finds the lease of "+other+" expired", func() error {
		stored := &corev1.ConfigMap{}
		key := types.NamespacedName{Namespace: objects.AgentNamespace, Name: objects.LivenessConfigMap}
		if err := m.Client.Get(context.Background(), key, stored); err != nil {
			return err
		}
		if stored.Data[other] == "" {
			return fmt.Errorf("%v", stored.Data)
		}
		return nil
	})
}
