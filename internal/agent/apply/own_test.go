package apply

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

func TestEventsOfOwnWrites(t *testing.T) {
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	meta := func(uid, version string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID(uid), ResourceVersion: version}
	}
	service := func(uid, version string) client.Object { return &corev1.Service{ObjectMeta: meta(uid, version)} }
	type event struct {
		obj     client.Object
		deleted bool
		own     bool
	}
	for name, test := range map[string]struct {
		written, deleted []client.Object
		awaited          bool
		events           []event
	}{
		"nothing was written": {events: []event{{service("a", "1"), false, false}}},
		"written": {
			written: []client.Object{service("a", "5")},
			events:  []event{{service("a", "5"), false, true}, {service("a", "5"), false, false}},
		},
		"changed by another client before": {
			written: []client.Object{service("a", "5")}, events: []event{{service("a", "4"), false, false}, {service("a", "5"), false, true}},
		},
		"changed by another client afterwards": {
			written: []client.Object{service("a", "5")}, events: []event{{service("a", "5"), false, true}, {service("a", "6"), false, false}},
		},
		"only a later version is shown":   {written: []client.Object{service("a", "5")}, events: []event{{service("a", "6"), false, false}}},
		"written, and deleted by another": {written: []client.Object{service("a", "5")}, events: []event{{service("a", "5"), true, false}}},
		"of another kind": {
			written: []client.Object{service("a", "5")},
			events:  []event{{&mcsv1beta1.ServiceImport{ObjectMeta: meta("a", "5")}, false, false}},
		},
		"deleted":                             {deleted: []client.Object{service("a", "5")}, events: []event{{service("a", "5"), true, true}}},
		"deleted, and an earlier change late": {deleted: []client.Object{service("a", "5")}, events: []event{{service("a", "5"), false, false}}},
		"replaced": {
			written: []client.Object{service("b", "6")}, deleted: []client.Object{service("a", "5")},
			events: []event{{service("a", "5"), true, true}, {service("b", "6"), false, true}},
		},
		"a reconcile waits for the last": {
			written: []client.Object{service("a", "5"), &mcsv1beta1.ServiceImport{ObjectMeta: meta("c", "6")}}, awaited: true,
			events: []event{{service("a", "5"), false, true}, {&mcsv1beta1.ServiceImport{ObjectMeta: meta("c", "6")}, false, false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWriter(nil)
			for _, obj := range test.written {
				w.recordWrite(key, "update", obj)
			}
			for _, obj := range test.deleted {
				w.addPending(key, pendingWriteOf(obj, 0))
			}
			if test.awaited {
				w.pending[key].awaited = true
			}
			for i, e := range test.events {
				if got := w.Own(key, e.obj, e.deleted); got != e.own {
					t.Errorf("event %d: own is %t, want %t", i, got, e.own)
				}
			}
		})
	}
}
