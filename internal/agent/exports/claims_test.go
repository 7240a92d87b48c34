package exports

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// recordOn returns the record that a cluster has on the broker. A larger age, in hours, wins
// conflicts and claims.
func recordOn(cluster string, age int, change ...func(*v1alpha1.ExportRecordSpec)) *v1alpha1.ExportRecord {
	r := recordOf(exported(func(in *Input) { in.ClusterID = cluster }))
	r.CreationTimestamp = metav1.NewTime(created.Add(-time.Duration(age) * time.Hour))
	r.Spec.ExportedAt = r.CreationTimestamp
	for _, c := range change {
		c(&r.Spec)
	}
	return r
}

func claiming(ips ...string) func(*v1alpha1.ExportRecordSpec) {
	return func(r *v1alpha1.ExportRecordSpec) { r.ClusterSetIPs = ips }
}

func classic(r *v1alpha1.ExportRecordSpec)  { r.UseClusterSetIP, r.RequestedClusterSetIP = false, false }
func headless(r *v1alpha1.ExportRecordSpec) { r.Type = mcsv1beta1.Headless }

func TestTheFirstExporterAllocates(t *testing.T) {
	dual := func(in *Input) { in.Service.Spec.IPFamilies = []corev1.IPFamily{"IPv6", "IPv4"} }
	for name, test := range map[string]struct {
		change   func(*Input)
		ips      []string
		reserved bool
		delayed  bool
	}{
		"first exporter": {func(*Input) {}, []string{"243.0.0.1"}, true, false},
		"both families":  {dual, []string{"243.0.0.1", "fd00:243::1"}, true, false},
		"later exporter adopts": {
			func(in *Input) { in.Records = []*v1alpha1.ExportRecord{recordOn("west", 1, claiming("243.7.0.1"))} },
			[]string{"243.7.0.1"}, false, false,
		},
		"its own claim stays": {
			func(in *Input) { in.Records = []*v1alpha1.ExportRecord{recordOn("east", 0, claiming("243.7.0.1"))} },
			[]string{"243.7.0.1"}, false, false,
		},
		"of two claims that of the older record": {
			func(in *Input) {
				in.Records = []*v1alpha1.ExportRecord{recordOn("east", 0, claiming("243.0.0.7")), recordOn("west", 1, claiming("243.7.0.1"))}
			}, []string{"243.7.0.1"}, false, false,
		},
		"a claim that another service has is replaced": {
			func(in *Input) {
				in.Records = []*v1alpha1.ExportRecord{recordOn("east", 0, claiming("243.7.0.1"))}
				in.Accepts = func(addr netip.Addr) bool { return addr != netip.MustParseAddr("243.7.0.1") }
			}, []string{"243.0.0.1"}, true, false,
		},
		"an older exporter has not claimed yet": {
			func(in *Input) { in.Records = []*v1alpha1.ExportRecord{recordOn("west", 1)} }, nil, false, true,
		},
		"an older exporter is stale": {
			func(in *Input) {
				in.Records, in.Stale = []*v1alpha1.ExportRecord{recordOn("west", 1)}, map[string]bool{"west": true}
			}, []string{"243.0.0.1"}, true, false,
		},
		"an older exporter did not claim in time": {
			func(in *Input) { in.Records, in.TakesOver = []*v1alpha1.ExportRecord{recordOn("west", 1)}, true },
			[]string{"243.0.0.1"}, true, false,
		},
		"remembered, after the broker lost the records": {
			func(in *Input) { in.Remembered = []netip.Addr{netip.MustParseAddr("243.7.0.1")} }, []string{"243.7.0.1"}, true, false,
		},
		"remembered, and not of this clusterset": {
			func(in *Input) { in.Remembered = []netip.Addr{netip.MustParseAddr("10.7.0.1")} }, []string{"243.0.0.1"}, true, false,
		},
		"the other family, allocated by another cluster": {
			func(in *Input) {
				dual(in)
				in.Records = []*v1alpha1.ExportRecord{recordOn("east", 0), recordOn("west", 0, claiming("fd00:243::7"))}
			}, []string{"243.0.0.1", "fd00:243::7"}, true, false,
		},
		"a headless service keeps its claim": {
			func(in *Input) {
				in.Service.Spec.ClusterIP = corev1.ClusterIPNone
				in.Records = []*v1alpha1.ExportRecord{recordOn("east", 0, claiming("243.7.0.1"))}
			}, []string{"243.7.0.1"}, false, false,
		},
		"a headless service needs none": {func(in *Input) { in.Service.Spec.ClusterIP = corev1.ClusterIPNone }, nil, false, false},
		"classic mode needs none":       {func(in *Input) { in.UseClusterSetIP = false }, nil, false, false},
		"left out of the service": {
			func(in *Input) { in.Records = []*v1alpha1.ExportRecord{recordOn("west", 1, headless)} }, nil, false, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(exported(test.change))
			if !slices.Equal(plan.Record.Spec.ClusterSetIPs, test.ips) || plan.Reserved != test.reserved || (plan.Delay > 0) != test.delayed {
				t.Errorf("claims %+v", plan.Claims)
			}
			if plan.Missing != (test.delayed) {
				t.Errorf("missing: %v", plan.Missing)
			}
		})
	}
}

