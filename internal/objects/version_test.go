package objects

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOlderVersion(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"9", "10", true}, {"10", "9", false}, {"7", "7", false},
		{"", "7", false}, {"7", "", false}, {"abc", "7", false}, {"7", "abc", false},
	} {
		a, b := &metav1.ObjectMeta{ResourceVersion: test.a}, &metav1.ObjectMeta{ResourceVersion: test.b}
		if got := OlderVersion(a, b); got != test.want {
			t.Errorf("OlderVersion(%q, %q) = %v, want %v", test.a, test.b, got, test.want)
		}
	}
	if got := ResourceVersion(&metav1.ObjectMeta{ResourceVersion: "123"}); got != 123 {
		t.Errorf("ResourceVersion = %d, want 123", got)
	}
}
