// Package upgrade_test upgrades clustersets from the previous version to this one.
package upgrade_test

import (
	"testing"

	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