func TestNoClusterSetIPLeft(t *testing.T) {
	none := errors.New("all in use")
	plan := Decide(exported(func(in *Input) {
		in.Offer = func(corev1.IPFamily, netip.Addr) (netip.Addr, error) { return netip.Addr{}, none }
	}))
	if !errors.Is(plan.Shortage, none) || !plan.Missing || plan.Record == nil {
		t.Errorf("want a record without clusterset IP, and the reason: %+v", plan.Claims)
	}
	plan = Decide(exported(func(in *Input) {
		in.Service.Spec.IPFamilies = []corev1.IPFamily{"IPv4", "IPv6"}
		in.Offer = func(family corev1.IPFamily, _ netip.Addr) (netip.Addr, error) {
			if family == corev1.IPv6Protocol {
				return netip.Addr{}, none
			}
			return netip.MustParseAddr("243.0.0.1"), nil
		}
	}))
	if plan.Shortage != nil || plan.Missing {
		t.Errorf("one family is enough: %+v", plan.Claims)
	}
}

func TestTheModeThatRunsIsAdopted(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Input)
		want   bool
	}{
		"first exporter: its request": {func(in *Input) { in.UseClusterSetIP = false }, false},
		"a newer exporter runs": {
			func(in *Input) { in.Records = []*v1alpha1.ExportRecord{recordOn("west", -1, classic)} }, false,
		},
		"an older exporter runs": {
			func(in *Input) { in.Records = []*v1alpha1.ExportRecord{recordOn("west", 1, classic)} }, false,
		},
		"an older exporter runs, and this one published another mode": {
			func(in *Input) {
				in.Records = []*v1alpha1.ExportRecord{recordOn("west", 1, classic), recordOn("east", 0)}
			}, false,
		},
		"this export decides, and its annotation changed": {
			func(in *Input) {
				in.UseClusterSetIP, in.Records = false, []*v1alpha1.ExportRecord{recordOn("east", 0), recordOn("west", -1, classic)}
			}, true,
		},
		"a headless service runs": {
			func(in *Input) { in.Records = []*v1alpha1.ExportRecord{recordOn("west", 1, headless, classic)} }, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := exported(test.change)
			record := Decide(in).Record
			if record.Spec.UseClusterSetIP != test.want || record.Spec.RequestedClusterSetIP != in.UseClusterSetIP {
				t.Errorf("uses a clusterset IP: %v, requested %v", record.Spec.UseClusterSetIP, record.Spec.RequestedClusterSetIP)
			}
		})
	}
}
