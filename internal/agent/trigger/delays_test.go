package trigger

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Delays
		web, db := types.NamespacedName{Name: "web"}, types.NamespacedName{Name: "db"}
		want := func(service types.NamespacedName, delay, left time.Duration) {
			t.Helper()
			if got := d.Remaining(service, delay); got != left {
				t.Errorf("%s: %v of %v remain, want %v", service.Name, got, delay, left)
			}
		}
		want(web, 3*time.Second, 3*time.Second)
		time.Sleep(time.Second)
		want(web, 3*time.Second, 2*time.Second)
		want(db, 3*time.Second, 3*time.Second)
		time.Sleep(5 * time.Second)
		want(web, 3*time.Second, 0) // and stays over
		want(web, 3*time.Second, 0)
		want(web, 0, 0)
		want(web, 3*time.Second, 3*time.Second)
	})
}
