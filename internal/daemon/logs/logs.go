// Package logs writes the structured logs of Seamark's processes.
package logs

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
)

// Logs writes a process's structured log. Once the cluster's id is known, each line has it, because
// logs of several clusters are read together.
type Logs struct {
	slog.Handler
	cluster *atomic.Pointer[slog.Attr]
}

// New returns a log of lines `time=… level=… msg=… key=value…`.
func New(w io.Writer, level slog.Leveler) *Logs {
	return &Logs{slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}), &atomic.Pointer[slog.Attr]{}}
}

// SetCluster sets the cluster's id; an empty id removes it.
func (l *Logs) SetCluster(id string) {
	if id == "" {
		l.cluster.Store(nil)
		return
	}
	attr := slog.String("cluster", id)
	l.cluster.Store(&attr)
}

// Handle implements slog.Handler.
func (l *Logs) Handle(ctx context.Context, r slog.Record) error {
	if cluster := l.cluster.Load(); cluster != nil {
		r = r.Clone()
		r.AddAttrs(*cluster)
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l *Logs) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Logs{l.Handler.WithAttrs(attrs), l.cluster}
}

// WithGroup implements slog.Handler.
func (l *Logs) WithGroup(name string) slog.Handler {
	return &Logs{l.Handler.WithGroup(name), l.cluster}
}
