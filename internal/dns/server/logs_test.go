package server

import (
	"bytes"
	"fmt"
	golog "log"
	"log/slog"
	"strings"
	"testing"

	"github.com/seamark-dev/seamark/internal/daemon/logs"
)

func TestLogWriter(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{
			"[INFO] plugin/clusterset: the connection to the API server is restored",
			`level=INFO msg="the connection to the API server is restored" plugin=clusterset`,
		},
		{
			"[WARNING] plugin/clusterset: not known after 5s: queries fail",
			`level=WARN msg="not known after 5s: queries fail" plugin=clusterset`,
		},
		{
			"[ERROR] plugin/errors: 2 a.example. A: read udp: i/o timeout",
			`level=ERROR msg="2 a.example. A: read udp: i/o timeout" plugin=errors`,
		},
		{
			`[INFO] 10.0.0.1:5 - 7 "A IN web.shop. udp 40" NOERROR qr,aa 90 0.0s`,
			`level=INFO msg="10.0.0.1:5 - 7 \"A IN web.shop. udp 40\" NOERROR qr,aa 90 0.0s"`,
		},
		{
			"SIGTERM: shutting down servers then terminating",
			`level=INFO msg="SIGTERM: shutting down servers then terminating"`,
		},
		{
			"[::1]:53 is taken] really",
			`level=INFO msg="[::1]:53 is taken] really"`,
		},
		{
			"[INFO] ",
			`level=INFO msg=""`,
		},
	} {
		var out bytes.Buffer
		handler := logs.New(&out, slog.LevelInfo)
		handler.SetCluster("east")
		golog.New(newLogWriter(handler), "", 0).Print(c.line)
		if got := out.String(); !strings.HasSuffix(got, " "+c.want+" cluster=east\n") || strings.Count(got, "\n") != 1 {
			t.Errorf("%q became %q, want … %s cluster=east", c.line, got, c.want)
		}
	}
	var out bytes.Buffer
	writer := newLogWriter(logs.New(&out, slog.LevelInfo))
	if _, err := fmt.Fprintln(writer, "[DEBUG] plugin/cache: a detail"); err != nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}
