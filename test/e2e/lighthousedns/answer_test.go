package main

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// sliceOf returns a slice of a cluster with an endpoint for each address, named as pods are.
func sliceOf(cluster string, isReady bool, addresses ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{mcsv1alpha1.LabelSourceCluster: cluster}}}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(isReady)},
			TargetRef: &corev1.ObjectReference{Name: "pod-" + a},
		})
	}
	return s
}

func TestParse(t *testing.T) {
	service := types.NamespacedName{Namespace: "shop", Name: "web"}
	for name, want := range map[string]*queried{
		"web.shop.svc.clusterset.local.":           {NamespacedName: service},
		"Web.Shop.svc.clusterset.local.":           {NamespacedName: service},
		"east.web.shop.svc.clusterset.local.":      {NamespacedName: service, cluster: "east"},
		"db-0.east.web.shop.svc.clusterset.local.": {NamespacedName: service, cluster: "east", host: "db-0"},
		"clusterset.local.":                        nil,
		"shop.svc.clusterset.local.":               nil,
		"a.b.c.web.shop.svc.clusterset.local.":     nil,
		"web.shop.svc.cluster.local.":              nil,
	} {
		got, ok := parse(name)
		if ok != (want != nil) || ok && got != *want {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

// A service with a ClusterIP has the address of one cluster: its own, if that is ready.
func TestOneCluster(t *testing.T) {
	both := []discoveryv1.EndpointSlice{sliceOf("east", true, "10.1.0.1"), sliceOf("west", true, "10.2.0.1")}
	for _, test := range []struct {
		name, own string
		list      []discoveryv1.EndpointSlice
		query     queried
		want      []string // in the order of queries
	}{
		{"its own", "west", both, queried{}, []string{"10.2.0.1", "10.2.0.1"}},
		{"in turn", "north", both, queried{}, []string{"10.2.0.1", "10.1.0.1", "10.2.0.1"}},
		{"not ready", "east", []discoveryv1.EndpointSlice{sliceOf("east", false, "10.1.0.1"), both[1]}, queried{}, []string{"10.2.0.1", "10.2.0.1"}},
		{"of a cluster", "east", both, queried{cluster: "west"}, []string{"10.2.0.1"}},
		{"none", "east", nil, queried{}, []string{""}},
	} {
		h := &handler{cluster: test.own}
		for _, want := range test.want {
			got := h.oneCluster(test.list, test.query)
			if want == "" && len(got) == 0 {
				continue
			}
			if !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %v, want %s", test.name, got, want)
			}
		}
	}
}

// A headless service has the endpoints of all clusters, or those that the name asks for.
func TestHeadless(t *testing.T) {
	list := []discoveryv1.EndpointSlice{
		sliceOf("east", true, "10.1.0.1", "10.1.0.2"), sliceOf("west", true, "10.2.0.1"), sliceOf("west", false, "10.2.0.2"),
	}
	for _, test := range []struct {
		query queried
		want  []string
		found bool
	}{
		{queried{}, []string{"10.1.0.1", "10.1.0.2", "10.2.0.1"}, true},
		{queried{cluster: "west"}, []string{"10.2.0.1"}, true},
		{queried{cluster: "north"}, nil, true},
		{queried{cluster: "east", host: "pod-10.1.0.2"}, []string{"10.1.0.2"}, true},
		{queried{cluster: "east", host: "other"}, nil, false},
	} {
		if got, found := headless(list, test.query); !slices.Equal(got, test.want) || found != test.found {
			t.Errorf("%+v: %v, %v", test.query, got, found)
		}
	}
}
