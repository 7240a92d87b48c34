package merge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/seamark-dev/seamark/internal/merge"
	"github.com/seamark-dev/seamark/internal/merge/mergetest"
)

// Rows "session affinity (+config), internal traffic policy, traffic distribution": the oldest's.
func TestPolicies(t *testing.T) {
	type affinity = corev1.ServiceAffinity
	run(t, []mergeCase{
		{name: "no affinity is None", in: records{record("a", 1, withAffinity("")), record("b", 2, withAffinity("None"))},
			check: func(r merge.Result) (any, any) {
				return []any{r.Spec.SessionAffinity, r.Spec.SessionAffinityConfig},
					[]any{affinity("None"), (*corev1.SessionAffinityConfig)(nil)}
			}},
		{name: "affinity three ways", in: records{record("a", 1, sticky(60)), record("b", 2), record("c", 3, withAffinity("Unknown")),
			record("d", 4, sticky(60))},
			conflicts: []string{"SessionAffinityConflict: b, c"},
			check:     func(r merge.Result) (any, any) { return r.Spec.SessionAffinity, affinity("ClientIP") }},
		{name: "an unknown affinity passes, without a config", in: records{record("a", 1, sticky(9), withAffinity("Unknown"))},
			check: func(r merge.Result) (any, any) {
				return []any{r.Spec.SessionAffinity, r.Spec.SessionAffinityConfig == nil}, []any{affinity("Unknown"), true}
			}},
		{name: "timeout, only of those with the same affinity", in: records{record("a", 1, sticky(60)), record("b", 2, sticky(61)),
			record("c", 3, sticky(62), withAffinity("None")), record("d", 4, sticky(63))},
			conflicts: []string{"SessionAffinityConflict: c", "SessionAffinityConfigConflict: b, d"},
			check:     timeoutIs(60)},
		{name: "the timeout counts only with affinity", in: records{record("a", 1, sticky(60), withAffinity("None")),
			record("b", 2, sticky(61), withAffinity("None"))},
			check: func(r merge.Result) (any, any) { return r.Spec.SessionAffinityConfig == nil, true }},
		{name: "no timeout is three hours", in: records{record("a", 1, withAffinity("ClientIP")), record("b", 2, sticky(10800))},
			check: timeoutIs(10800)},
		{name: "a timeout no Service can have is none", in: records{record("a", 1, sticky(86401)), record("b", 2, sticky(-1))},
			check: timeoutIs(10800)},
		{name: "no internal policy is Cluster", in: records{record("a", 1), record("b", 2, withPolicy("Cluster")),
			record("c", 3, withPolicy(""))},
			check: func(r merge.Result) (any, any) { return string(*r.Spec.InternalTrafficPolicy), "Cluster" }},
		{name: "internal policy three ways", in: records{record("a", 1, withPolicy("Local")), record("b", 2),
			record("c", 3, withPolicy("Unknown"))},
			conflicts: []string{"InternalTrafficPolicyConflict: b, c"},
			check:     func(r merge.Result) (any, any) { return string(*r.Spec.InternalTrafficPolicy), "Local" }},
		{name: "no distribution is the empty one", in: records{record("a", 1, withDistribution("")), record("b", 2)},
			check: func(r merge.Result) (any, any) { return r.Spec.TrafficDistribution == nil, true }},
		{name: "distribution three ways", in: records{record("a", 1, withDistribution("PreferClose")), record("b", 2),
			record("c", 3, withDistribution("PreferSameNode"))},
			conflicts: []string{"TrafficDistributionConflict: b, c"},
			check:     func(r merge.Result) (any, any) { return *r.Spec.TrafficDistribution, "PreferClose" }},
		{name: "headless services are merged too", in: records{record("a", 1, headless(), sticky(60)), record("b", 2, headless())},
			conflicts: []string{"SessionAffinityConflict: b"}, check: timeoutIs(60)},
		{name: "a preference is the oldest's and no conflict", in: records{record("a", 2, withPrefer("cluster")),
			record("b", 1, withPrefer("region"))},
			check: func(r merge.Result) (any, any) { return r.Prefer, "region" }},
	})
}

func timeoutIs(want int32) func(merge.Result) (any, any) {
	return func(r merge.Result) (any, any) {
		c := r.Spec.SessionAffinityConfig
		if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			return nil, want
		}
		return *c.ClientIP.TimeoutSeconds, want
	}
}

