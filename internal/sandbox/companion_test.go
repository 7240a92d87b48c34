//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A program that was started beside the clusters writes to its log, and ends with the sandbox.
func TestCompanionEndsWithTheSandbox(t *testing.T) {
	s := &Sandbox{plan: newPlan("beside", t.TempDir(), t.TempDir(), 1, 1, IPv4)}
	c := s.plan.clusters[0]
	if err := os.MkdirAll(filepath.Dir(c.log("page")), 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := s.StartCompanion("page", "/bin/sh", "-c", "echo it runs; exec sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "it runs") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log has %q", text)
		}
	}
	if found, err := processes(c.carriesMark); err != nil || len(found) != 1 {
		t.Fatalf("processes of the cluster: %v, %v", found, err)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	if found, err := processes(c.carriesMark); err != nil || len(found) != 0 {
		t.Errorf("processes after the end of the sandbox: %v, %v", found, err)
	}
}

func TestCompanionThatCannotStart(t *testing.T) {
	s := &Sandbox{plan: newPlan("beside", t.TempDir(), t.TempDir(), 1, 1, IPv4)}
	if err := os.MkdirAll(s.plan.clusters[0].path("logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := s.StartCompanion("page", "/nothing/seamark", "ui")
	if err == nil || !strings.Contains(err.Error(), "start page beside sandbox beside: ") {
		t.Errorf("without the program: %v", err)
	}
}
