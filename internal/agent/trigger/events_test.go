package trigger

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func serviceAt(name, version string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version}}
}

func TestEventsEnqueueServicesAndReportLostObjects(t *testing.T) {
	for name, test := range map[string]struct {
		event    func(toolscache.ResourceEventHandler)
		enqueued []string
		hooks    []string
	}{
		"added":    {func(h toolscache.ResourceEventHandler) { h.OnAdd(serviceAt("web", "1"), false) }, []string{"web"}, []string{"added web"}},
		"updated":  {func(h toolscache.ResourceEventHandler) { h.OnUpdate(serviceAt("web", "1"), serviceAt("web", "2")) }, []string{"web"}, nil},
		"resynced": {func(h toolscache.ResourceEventHandler) { h.OnUpdate(serviceAt("web", "1"), serviceAt("web", "1")) }, nil, nil},
		"restored": {
			func(h toolscache.ResourceEventHandler) { h.OnUpdate(serviceAt("web", "2"), serviceAt("web", "1")) },
			[]string{"web"}, []string{"lost web"},
		},
		"now of another service": {
			func(h toolscache.ResourceEventHandler) { h.OnUpdate(serviceAt("web", "1"), serviceAt("db", "2")) },
			[]string{"db", "web"}, nil,
		},
		"deleted": {func(h toolscache.ResourceEventHandler) { h.OnDelete(serviceAt("web", "1")) }, []string{"web"}, []string{"deleted web"}},
		"deletion missed": {
			func(h toolscache.ResourceEventHandler) {
				h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "shop/web", Obj: serviceAt("web", "1")})
			},
			[]string{"web"}, []string{"lost web"},
		},
		"shows an own write":    {func(h toolscache.ResourceEventHandler) { h.OnUpdate(serviceAt("web", "1"), serviceAt("web", "own")) }, nil, nil},
		"shows an own creation": {func(h toolscache.ResourceEventHandler) { h.OnAdd(serviceAt("web", "own"), false) }, nil, []string{"added web"}},
		"shows an own deletion": {func(h toolscache.ResourceEventHandler) { h.OnDelete(serviceAt("web", "own")) }, nil, []string{"deleted web"}},
		"of another type": {func(h toolscache.ResourceEventHandler) {
			h.OnAdd(&corev1.Pod{}, false)
			h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "shop/web"})
		}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer queue.ShutDown()
			var hooks []string
			test.event(enqueueing(queue, Name[*corev1.Service], Hooks[*corev1.Service]{
				Own:  func(_ types.NamespacedName, s *corev1.Service, _ bool) bool { return s.ResourceVersion == "own" },
				Lost: func(s *corev1.Service) { hooks = append(hooks, "lost "+s.Name) },
				Changed: func(s *corev1.Service, deleted bool) {
					hooks = append(hooks, map[bool]string{true: "deleted ", false: "added "}[deleted]+s.Name)
				},
			}))
			var enqueued []string
			for queue.Len() > 0 {
				request, _ := queue.Get()
				enqueued = append(enqueued, request.Name)
			}
			if !slices.Equal(enqueued, test.enqueued) || !slices.Equal(hooks, test.hooks) {
				t.Errorf("enqueued %v and called hooks %v, want %v and %v", enqueued, hooks, test.enqueued, test.hooks)
			}
		})
	}
}
