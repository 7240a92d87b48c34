package browser_test

import (
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // of libraries
	harness.Main(m)
}
