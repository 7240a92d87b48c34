//go:build linux

// Package testenv gives end-to-end tests and the demo a sandbox, and what they do with its
// clusters: apply manifests, send requests from a pod, look up names in a pod, run kubectl and the
// CLI.
package testenv

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/seamark-dev/seamark/internal/sandbox"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

// Env is a running sandbox.
type Env struct {
	*sandbox.Sandbox
	// CLI is the path of the seamark command that Up has built; empty in an environment of Use.
	CLI string

	kube string
}

// Use returns an environment for a sandbox that exists. kube is the path of the binary that holds
// kubectl.
func Use(s *sandbox.Sandbox, kube string) *Env { return &Env{Sandbox: s, kube: kube} }

// Main runs the tests of a package. It keeps the state of their sandbox in a folder that is always
// the same, so that the next run finds and removes what a killed one left.
func Main(m interface{ Run() int }, pkg, sandboxName string) (code int) {
	base := filepath.Join(os.TempDir(), "seamark-e2e-"+pkg)
	ctx := context.Background()
	if err := errors.Join(os.Setenv(sandbox.DirEnv, base), Down(ctx, sandboxName, os.Stderr)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	if err := errors.Join(Down(ctx, sandboxName, os.Stderr), os.RemoveAll(base)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Up builds the CLI into dir and creates the sandbox with it, or repairs one that exists. Its error
// says only that the command failed; the progress has the cause.
func Up(ctx context.Context, dir string, o sandbox.Options) (*Env, error) {
	progress := o.Progress
	if progress == nil {
		progress = io.Discard
	}
	kube, err := kubeparts.Kube(ctx, progress)
	if err != nil {
		return nil, err
	}
	cli := filepath.Join(dir, "seamark")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", cli, "github.com/seamark-dev/seamark/cmd/seamark")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the CLI: %w\n%s", err, out)
	}
	args := []string{"sandbox", "up", "--name", o.Name, "--clusters", strconv.Itoa(cmp.Or(o.Clusters, sandbox.DefaultClusters)),
		"--dataplane", string(o.DataPlane), "--ip-family", string(cmp.Or(o.Family, sandbox.IPv4))}
	if o.Bare {
		args = append(args, "--bare")
	}
	up := exec.CommandContext(ctx, cli, args...)
	up.Stderr = progress
	// When ctx ends, the command gets a signal and half a minute to stop.
	up.Cancel = func() error { return up.Process.Signal(os.Interrupt) }
	up.WaitDelay = 30 * time.Second
	if err := up.Run(); err != nil {
		return nil, fmt.Errorf("seamark sandbox up: %w", err)
	}
	s, err := sandbox.Open(o.Name)
	if err != nil {
		return nil, err
	}
	return &Env{Sandbox: s, CLI: cli, kube: kube}, nil
}

// Down removes the sandbox of a name, if there is one.
func Down(ctx context.Context, name string, progress io.Writer) error {
	err := sandbox.Down(ctx, name, progress)
	if errors.Is(err, sandbox.ErrNone) {
		return nil
	}
	return err
}

// Kubectl runs kubectl in a cluster and returns its standard output. An error has the command and
// its standard error.
func (e *Env) Kubectl(ctx context.Context, cluster string, args ...string) (string, error) {
	return e.run(ctx, "", e.kube, append([]string{"kubectl", "--kubeconfig", e.Kubeconfig(), "--context", cluster}, args...)...)
}

// Apply applies manifests in a cluster; $CLUSTER and $IMAGE in them stand for the cluster's name
// and the workload image.
func (e *Env) Apply(ctx context.Context, cluster, manifests string) error {
	text := strings.NewReplacer("$CLUSTER", cluster, "$IMAGE", e.WorkloadImage()).Replace(manifests)
	_, err := e.run(ctx, text, e.kube, "kubectl", "--kubeconfig", e.Kubeconfig(), "--context", cluster, "apply", "-f", "-")
	return err
}

// Seamark runs the CLI with the sandbox's kubeconfig.
func (e *Env) Seamark(ctx context.Context, args ...string) (string, error) {
	return e.SeamarkAt(ctx, e.CLI, args...)
}

// SeamarkAt runs the CLI of another version.
func (e *Env) SeamarkAt(ctx context.Context, cli string, args ...string) (string, error) {
	return e.run(ctx, "", cli, append([]string{"--kubeconfig", e.Kubeconfig()}, args...)...)
}

func (e *Env) run(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// Tally counts the outcomes of requests from a pod: the output of `workload call`.
type Tally struct {
	Requests    int            `json:"requests"`
	Failed      int            `json:"failed"`
	Clusters    map[string]int `json:"clusters"`
	Pods        map[string]int `json:"pods"`
	Clients     map[string]int `json:"clients"`
	Errors      map[string]int `json:"errors"`
	Answers     []string       `json:"answers"`
	Starts      []int64        `json:"starts"`
	Connections int            `json:"connections"`
	LongestGap  int64          `json:"longestGapMilliseconds"`
}

// Call sends requests from a pod, each over a connection of its own.
func (e *Env) Call(ctx context.Context, cluster, namespace, pod, target string, args ...string) (Tally, error) {
	var result Tally
	text, err := e.Kubectl(ctx, cluster, append([]string{"-n", namespace, "exec", pod, "--", "workload", "call", target}, args...)...)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		return result, fmt.Errorf("%w in: %s", err, text)
	}
	return result, nil
}

// CallInBackground begins a request from a pod every 10 ms, each over a connection of its own, also
// while others wait for their answers. outcome waits until all have ended.
func (e *Env) CallInBackground(
	ctx context.Context, cluster, namespace, pod, target string, d time.Duration, args ...string,
) (outcome func() (Tally, error)) {
	var tally Tally
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		tally, err = e.Call(ctx, cluster, namespace, pod, target, append([]string{
			"--concurrent", "--list", "--duration", d.String(), "--interval", "10ms", "--timeout", "1s",
		}, args...)...)
	}()
	return func() (Tally, error) {
		<-done
		return tally, err
	}
}

