package exports

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/objects"
)

var created = metav1.NewTime(time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC))

func exported(change ...func(*Input)) Input {
	in := Input{
		Settings: Settings{ClusterID: "east", BrokerNamespace: "seamark-broker", UseClusterSetIP: true},
		Export: &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", CreationTimestamp: created,
			Labels: map[string]string{"never": "travels"}, Annotations: map[string]string{"never": "travels"},
		}},
		Service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"never": "travels"}},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
				Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
			},
		},
		Slices: []*discoveryv1.EndpointSlice{{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-abc"},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{"10.1.0.1"}, NodeName: ptr.To("n1"), Zone: ptr.To("z1"), Hostname: ptr.To("web-0"),
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: "web-0"},
				Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}},
			}},
		}},
		RegionOf: func(node string) string { return map[string]string{"n1": "r1", "n2": "r1", "n3": "r2"}[node] },
		Addressing: Addressing{
			Accepts: func(addr netip.Addr) bool {
				return netip.MustParsePrefix("243.0.0.0/8").Contains(addr) || netip.MustParsePrefix("fd00:243::/64").Contains(addr)
			},
			Offer: func(family corev1.IPFamily, wanted netip.Addr) (netip.Addr, error) {
				if wanted.IsValid() {
					return wanted, nil
				}
				return netip.MustParseAddr(map[corev1.IPFamily]string{"IPv4": "243.0.0.1", "IPv6": "fd00:243::1"}[family]), nil
			},
		},
	}
	for _, c := range change {
		c(&in)
	}
	return in
}

func TestValidity(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Input)
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"ClusterIP": {func(*Input) {}, metav1.ConditionTrue, "Valid", "can be exported"},
		"no Service": {
			func(in *Input) { in.Service = nil }, metav1.ConditionFalse, "NoService",
			"there is no Service web in namespace shop: create it",
		},
		"ExternalName": {
			func(in *Input) { in.Service.Spec.Type = corev1.ServiceTypeExternalName }, metav1.ConditionFalse, "InvalidServiceType",
			"ExternalName cannot be exported",
		},
		"NodePort": {func(in *Input) { in.Service.Spec.Type = corev1.ServiceTypeNodePort }, metav1.ConditionTrue, "Valid", ""},
		"LoadBalancer": {
			func(in *Input) { in.Service.Spec.Type = corev1.ServiceTypeLoadBalancer }, metav1.ConditionTrue, "Valid", "",
		},
		"excluded namespace": {
			func(in *Input) { in.AllowedNamespaces = []string{"other"} }, metav1.ConditionFalse, "NamespaceNotAllowed",
			"cluster east may not export from namespace shop",
		},
		"system namespace": {
			func(in *Input) { in.Export.Namespace = "kube-system" }, metav1.ConditionFalse, "NamespaceNotAllowed", "kube-system",
		},
		"allowed system namespace": {
			func(in *Input) {
				in.Export.Namespace = "kube-system"
				in.AllowedNamespaces = []string{"kube-system"}
			}, metav1.ConditionTrue, "Valid", "",
		},
		"Seamark's own namespace": {
			func(in *Input) { in.Export.Namespace = "seamark-system" }, metav1.ConditionFalse, "NamespaceNotAllowed", "",
		},
		"allowed namespace": {func(in *Input) { in.AllowedNamespaces = []string{"shop"} }, metav1.ConditionTrue, "Valid", ""},
		"a preference that means nothing": {
			func(in *Input) { in.Export.Annotations["seamark.dev/prefer"] = strings.Repeat("é", 40) }, metav1.ConditionTrue, "Valid",
			"the Service can be exported; its annotation seamark.dev/prefer has no effect: the value must be region or cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(exported(test.change))
			if plan.Valid.Status != test.status || plan.Valid.Reason != test.reason || !strings.Contains(plan.Valid.Message, test.says) {
				t.Errorf("valid: %+v", plan.Valid)
			}
			if published := plan.Record != nil; published != (test.status == metav1.ConditionTrue) {
				t.Errorf("published: %v", published)
			}
			if test.status != metav1.ConditionTrue && len(plan.Slices) > 0 {
				t.Error("slices of an invalid export leave the cluster")
			}
		})
	}
}

