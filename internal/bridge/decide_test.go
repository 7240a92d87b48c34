package bridge

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/exports"
	"github.com/seamark-dev/seamark/internal/objects"
)

var (
	web  = types.NamespacedName{Namespace: "shop", Name: "web"}
	noon = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)
)

// record returns a record of a Seamark cluster, exported so many minutes after noon.
func record(cluster string, minutes int, change ...func(*v1alpha1.ExportRecord)) *v1alpha1.ExportRecord {
	r := &v1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Name: objects.RecordName(web, cluster), Labels: objects.Labels(web, cluster)},
		Spec: v1alpha1.ExportRecordSpec{
			ServiceName: web.Name, ServiceNamespace: web.Namespace, ClusterID: v1alpha1.ClusterID(cluster),
			ExportedAt: metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute)), Type: mcsv1beta1.ClusterSetIP,
			Ports:      []v1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

// clusterIPSlice returns the slice of a Seamark cluster in classic mode.
func clusterIPSlice(cluster, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: objects.SliceName(web, cluster, address), Labels: objects.Labels(web, cluster)},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(80))}},
	}
}

// lighthouseImport returns what Lighthouse's agent of a cluster writes on its broker.
func lighthouseImport(cluster string, minutes int, change ...func(*mcsv1alpha1.ServiceImport)) *mcsv1alpha1.ServiceImport {
	si := &mcsv1alpha1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "web-" + cluster,
			Labels: map[string]string{mcsv1alpha1.LabelServiceName: "web", labelSourceNamespace: "shop", mcsv1alpha1.LabelSourceCluster: cluster},
			Annotations: map[string]string{
				annotationTimestamp: strconv.FormatInt(noon.Add(time.Duration(minutes)*time.Minute).UnixNano(), 10),
			},
		},
		Spec: mcsv1alpha1.ServiceImportSpec{
			Type: mcsv1alpha1.ClusterSetIP, IPs: []string{"10.7.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []mcsv1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	for _, c := range change {
		c(si)
	}
	return si
}

func headlessRecord(r *v1alpha1.ExportRecord) { r.Spec.Type = mcsv1beta1.Headless }

func headlessImport(si *mcsv1alpha1.ServiceImport) {
	si.Spec.Type, si.Spec.IPs, si.Spec.Ports = mcsv1alpha1.Headless, nil, nil
}

func input(records ...*v1alpha1.ExportRecord) LighthouseInput {
	in := LighthouseInput{Service: web, Namespace: "broker", Records: records, Owned: isBridged}
	for _, r := range records {
		in.Clusters = append(in.Clusters, string(r.Spec.ClusterID))
		in.Slices = append(in.Slices, clusterIPSlice(string(r.Spec.ClusterID), "10.8.0.1"))
	}
	return in
}

// applied returns the state of Lighthouse's broker after a plan.
func applied(have State, plan LighthousePlan) State {
	out := State{Aggregate: have.Aggregate}
	gone := map[string]bool{}
	for _, obj := range slices.Concat(plan.Imports.Delete, plan.Imports.Update, plan.Slices.Delete, plan.Slices.Update) {
		gone[obj.GetName()] = true
	}
	for _, si := range have.Imports {
		if !gone[si.Name] {
			out.Imports = append(out.Imports, si)
		}
	}
	for _, s := range have.Slices {
		if !gone[s.Name] {
			out.Slices = append(out.Slices, s)
		}
	}
	for _, obj := range slices.Concat(plan.Imports.Create, plan.Imports.Update) {
		out.Imports = append(out.Imports, obj.(*mcsv1alpha1.ServiceImport))
	}
	for _, obj := range slices.Concat(plan.Slices.Create, plan.Slices.Update) {
		out.Slices = append(out.Slices, obj.(*discoveryv1.EndpointSlice))
	}
	a := plan.Aggregate
	switch {
	case a.Delete != nil:
		out.Aggregate = nil
	case a.Create != nil:
		out.Aggregate = a.Create.DeepCopy()
	case a.Update != nil:
		out.Aggregate = a.Update.DeepCopy()
	}
	if a.Status != nil {
		out.Aggregate = out.Aggregate.DeepCopy()
		out.Aggregate.Status.Clusters = a.Status
	}
	return out
}

