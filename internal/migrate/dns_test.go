package migrate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDNSHasLoaded(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }
	for _, c := range []struct {
		name    string
		written []metav1.ManagedFieldsEntry
		began   time.Duration // how long ago the command did
		want    bool
	}{
		{"changed a moment ago", []metav1.ManagedFieldsEntry{{Time: ago(time.Hour)}, {Time: ago(time.Second)}, {}}, 0, false},
		{"changed long ago", []metav1.ManagedFieldsEntry{{Time: ago(time.Hour)}, {Time: ago(loadsDNS)}}, 0, true},
		{"not known when", nil, 0, true},
		{"changed in the future, by another clock", []metav1.ManagedFieldsEntry{{Time: ago(-time.Hour)}}, time.Minute, false},
		{"and the command waited", []metav1.ManagedFieldsEntry{{Time: ago(-time.Hour)}}, loadsDNS, true},
	} {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: c.written}}
		if got := hasLoaded(lastChange(config), now.Add(-c.began), now); got != c.want {
			t.Errorf("%s: loaded %t, want %t", c.name, got, c.want)
		}
	}
}
