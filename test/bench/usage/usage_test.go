package usage

import (
	"os"
	"testing"
)

func TestOwnUsageIsRead(t *testing.T) {
	u := Of(os.Getpid())
	if u.Resident == 0 || u.Peak < u.Resident || u.Anonymous == 0 {
		t.Errorf("%+v", u)
	}
	if got := Of(-1); got != (Usage{}) {
		t.Errorf("a process that does not exist uses %+v", got)
	}
}

func TestStolenTimeDoesNotDecrease(t *testing.T) {
	before := Stolen()
	if after := Stolen(); before < 0 || after < before {
		t.Errorf("first %s, then %s", before, after)
	}
}