func listed(s State) (out []string) {
	if s.Aggregate != nil {
		for _, c := range s.Aggregate.Status.Clusters {
			out = append(out, c.Cluster)
		}
	}
	return out
}

// settle decides until nothing is left to write, and fails if that takes more than two rounds.
func settle(t *testing.T, in LighthouseInput) State {
	t.Helper()
	for range 3 {
		plan := DecideLighthouse(in)
		if plan.Empty() {
			return in.Have
		}
		in.Have = applied(in.Have, plan)
	}
	t.Fatal("the decisions do not settle")
	return State{}
}

func TestAServiceIsWrittenAndWithdrawn(t *testing.T) {
	in := input(record("west", 0))
	in.Have = settle(t, in)
	if len(in.Have.Imports) != 1 || len(in.Have.Slices) != 1 || !slices.Equal(listed(in.Have), []string{"west"}) {
		t.Fatalf("Lighthouse's broker has %d imports, %d slices and lists %v", len(in.Have.Imports), len(in.Have.Slices), listed(in.Have))
	}
	if got := in.Have.Imports[0].Spec.IPs; !slices.Equal(got, []string{"10.8.0.1"}) {
		t.Errorf("the ServiceImport has addresses %v, want the ClusterIP", got)
	}
	in.Records, in.Slices = nil, nil
	in.Held = map[string]bool{"west": true}
	if plan := DecideLighthouse(in); !plan.Empty() {
		t.Errorf("a held withdrawal writes %+v", plan)
	}
	in.Held = nil
	if have := settle(t, in); len(have.Imports)+len(have.Slices) > 0 || have.Aggregate != nil {
		t.Errorf("withdrawn, Lighthouse's broker still has %+v", have)
	}
}

func TestAggregateOfLighthouse(t *testing.T) {
	aggregate := func(kind mcsv1alpha1.ServiceImportType, clusters ...string) *mcsv1alpha1.ServiceImport {
		si := &mcsv1alpha1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Name: "web-shop", Annotations: map[string]string{
				mcsv1alpha1.LabelServiceName: "web", labelSourceNamespace: "shop", annotationUseClusterSetIP: "false",
			}},
			Spec: mcsv1alpha1.ServiceImportSpec{Type: kind},
		}
		for _, c := range clusters {
			si.Status.Clusters = append(si.Status.Clusters, mcsv1alpha1.ClusterStatus{Cluster: c})
		}
		return si
	}
	extra := func(si *mcsv1alpha1.ServiceImport) {
		si.Spec.Ports = append(si.Spec.Ports, mcsv1alpha1.ServicePort{Name: "extra", Port: 99})
	}
	for name, c := range map[string]struct {
		records []*v1alpha1.ExportRecord
		have    State
		listed  []string
		ports   []string // of the aggregate
		slices  int
	}{
		"older than Lighthouse's: writes the union of ports": {
			[]*v1alpha1.ExportRecord{record("west", 0)},
			State{Imports: []*mcsv1alpha1.ServiceImport{lighthouseImport("east", 1, extra)}, Aggregate: aggregate(mcsv1alpha1.ClusterSetIP, "east")},
			[]string{"east", "west"}, []string{"http", "extra"}, 1,
		},
		"younger: leaves the spec to Lighthouse's agent": {
			[]*v1alpha1.ExportRecord{record("west", 1)},
			State{Imports: []*mcsv1alpha1.ServiceImport{lighthouseImport("east", 0, extra)}, Aggregate: aggregate(mcsv1alpha1.ClusterSetIP, "east")},
			[]string{"east", "west"}, nil, 1,
		},
		"as old: the smaller id decides": {
			[]*v1alpha1.ExportRecord{record("west", 0)},
			State{Imports: []*mcsv1alpha1.ServiceImport{lighthouseImport("east", 0)}, Aggregate: aggregate(mcsv1alpha1.ClusterSetIP, "east")},
			[]string{"east", "west"}, nil, 1,
		},
		"another type than the aggregate: neither listed nor with endpoints": {
			[]*v1alpha1.ExportRecord{record("west", 0)},
			State{
				Imports:   []*mcsv1alpha1.ServiceImport{lighthouseImport("east", 1, headlessImport)},
				Aggregate: aggregate(mcsv1alpha1.Headless, "east"),
			},
			[]string{"east"}, nil, 0,
		},
		"two Seamark clusters": {
			[]*v1alpha1.ExportRecord{record("south", 1), record("west", 0)}, State{},
			[]string{"south", "west"}, []string{"http"}, 2,
		},
		"two Seamark clusters of two types: the older decides": {
			[]*v1alpha1.ExportRecord{record("south", 1, headlessRecord), record("west", 0)}, State{},
			[]string{"west"}, []string{"http"}, 1,
		},
		"an aggregate of the bridge whose type changed is made anew": {
			[]*v1alpha1.ExportRecord{record("west", 0, headlessRecord)}, State{Aggregate: aggregate(mcsv1alpha1.ClusterSetIP, "west")},
			[]string{"west"}, nil, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(c.records...)
			in.Have = c.have
			have := settle(t, in)
			var ports []string
			for _, p := range have.Aggregate.Spec.Ports {
				ports = append(ports, p.Name)
			}
			if !slices.Equal(listed(have), c.listed) || !slices.Equal(ports, c.ports) || len(have.Slices) != c.slices {
				t.Errorf("the aggregate lists %v with ports %v, and there are %d slices; want %v, %v, %d",
					listed(have), ports, len(have.Slices), c.listed, c.ports, c.slices)
			}
		})
	}
}