func TestRecordAndSlices(t *testing.T) {
	plan := Decide(exported(func(in *Input) {
		in.Service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		in.Service.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](60)}}
		in.Service.Spec.TrafficDistribution = ptr.To("SomethingNewer")
		in.Service.Spec.Ports[0].AppProtocol = ptr.To("kubernetes.io/h2c")
		in.Export.Spec.ExportedLabels = map[string]string{"team": "shop"}
		in.Export.Annotations[v1alpha1.AnnotationPrefer] = "region"
	}))
	want := v1alpha1.ExportRecordSpec{
		ServiceName: "web", ServiceNamespace: "shop", ClusterID: "east", ExportedAt: created, Type: mcsv1beta1.ClusterSetIP,
		Ports: []v1alpha1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, AppProtocol: ptr.To("kubernetes.io/h2c")},
		},
		IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol},
		SessionAffinity:       corev1.ServiceAffinityClientIP,
		SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](60)}},
		TrafficDistribution:   ptr.To("SomethingNewer"), ExportedLabels: map[string]string{"team": "shop"},
		UseClusterSetIP: true, RequestedClusterSetIP: true, Prefer: "region",
		ClusterSetIPs: []string{"243.0.0.1"}, MergeVersion: merge.Version,
	}
	if diff := cmp.Diff(want, plan.Record.Spec); diff != "" {
		t.Error(diff)
	}
	endpoint := plan.Slices[0].Endpoints[0]
	if endpoint.TargetRef != nil || endpoint.Hints != nil || *endpoint.Zone != "z1" ||
		*endpoint.Hostname != "web-0" || *endpoint.NodeName != "n1" {
		t.Errorf("endpoint: %+v", endpoint)
	}
	if plan.Slices[0].Annotations[v1alpha1.AnnotationRegion] != "r1" {
		t.Errorf("annotations: %v", plan.Slices[0].Annotations)
	}
}

func TestClusterSetIPAnnotation(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		byDefault   bool
		want        bool
	}{
		"default on":   {nil, true, true},
		"default off":  {nil, false, false},
		"requested":    {map[string]string{v1alpha1.AnnotationUseClusterSetIP: "true"}, false, true},
		"refused":      {map[string]string{v1alpha1.AnnotationUseClusterSetIP: "false"}, true, false},
		"Lighthouse's": {map[string]string{v1alpha1.AnnotationUseClusterSetIPAlias: "false"}, true, false},
		"Seamark's wins": {
			map[string]string{v1alpha1.AnnotationUseClusterSetIP: "true", v1alpha1.AnnotationUseClusterSetIPAlias: "false"}, false, true,
		},
		"neither true nor false": {map[string]string{v1alpha1.AnnotationUseClusterSetIP: "maybe"}, true, true},
	} {
		plan := Decide(exported(func(in *Input) { in.Export.Annotations = test.annotations; in.UseClusterSetIP = test.byDefault }))
		if plan.Record.Spec.RequestedClusterSetIP != test.want || plan.Record.Spec.UseClusterSetIP != test.want {
			t.Errorf("%s: %+v", name, plan.Record.Spec)
		}
	}
}

// Spec 5: changing the annotation later changes the Conflict condition and nothing else.
func TestChangingTheAnnotationOnlyCausesAConflict(t *testing.T) {
	before := Decide(exported())
	after := Decide(exported(func(in *Input) {
		in.Records = []*v1alpha1.ExportRecord{before.Record}
		in.Export.Annotations = map[string]string{v1alpha1.AnnotationUseClusterSetIP: "false"}
	}))
	if !after.Record.Spec.UseClusterSetIP || after.Record.Spec.RequestedClusterSetIP {
		t.Errorf("record: %+v", after.Record.Spec)
	}
	if after.Conflict.Status != metav1.ConditionTrue || after.Conflict.Reason != "ClusterSetIPConflict" {
		t.Errorf("conflict: %+v", after.Conflict)
	}
	recreated := Decide(exported(func(in *Input) {
		in.Records = []*v1alpha1.ExportRecord{before.Record}
		in.Export.CreationTimestamp = metav1.NewTime(created.Add(time.Hour))
		in.Export.Annotations = map[string]string{v1alpha1.AnnotationUseClusterSetIP: "false"}
	}))
	if recreated.Record.Spec.UseClusterSetIP {
		t.Error("an export that was deleted and created again keeps its former request")
	}
}