// Row "exported labels, exported annotations": the oldest's, whole map.
func TestLabelsAndAnnotations(t *testing.T) {
	type pairs = map[string]string
	run(t, []mergeCase{
		{name: "none is the empty map", in: records{record("a", 1, withLabels(), withAnnotations()), record("b", 2)},
			check: func(r merge.Result) (any, any) { return r.Labels == nil && r.Annotations == nil, true }},
		{name: "never a mixture", in: records{record("a", 1, withLabels("k", "1"), withAnnotations("k", "1")),
			record("b", 2, withLabels("l", "2"), withAnnotations("l", "2"))},
			conflicts: []string{"LabelsConflict: b", "AnnotationsConflict: b"},
			check: func(r merge.Result) (any, any) {
				return []pairs{r.Labels, r.Annotations}, []pairs{{"k": "1"}, {"k": "1"}}
			}},
		{name: "three ways", in: records{record("a", 1), record("b", 2, withLabels("k", "1")), record("c", 3, withLabels("k", "2"))},
			conflicts: []string{"LabelsConflict: b, c"},
			check:     func(r merge.Result) (any, any) { return r.Labels == nil, true }},
		{name: "what is dropped is not compared", in: records{record("a", 1, withLabels("k", "1", "kubernetes.io/x", "1")),
			record("b", 2, withLabels("k", "1", "bad key", "1")), record("c", 3, withLabels("k", "1"))},
			check: func(r merge.Result) (any, any) { return r.Labels, pairs{"k": "1"} }},
		{name: "labels an export may not set", in: records{record("a", 1, withLabels(
			"multicluster.kubernetes.io/service-name", "x", "seamark.dev/service-namespace", "x", "x.seamark.dev/y", "x",
			"endpointslice.kubernetes.io/managed-by", "x", "kubernetes.io/service-name", "x", "app.kubernetes.io/managed-by", "x",
			"service.kubernetes.io/service-proxy-name", "x", "gateway.networking.k8s.io/x", "x", "multicluster.x-k8s.io/y", "x",
			"app.kubernetes.io/name", "shop", "notkubernetes.io/x", "y", "tier", "web"))},
			check: func(r merge.Result) (any, any) {
				return r.Labels, pairs{"app.kubernetes.io/name": "shop", "notkubernetes.io/x": "y", "tier": "web"}
			}},
		{name: "labels the API server refuses", in: records{record("a", 1, withLabels(
			"-x", "v", "x", "not a value", "y", strings.Repeat("v", 64), "", "v", "a/b/c", "v", "good", ""))},
			check: func(r merge.Result) (any, any) { return r.Labels, pairs{"good": ""} }},
		{name: "annotations an export may not set", in: records{record("a", 1, withAnnotations(
			"seamark.dev/merge-version", "99", "Seamark.dev/merge-version", "99", "multicluster.kubernetes.io/x", "y",
			"kubectl.kubernetes.io/last-applied-configuration", "{}", "a b", "x",
			"service.kubernetes.io/topology-mode", "Auto", "Note.Me/this", "any text, any length"))},
			check: func(r merge.Result) (any, any) {
				return r.Annotations,
					pairs{"service.kubernetes.io/topology-mode": "Auto", "Note.Me/this": "any text, any length"}
			}},
	})
}

// The API server refuses more than 256 KiB of annotations. Every member keeps the same ones.
func TestAnnotationsAreBounded(t *testing.T) {
	var pairs []string
	for i := range 40 {
		pairs = append(pairs, fmt.Sprintf("k%02d", i), strings.Repeat("x", 10<<10))
	}
	r := mergetest.Merge(records{record("a", 1, withAnnotations(pairs...))})
	size := 0
	for k, v := range r.Annotations {
		size += len(k) + len(v)
	}
	if size > 256<<10 || size < 200<<10 || r.Annotations["k00"] == "" {
		t.Errorf("%d annotations of %d bytes are left", len(r.Annotations), size)
	}
	second := mergetest.Merge(records{record("a", 1, withAnnotations(pairs...))})
	if diff := cmp.Diff(r, second, exported); diff != "" {
		t.Error("the same annotations were cut in two ways")
	}
}

// Row "clusterset IP on/off": the oldest's request at its creation is compared with each request
// now.
func TestClusterSetIP(t *testing.T) {
	mode := func(want merge.Mode) func(merge.Result) (any, any) {
		return func(r merge.Result) (any, any) { return r.Mode, want }
	}
	run(t, []mergeCase{
		{name: "all on", in: records{record("a", 1), record("b", 2)}, check: mode(merge.ModeClusterSetIP)},
		{name: "all off", in: records{record("a", 1, withClusterSetIP(false, false)), record("b", 2, withClusterSetIP(false, false))},
			check: mode(merge.ModeClassic)},
		{name: "three ways", in: records{record("a", 1, withClusterSetIP(false, false)), record("b", 2),
			record("c", 3, withClusterSetIP(false, false)), record("d", 4)},
			conflicts: []string{"ClusterSetIPConflict: b, d"}, check: mode(merge.ModeClassic)},
		{name: "the oldest changed its annotation", in: records{record("a", 1, withClusterSetIP(true, false)), record("b", 2)},
			conflicts: []string{"ClusterSetIPConflict: a"}, check: mode(merge.ModeClusterSetIP)},
		{name: "a newer one changed its annotation to agree", in: records{record("a", 1), record("b", 2, withClusterSetIP(false, true))},
			check: mode(merge.ModeClusterSetIP)},
		{name: "a headless service needs no clusterset IP", in: records{record("a", 1, headless()),
			record("b", 2, headless(), withClusterSetIP(false, false))}, check: mode(merge.ModeHeadless)},
	})
}