// CallUntilStopped sends requests from a pod one after the other, each over a connection of its
// own, until stop is called, which returns the outcomes. They also end when ctx ends. It returns
// when the first request begins.
func (e *Env) CallUntilStopped(
	ctx context.Context, cluster, namespace, pod, target string, args ...string,
) (stop func() (Tally, error), err error) {
	cmd := exec.CommandContext(ctx, e.kube, append([]string{
		"kubectl", "--kubeconfig", e.Kubeconfig(), "--context", cluster, "-n", namespace, "exec", "-i", pod, "--",
		"workload", "call", target, "--until-eof", "--list",
	}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &stderr, 5*time.Second
	input, err := cmd.StdinPipe() // its end is the signal to stop
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	failed := func(err error) error {
		return fmt.Errorf("calling %s in %s: %w\n%s", target, cluster, errors.Join(err, cmd.Wait()), stderr.String())
	}
	lines := bufio.NewReader(output)
	if _, err := lines.ReadString('\n'); err != nil { // it says that it begins
		return nil, failed(err)
	}
	return func() (tally Tally, err error) {
		_ = input.Close() // a command that has ended says why below
		if err := json.NewDecoder(lines).Decode(&tally); err != nil {
			return tally, failed(err)
		}
		return tally, cmd.Wait()
	}, nil
}

// Recovery returns how long after a moment it takes until at most one of any 100 requests in a row
// that begin later fails.
func (t Tally) Recovery(since time.Time) time.Duration {
	const window = 100
	failed := 0 // of the requests from i on, in the window
	for i := len(t.Answers) - 1; i >= 0; i-- {
		if t.Answers[i] == "" {
			failed++
		}
		if i+window < len(t.Answers) && t.Answers[i+window] == "" {
			failed--
		}
		if failed > 1 {
			return time.UnixMilli(t.Starts[i]).Sub(since)
		}
	}
	return 0
}

// Succeeding returns which part of the requests that begin after a moment succeed.
func (t Tally) Succeeding(after time.Time) float64 {
	requests, failed := 0, 0
	for i, answer := range t.Answers {
		if time.UnixMilli(t.Starts[i]).Before(after) {
			continue
		}
		requests++
		if answer == "" {
			failed++
		}
	}
	return 1 - float64(failed)/float64(max(requests, 1))
}

// Failures returns when the requests that failed began, counted from a moment.
func (t Tally) Failures(since time.Time) []time.Duration {
	var out []time.Duration
	for i, answer := range t.Answers {
		if answer == "" {
			out = append(out, time.UnixMilli(t.Starts[i]).Sub(since).Round(10*time.Millisecond))
		}
	}
	return out
}

// Lookup resolves a name in a pod and returns the answers.
func (e *Env) Lookup(ctx context.Context, cluster, namespace, pod, name, kind string) ([]string, error) {
	text, err := e.Kubectl(ctx, cluster, "-n", namespace, "exec", pod, "--", "workload", "lookup", name, "--type", kind)
	if err != nil {
		return nil, err
	}
	var result struct {
		Answers []string `json:"answers"`
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		return nil, fmt.Errorf("%w in: %s", err, text)
	}
	return result.Answers, nil
}

// RolledOut waits until the rollout of a workload such as deployment/web is complete.
func (e *Env) RolledOut(ctx context.Context, cluster, namespace, workload string) error {
	_, err := e.Kubectl(ctx, cluster, "-n", namespace, "rollout", "status", workload, "--timeout=180s")
	return err
}

const pollInterval = 250 * time.Millisecond

// Poll calls check until it returns nil, and fails with the last error when the timeout is over or
// ctx ends. A check that may hang needs a timeout of its own.
func Poll(ctx context.Context, what string, timeout time.Duration, check func() error) error {
	deadline := time.Now().Add(timeout)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %s: %w", what, timeout, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last error: %w)", what, context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}