func TestClassicMode(t *testing.T) {
	classic := func(in *Input) { in.UseClusterSetIP = false }
	plan := Decide(exported(classic))
	if len(plan.Slices) != 1 || plan.Slices[0].Endpoints[0].Addresses[0] != "10.96.0.7" ||
		!*plan.Slices[0].Endpoints[0].Conditions.Ready || *plan.Slices[0].Ports[0].Port != 80 {
		t.Errorf("slices: %+v", plan.Slices)
	}
	plan = Decide(exported(classic, func(in *Input) { in.Slices[0].Endpoints[0].Conditions.Ready = ptr.To(false) }))
	if *plan.Slices[0].Endpoints[0].Conditions.Ready {
		t.Error("ready without a ready pod")
	}
}

func TestRegions(t *testing.T) {
	on := func(nodes ...string) []discoveryv1.Endpoint {
		var out []discoveryv1.Endpoint
		for _, n := range nodes {
			out = append(out, discoveryv1.Endpoint{NodeName: ptr.To(n)})
		}
		return out
	}
	regionOf := exported().RegionOf
	for name, test := range map[string]struct {
		endpoints []discoveryv1.Endpoint
		want      map[string]string
	}{
		"none known":  {on("elsewhere"), nil},
		"one region":  {on("n1", "n2", "n1"), map[string]string{v1alpha1.AnnotationRegion: "r1"}},
		"two regions": {on("n1", "n2", "n3"), map[string]string{v1alpha1.AnnotationRegion: "r1", v1alpha1.AnnotationNodeRegions: `{"n3":"r2"}`}},
		"no node":     {[]discoveryv1.Endpoint{{}}, nil},
	} {
		if diff := cmp.Diff(test.want, RegionAnnotations(test.endpoints, regionOf)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestReadiness(t *testing.T) {
	valid := Plan{Valid: condition(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, mcsv1beta1.ServiceExportReasonValid, "")}
	resource := schema.GroupResource{Group: "seamark.dev", Resource: "exportrecords"}
	for name, test := range map[string]struct {
		err    error
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"published": {nil, metav1.ConditionTrue, "Exported", "published to the clusterset"},
		"connection refused": {
			&url.Error{Op: "Post", URL: "https://10.0.0.1:6443/", Err: syscall.ECONNREFUSED}, metav1.ConditionFalse,
			"WaitingForBroker", "waiting for the broker: connection refused; the export completes by itself",
		},
		"no token": {
			apierrors.NewUnauthorized("x"), metav1.ConditionFalse, "WaitingForBroker", "does not accept this cluster's credential",
		},
		"overloaded": {
			apierrors.NewTooManyRequests("x", 1), metav1.ConditionFalse, "WaitingForBroker", "it is overloaded or starting",
		},
		"forbidden": {
			apierrors.NewForbidden(resource, "web.shop.east", errors.New("not yours")), metav1.ConditionFalse,
			"RefusedByBroker", "not yours",
		},
		"policy not ready": {
			apierrors.NewForbidden(resource, "web.shop.east", errors.New("failed to configure policy: x")), metav1.ConditionFalse,
			"WaitingForBroker", "it is overloaded or starting",
		},
		"id taken": {
			objects.ErrClusterIDTaken, metav1.ConditionFalse, "ClusterIDTaken",
			"not exported: the cluster id is used by another cluster",
		},
		"not reached": {errNotConnected, metav1.ConditionFalse, "WaitingForBroker", "has not been reached since the agent started"},
		"unknown": {
			errors.New("tcp 127.0.0.1:49152->127.0.0.1:6443: broken pipe"), metav1.ConditionFalse,
			"WaitingForBroker", "cannot be reached",
		},
		"write conflict": {
			apierrors.NewConflict(resource, "web.shop.east", errors.New("changed")), metav1.ConditionFalse, "Pending", "being published",
		},
	} {
		c := readiness(&mcsv1beta1.ServiceExport{}, valid, test.err)
		if c.Status != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.says) {
			t.Errorf("%s: %+v", name, c)
		}
		if strings.Contains(c.Message, "49152") {
			t.Errorf("%s: the message has a port that changes with each retry: %s", name, c.Message)
		}
	}
	short := valid
	short.Claims = Claims{Missing: true, Shortage: errors.New("all 2 addresses are in use")}
	c := readiness(&mcsv1beta1.ServiceExport{}, short, nil)
	if c.Status != metav1.ConditionFalse || c.Reason != "NoClusterSetIPLeft" ||
		c.Message != "published, but without a clusterset IP: all 2 addresses are in use" {
		t.Errorf("no clusterset IP left: %+v", c)
	}
	short.Shortage = nil
	if c := readiness(&mcsv1beta1.ServiceExport{}, short, nil); c.Status != metav1.ConditionFalse || c.Reason != "Pending" ||
		c.Message != "published; waiting for a clusterset IP, which the exporter with precedence allocates" {
		t.Errorf("no clusterset IP yet: %+v", c)
	}
}

// The broker refuses records with a longer preference, and a value that long means nothing.
func TestPreference(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "region": "region", "cluster": "cluster", "of-a-later-version": "of-a-later-version",
		strings.Repeat("x", 63): strings.Repeat("x", 63), strings.Repeat("x", 64): "", strings.Repeat("é", 63): strings.Repeat("é", 63),
	} {
		in := exported(func(in *Input) { in.Export.Annotations[v1alpha1.AnnotationPrefer] = value })
		if got := Decide(in).Record.Spec.Prefer; got != want {
			t.Errorf("%q is published as %q, want %q", value, got, want)
		}
	}
}

// A cluster that lost a type conflict, or has none of the service's families, is not exported: its
// record stays, so that all clusters see the conflict and it can take over; its endpoints do not.
func TestLeftOutIsNotReady(t *testing.T) {
	older := func(change func(*v1alpha1.ExportRecordSpec)) func(*Input) {
		return func(in *Input) {
			r := recordOf(*in)
			r.Spec.ClusterID, r.Spec.ExportedAt = "west", metav1.NewTime(created.Add(-time.Hour))
			change(&r.Spec)
			in.Records = []*v1alpha1.ExportRecord{r}
		}
	}
	for name, test := range map[string]struct {
		older           func(*Input)
		reason, message string
	}{
		"type": {
			older(func(r *v1alpha1.ExportRecordSpec) { r.Type = mcsv1beta1.Headless }), "TypeConflict",
			"not exported: cluster west, whose export is older, has another type; the service is exported when the types agree",
		},
		"family": {
			older(func(r *v1alpha1.ExportRecordSpec) { r.IPFamilies = []corev1.IPFamily{"IPv6"} }), "IPFamilyConflict",
			"not exported: cluster west, whose export is older, has other IP families; the service is exported when it has one of them",
		},
		"no conflict": {
			older(func(r *v1alpha1.ExportRecordSpec) { r.ClusterSetIPs = []string{"243.0.0.9"} }), "Exported",
			"the service is published to the clusterset",
		},
	} {
		plan := Decide(exported(test.older))
		c := readiness(&mcsv1beta1.ServiceExport{}, plan, nil)
		if c.Reason != test.reason || c.Message != test.message || (c.Status == metav1.ConditionTrue) != (c.Reason == "Exported") {
			t.Errorf("%s: %+v", name, c)
		}
		if plan.Record == nil || plan.Valid.Status != metav1.ConditionTrue || (len(plan.Slices) > 0) != (c.Reason == "Exported") {
			t.Errorf("%s: record %v, %d slices, valid %+v", name, plan.Record, len(plan.Slices), plan.Valid)
		}
	}
}

// A dead cluster is demoted, and then an exporter of another type decides. Importers follow that
// when its endpoints are ready, so this cluster still publishes its own.
func TestEndpointsStayWhileImportersMayUseThem(t *testing.T) {
	in := exported(func(in *Input) { in.Service.Spec.ClusterIP = corev1.ClusterIPNone })
	other := func(cluster string, age time.Duration, kind mcsv1beta1.ServiceImportType) *v1alpha1.ExportRecord {
		r := recordOf(in)
		r.Spec.ClusterID, r.Spec.ExportedAt, r.Spec.Type = v1alpha1.ClusterID(cluster), metav1.NewTime(created.Add(-age)), kind
		return r
	}
	in.Undemoted = []*v1alpha1.ExportRecord{other("dead", 2*time.Hour, mcsv1beta1.Headless), other("west", time.Hour, mcsv1beta1.ClusterSetIP)}
	in.Records = merge.Demote(in.Undemoted, map[string]bool{"dead": true})
	if plan := Decide(in); plan.leftOut == nil || len(plan.Slices) != 1 {
		t.Errorf("left out: %v, %d slices", plan.leftOut, len(plan.Slices))
	}
	in.Undemoted = in.Records // the dead cluster returned and gave up its age
	if plan := Decide(in); plan.leftOut == nil || len(plan.Slices) != 0 {
		t.Errorf("after its return left out: %v, %d slices", plan.leftOut, len(plan.Slices))
	}
}