// Lighthouse's agents set the annotation on every aggregate: on that of a headless service when
// they first update it.
func TestAggregatesHaveNoClusterSetIP(t *testing.T) {
	for _, r := range []*v1alpha1.ExportRecord{record("west", 0), record("west", 0, headlessRecord)} {
		in := input(r)
		if in.Have = settle(t, in); in.Have.Aggregate.Annotations[annotationUseClusterSetIP] != "false" {
			t.Errorf("a new aggregate of type %s has annotations %v", r.Spec.Type, in.Have.Aggregate.Annotations)
		}
		delete(in.Have.Aggregate.Annotations, annotationUseClusterSetIP)
		if have := settle(t, in); have.Aggregate.Annotations[annotationUseClusterSetIP] != "false" {
			t.Errorf("an aggregate of type %s without the annotation keeps %v", r.Spec.Type, have.Aggregate.Annotations)
		}
	}
}

func TestServicesThatAreNotBridged(t *testing.T) {
	vip := input(record("west", 0, func(r *v1alpha1.ExportRecord) { r.Spec.UseClusterSetIP = true }))
	if plan := DecideLighthouse(vip); !plan.Empty() || !strings.Contains(plan.Skipped["west"], "clusterset IP") {
		t.Errorf("a service with a clusterset IP: %+v", plan)
	}
	collides := input(record("west", 0))
	collides.Have.Aggregate = &mcsv1alpha1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Name: "web-shop", Annotations: map[string]string{
		mcsv1alpha1.LabelServiceName: "web-shop", labelSourceNamespace: "x",
	}}}
	if plan := DecideLighthouse(collides); !plan.Empty() || !strings.Contains(plan.Skipped["west"], "x/web-shop") {
		t.Errorf("a service whose aggregate is another's: %+v", plan)
	}
}

func TestObjectsOfOthersStay(t *testing.T) {
	in := input(record("west", 0))
	in.Have = State{
		Imports: []*mcsv1alpha1.ServiceImport{lighthouseImport("east", 1), lighthouseImport("gone", 1, func(si *mcsv1alpha1.ServiceImport) {
			si.Annotations[objects.AnnotationBridge] = "true"
		})},
	}
	plan := DecideLighthouse(in)
	if len(plan.Imports.Delete) != 1 || sourceCluster(plan.Imports.Delete[0]) != "gone" {
		t.Errorf("it deletes %v, want what the bridge wrote for a cluster that is no longer in its list", plan.Imports.Delete)
	}
	in.Owned = func(obj metav1.Object) bool { return isBridged(obj) || sourceCluster(obj) == "west" }
	in.Have.Imports = []*mcsv1alpha1.ServiceImport{lighthouseImport("west", 1)}
	plan = DecideLighthouse(in)
	if len(plan.Imports.Create) > 0 || len(plan.Imports.Update) != 1 || plan.Imports.Update[0].GetName() != "web-west" ||
		!isBridged(plan.Imports.Update[0]) {
		t.Errorf("taking over writes %+v, want an update of the same object", plan.Imports)
	}
}

