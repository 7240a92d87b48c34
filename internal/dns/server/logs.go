package server

import (
	"bytes"
	"context"
	"io"
	golog "log"
	"log/slog"
	"os"
	"time"

	"github.com/coredns/caddy"
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/seamark-dev/seamark/internal/daemon/logs"
	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/dns"
)

// useSeamarkLogs makes this process log like Seamark's other daemons, with the cluster on each
// line. CoreDNS sets its own log output when it starts and loads the Corefile after that, so the
// output is replaced in a loader. A changed Corefile is loaded again, and the output stays. JSON
// logs stay if they were requested.
func useSeamarkLogs() {
	started := false
	caddy.RegisterCaddyfileLoader("logs", caddy.LoaderFunc(func(string) (caddy.Input, error) {
		if started || clog.IsJSON() {
			return nil, nil
		}
		started = true
		lines := logs.New(os.Stdout, slog.LevelInfo)
		dns.OnClusterID(lines.SetCluster)
		klog.SetLogger(logr.FromSlogHandler(lines).WithName("client"))
		golog.SetFlags(0)
		golog.SetOutput(newLogWriter(lines))
		slog.New(lines).Info("starting", "version", version.String())
		return nil, nil // the next loader reads the Corefile
	}))
}

// levels are the prefixes by which CoreDNS marks the level of a line.
var levels = map[string]slog.Level{
	"[DEBUG]": slog.LevelDebug, "[INFO]": slog.LevelInfo, "[WARNING]": slog.LevelWarn, "[ERROR]": slog.LevelError, "[FATAL]": slog.LevelError,
}

// newLogWriter returns a writer that parses CoreDNS's lines, `[LEVEL] plugin/NAME: text`, into
// records.
func newLogWriter(to slog.Handler) io.Writer {
	return lineWriter(func(line []byte) {
		level := slog.LevelInfo
		if mark, rest, ok := bytes.Cut(line, []byte(" ")); ok {
			if known, ok := levels[string(mark)]; ok {
				level, line = known, rest
			}
		}
		var plugin []byte
		if name, rest, ok := bytes.Cut(line, []byte(": ")); ok {
			if name, ok = bytes.CutPrefix(name, []byte("plugin/")); ok {
				plugin, line = name, rest
			}
		}
		record := slog.NewRecord(time.Now(), level, string(line), 0)
		if plugin != nil {
			record.AddAttrs(slog.String("plugin", string(plugin)))
		}
		if to.Enabled(context.Background(), level) {
			_ = to.Handle(context.Background(), record) // there is no other place to log the error
		}
	})
}

// lineWriter is called with each line, without the line end.
type lineWriter func([]byte)

func (w lineWriter) Write(line []byte) (int, error) {
	w(bytes.TrimRight(line, "\n"))
	return len(line), nil
}
