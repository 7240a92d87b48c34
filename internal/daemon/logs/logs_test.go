package logs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// Each line has the cluster's id once it is known, also those of loggers that were created before.
func TestCluster(t *testing.T) {
	var out bytes.Buffer
	lines := New(&out, slog.LevelInfo)
	early := logr.FromSlogHandler(lines).WithName("client").WithValues("node", "n1")
	early.Info("before")
	lines.SetCluster("east")
	early.Info("known", "service", "shop/web")
	lines.SetCluster("west")
	early.Info("renamed")
	early.V(4).Info("a detail")
	lines.SetCluster("")
	early.Info("left")
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{
		"msg=before node=n1 logger=client",
		"msg=known node=n1 logger=client service=shop/web cluster=east",
		"msg=renamed node=n1 logger=client cluster=west",
		"msg=left node=n1 logger=client",
	} {
		if i >= len(got) || !strings.HasSuffix(got[i], " "+want) {
			t.Errorf("line %d of %q, want … %s", i, got, want)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d lines", len(got))
	}
}