func TestDecideSeamark(t *testing.T) {
	settings := exports.Settings{ClusterID: "east", BrokerNamespace: "broker", AdmittedAt: metav1.NewTime(noon), UseClusterSetIP: true}
	endpoint := clusterIPSlice("east", "10.7.0.1")
	for name, c := range map[string]struct {
		have      State
		exported  bool
		addresses []string
		at        time.Time
	}{
		"not exported": {State{}, false, nil, time.Time{}},
		"ClusterIP": {
			State{Imports: []*mcsv1alpha1.ServiceImport{lighthouseImport("east", 5)}, Slices: []*discoveryv1.EndpointSlice{endpoint}},
			true, []string{"10.7.0.1"}, noon.Add(5 * time.Minute),
		},
		"older than its admission": {
			State{Imports: []*mcsv1alpha1.ServiceImport{lighthouseImport("east", -5)}, Slices: []*discoveryv1.EndpointSlice{endpoint}},
			true, []string{"10.7.0.1"}, noon,
		},
		"headless": {
			State{Imports: []*mcsv1alpha1.ServiceImport{lighthouseImport("east", 5, headlessImport)}, Slices: []*discoveryv1.EndpointSlice{endpoint}},
			true, []string{"10.7.0.1"}, noon.Add(5 * time.Minute),
		},
		"written by a bridge": {
			State{Imports: []*mcsv1alpha1.ServiceImport{lighthouseImport("east", 5, func(si *mcsv1alpha1.ServiceImport) {
				si.Annotations[objects.AnnotationBridge] = "true"
			})}}, false, nil, time.Time{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := DecideSeamark(SeamarkInput{Settings: settings, Service: web, Lighthouse: c.have})
			if (plan.Record != nil) != c.exported {
				t.Fatalf("the record is %v, want one: %v", plan.Record, c.exported)
			}
			if !c.exported {
				return
			}
			var addresses []string
			for _, s := range plan.Slices {
				for _, e := range s.Endpoints {
					addresses = append(addresses, e.Addresses...)
				}
			}
			if !slices.Equal(addresses, c.addresses) || !plan.Record.Spec.ExportedAt.Time.Equal(c.at) || plan.Record.Spec.UseClusterSetIP {
				t.Errorf("it publishes %v, exported at %s, clusterset IP %v; want %v, %s, false",
					addresses, plan.Record.Spec.ExportedAt, plan.Record.Spec.UseClusterSetIP, c.addresses, c.at)
			}
			if len(plan.Record.Spec.Ports) != 1 || plan.Record.Spec.Ports[0].Name != "http" {
				t.Errorf("the record has ports %v", plan.Record.Spec.Ports)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for want, o := range map[string]Options{
		"":                                {LighthouseClusters: []string{"east"}, SeamarkClusters: []string{"west"}, TakeOver: []string{"west"}},
		"--lighthouse-clusters is empty":  {SeamarkClusters: []string{"west"}},
		"--seamark-clusters is empty":     {LighthouseClusters: []string{"east"}},
		"a cluster that runs both":        {LighthouseClusters: []string{"east"}, SeamarkClusters: []string{"west", "east"}},
		"names cluster east twice":        {LighthouseClusters: []string{"east", "east"}, SeamarkClusters: []string{"west"}},
		"cannot be a cluster id":          {LighthouseClusters: []string{"East"}, SeamarkClusters: []string{"west"}},
		"which is not in --seamark-clust": {LighthouseClusters: []string{"east"}, SeamarkClusters: []string{"west"}, TakeOver: []string{"east"}},
	} {
		err := o.Validate()
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// Slices that take the place of an ended agent's are written before those go, so that clients never
// have none. When a service is withdrawn, its endpoints go before the aggregate.
func TestOrderOfSliceWrites(t *testing.T) {
	in := input(record("west", 0, headlessRecord))
	agents := settle(t, in)
	for _, s := range agents.Slices { // as Lighthouse's agent names them
		s.Name, s.Labels[labelSourceName] = "web-abcde", "web-source"
		delete(s.Annotations, objects.AnnotationBridge)
	}
	in.Have, in.Owned = agents, func(metav1.Object) bool { return true }
	before, after, last := DecideLighthouse(in).sliceWrites()
	if !before.Empty() || len(after.Create) != 1 || len(after.Delete) > 0 || len(last.Delete) != 1 {
		t.Errorf("taking over writes %v, then %v, then %v; want one slice created, then one deleted", before, after, last)
	}
	in.Records, in.Slices = nil, nil
	before, after, last = DecideLighthouse(in).sliceWrites()
	if len(before.Delete) != 1 || !after.Empty() || !last.Empty() {
		t.Errorf("withdrawing writes %v before the aggregate, then %v and %v; want one deletion before", before, after, last)
	}
}

// The label that names the source of a headless slice is valid and differs from slice to slice,
// however long the name of the Service is.
func TestLongNames(t *testing.T) {
	for length := 50; length <= validation.DNS1123LabelMaxLength; length++ {
		in := input(record("west", 0, headlessRecord))
		in.Service.Name = strings.Repeat("a-", length)[:length-1] + "z"
		in.Slices = append(in.Slices, clusterIPSlice("west", "10.8.0.2"))
		have := settle(t, in)
		names := map[string]bool{}
		for _, s := range have.Slices {
			names[s.Labels[labelSourceName]] = true
			if problems := validation.IsValidLabelValue(s.Labels[labelSourceName]); len(problems) > 0 {
				t.Errorf("the label %q of a slice of %s: %v", s.Labels[labelSourceName], in.Service.Name, problems)
			}
		}
		if len(have.Slices) != 2 || len(names) != 2 {
			t.Errorf("%s has %d slices with %d names of sources, want two of each", in.Service.Name, len(have.Slices), len(names))
		}
	}
}

func TestBothFamilies(t *testing.T) {
	in := input(record("west", 0, func(r *v1alpha1.ExportRecord) {
		r.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	}))
	six := clusterIPSlice("west", "fd00::8")
	six.AddressType = discoveryv1.AddressTypeIPv6
	in.Slices = append(in.Slices, six)
	have := settle(t, in)
	if got := have.Imports[0].Spec.IPs; !slices.Equal(got, []string{"fd00::8", "10.8.0.1"}) {
		t.Errorf("the ServiceImport has addresses %v, want them in the order of its families", got)
	}
	names := map[discoveryv1.AddressType]string{}
	for _, s := range have.Slices {
		names[s.AddressType] = s.GenerateName
	}
	if len(have.Slices) != 2 || names[discoveryv1.AddressTypeIPv4] != "web-" || names[discoveryv1.AddressTypeIPv6] != "web-v6-" {
		t.Errorf("there are %d slices with generateNames %v, want one of each family, named as Lighthouse does", len(have.Slices), names)
	}

	// The same back to Seamark.
	for _, obj := range have.Imports {
		delete(obj.Annotations, objects.AnnotationBridge)
	}
	plan := DecideSeamark(SeamarkInput{
		Settings: exports.Settings{ClusterID: "west", BrokerNamespace: "broker", AdmittedAt: metav1.NewTime(noon)}, Service: web, Lighthouse: have,
	})
	var addresses []string
	for _, s := range plan.Slices {
		addresses = append(addresses, s.Endpoints[0].Addresses...)
	}
	slices.Sort(addresses)
	if !slices.Equal(addresses, []string{"10.8.0.1", "fd00::8"}) {
		t.Errorf("Seamark's slices have %v", addresses)
	}
}
