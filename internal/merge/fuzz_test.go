package merge_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/merge/mergetest"
)

// reader turns the fuzzer's bytes into values; past the end all values are zero.
type reader []byte

func (r *reader) byte() byte {
	if len(*r) == 0 {
		return 0
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return b
}

func (r *reader) count(limit int) int { return int(r.byte()) % (limit + 1) }

func (r *reader) bool() bool { return r.byte()&1 == 1 }

// text returns one of the words, or raw bytes that an API server could have stored.
func (r *reader) text(words ...string) string {
	n := int(r.byte())
	if n < 0xc0 && len(words) > 0 {
		return words[n%len(words)]
	}
	raw := (*r)[:min(len(*r), n&0x3f)]
	*r = (*r)[len(raw):]
	return strings.ToValidUTF8(string(raw), "?")
}

func (r *reader) pairs() map[string]string {
	n := r.count(3)
	m := make(map[string]string, n)
	for range n {
		m[r.text("k", "l", "kubernetes.io/x", "seamark.dev/y", "app.kubernetes.io/name")] = r.text("v", "w", "no value")
	}
	return m
}

func (r *reader) record() v1alpha1.ExportRecordSpec {
	seconds := int32(r.byte())<<9 - 1
	policy := corev1.ServiceInternalTrafficPolicy(r.text("Cluster", "Local", ""))
	distribution := r.text("", "PreferClose")
	s := v1alpha1.ExportRecordSpec{
		ClusterID:             v1alpha1.ClusterID(r.text("a", "b", "c", "d", "e")),
		ExportedAt:            metav1.NewTime(time.Unix(int64(r.byte()), int64(r.byte()))),
		Type:                  mcsv1beta1.ServiceImportType(r.text("ClusterSetIP", "ClusterSetIP", "Headless")),
		SessionAffinity:       corev1.ServiceAffinity(r.text("None", "ClientIP", "")),
		SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}},
		InternalTrafficPolicy: &policy,
		TrafficDistribution:   &distribution,
		ExportedLabels:        r.pairs(),
		ExportedAnnotations:   r.pairs(),
		UseClusterSetIP:       r.bool(),
		RequestedClusterSetIP: r.bool(),
		Prefer:                r.text("", "region"),
	}
	for range r.count(4) {
		s.IPFamilies = append(s.IPFamilies, corev1.IPFamily(r.text("IPv4", "IPv6")))
	}
	for range r.count(20) {
		app := r.text("", "http")
		s.Ports = append(s.Ports, v1alpha1.ServicePort{
			Name:        r.text("http", "https", "dns", ""),
			Protocol:    corev1.Protocol(r.text("TCP", "UDP", "")),
			Port:        int32(r.byte())<<9 | int32(r.byte()),
			AppProtocol: &app,
		})
	}
	return s
}

// FuzzMerge merges records with arbitrary values: the merge must not panic, must not depend on
// their order, and the result must hold the invariants.
func FuzzMerge(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("seamark"))
	f.Add(slices.Repeat([]byte{0, 1, 2, 3, 80}, 60))
	f.Add(slices.Repeat([]byte{0xff, 'x', '/', '-', 0xc1, 0x80}, 80))
	for seed := range byte(12) {
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(i)*seed + byte(i/7) ^ seed
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := reader(data)
		in := make(records, r.count(40))
		for i := range in {
			in[i] = r.record()
		}
		got := mergetest.Merge(in)
		checkInvariants(t, in, got)
		slices.Reverse(in)
		if diff := cmp.Diff(got, mergetest.Merge(in), exported); diff != "" {
			t.Errorf("depends on the order of records:\n%s", diff)
		}
	})
}
