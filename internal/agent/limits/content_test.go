package limits

import (
	"fmt"
	"testing"
	"time"

	"github.com/seamark-dev/seamark/internal/objects"
)

func TestContentIsBounded(t *testing.T) {
	limits := objects.Limits{Services: 2, Endpoints: 10, Bytes: 100}
	limitsOf := func(string) objects.Limits { return limits }
	c, now := NewContent(), time.Now()
	add := func(object string, cost Cost) bool { return c.Keep(object, "evil", cost, limits) }
	for i := range 4 {
		if !add(fmt.Sprint("r", i), Cost{Services: 1}) {
			t.Errorf("record %d is dropped", i)
		}
	}
	for name, cost := range map[string]Cost{"r5": {Services: 1}, "slice": {Endpoints: 21}, "long": {Bytes: 201}} {
		if add(name, cost) {
			t.Errorf("%s is held", name)
		}
	}
	if !add("r0", Cost{Services: 1}) || !c.Keep("r", "honest", Cost{Services: 1}, limits) {
		t.Error("a change, or an object of another member, is dropped")
	}
	if c.RelistDue(limitsOf, now) {
		t.Error("a relist is due though the content does not fit")
	}
	for _, name := range []string{"slice", "long", "r1"} {
		c.Forget(name)
	}
	if !c.RelistDue(limitsOf, now) || c.RelistDue(limitsOf, now.Add(time.Second)) {
		t.Error("a relist must be due once when the content fits")
	}
	if !add("r5", Cost{Services: 1}) || c.RelistDue(limitsOf, now.Add(time.Hour)) {
		t.Error("after the relist everything is held")
	}
	for _, name := range []string{"r0", "r2", "r3", "r5", "r", "unknown"} {
		c.Forget(name)
	}
	if len(c.members)+len(c.objects) > 0 {
		t.Errorf("left: %v %v", c.members, c.objects)
	}
}
