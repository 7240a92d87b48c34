package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/seamark-dev/seamark/test/controlplane"
)

// quietPeriod is how long a test waits before it concludes that no answer or event comes.
const quietPeriod = 500 * time.Millisecond

// TestOutages causes all outages on one control plane, one after the other. Each also shows that
// the control plane has recovered from the one before.
func TestOutages(t *testing.T) {
	started := time.Now()
	cp := Fresh(t, 1)[0]
	t.Logf("one control plane was ready after %s", time.Since(started).Round(time.Millisecond))
	ns := Namespace(t, cp)
	for _, outage := range []struct {
		name string
		run  func(*testing.T, *controlplane.ControlPlane, string)
	}{
		{"a restart keeps objects and ports", stopAndRestart},
		{"without API server connections are refused", stopAPIServer},
		{"a restart waits for a port that is taken", restartOnATakenPort},
		{"requests hang while it is paused", pauseAndResume},
		{"a watch stalls while it is cut off", cutOffAndReconnect},
		{"a snapshot restores the old state", snapshotAndRestore},
		{"it can be stopped while it is paused", stopWhilePaused},
	} {
		if !t.Run(outage.name, func(t *testing.T) { outage.run(t, cp, ns) }) {
			return // the next ones would fail too
		}
	}
}

func stopAndRestart(t *testing.T, cp *controlplane.ControlPlane, ns string) {
	c := Client(t, cp)
	createConfigMap(t, c, ns, "before-stop")
	if err := errors.Join(cp.Stop(), cp.Stop()); err != nil {
		t.Fatal(err)
	}
	if err := getConfigMap(t.Context(), c, ns, "before-stop"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("stopped: got %v, want a refused connection", err)
	}
	if err := cp.Pause(); err == nil {
		t.Error("Pause must fail on a stopped control plane")
	}
	started := time.Now()
	if err := cp.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready again after %s", time.Since(started).Round(time.Millisecond))
	// The same client works, so port and certificates are the same.
	Eventually(t, "the object is still there", func() error { return getConfigMap(t.Context(), c, ns, "before-stop") })
}

func stopAPIServer(t *testing.T, cp *controlplane.ControlPlane, ns string) {
	c := Client(t, cp)
	if err := cp.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := getConfigMap(t.Context(), c, ns, "before-stop"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want a refused connection", err)
	}
	if err := errors.Join(cp.StartAPIServer(t.Context()), cp.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the object is still there", func() error { return getConfigMap(t.Context(), c, ns, "before-stop") })
}

func restartOnATakenPort(t *testing.T, cp *controlplane.ControlPlane, ns string) {
	direct, err := url.Parse(cp.DirectConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Stop(); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", direct.Host)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cp.Restart(t.Context()) }()
	if _, err := listener.Accept(); err != nil { // the check whether the API server is ready: it was started
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("ready on a port that is taken: %v", err)
	case <-time.After(quietPeriod):
	}
	if err := errors.Join(listener.Close(), <-done); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "it answers", func() error { return getConfigMap(t.Context(), Client(t, cp), ns, "before-stop") })
}

func pauseAndResume(t *testing.T, cp *controlplane.ControlPlane, ns string) {
	c := Client(t, cp)
	if err := cp.Pause(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		answered <- c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "created-while-paused", Namespace: ns}})
	}()
	select {
	case err := <-answered:
		t.Fatalf("the paused control plane answers: %v", err)
	case <-time.After(quietPeriod):
	}
	if err := cp.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("after Resume the request fails: %v", err)
	}
}

func cutOffAndReconnect(t *testing.T, cp *controlplane.ControlPlane, ns string) {
	watched, err := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().ConfigMaps(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	c, direct := Client(t, cp), newClient(t, cp.DirectConfig())
	if err := getConfigMap(t.Context(), c, ns, "before-stop"); err != nil { // also runs API discovery, which would fail during the cut
		t.Fatal(err)
	}
	createConfigMap(t, direct, ns, "before-cut")
	if err := awaitEvent(watched, "before-cut", 30*time.Second); err != nil {
		t.Fatal(err)
	}
	cp.CutOff()
	createConfigMap(t, direct, ns, "during-cut") // the API server itself runs
	if err := awaitEvent(watched, "during-cut", quietPeriod); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the watch must stay open without events, got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), quietPeriod)
	defer cancel()
	if err := getConfigMap(ctx, c, ns, "before-cut"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request must get no answer, got %v", err)
	}
	cp.Reconnect()
	if err := awaitEvent(watched, "during-cut", 30*time.Second); !errors.Is(err, errWatchEnded) {
		t.Errorf("the watch must end after Reconnect, got %v", err)
	}
	Eventually(t, "new requests are answered", func() error { return getConfigMap(t.Context(), c, ns, "during-cut") })
}

func snapshotAndRestore(t *testing.T, cp *controlplane.ControlPlane, ns string) {
	c := Client(t, cp)
	createConfigMap(t, c, ns, "before-snapshot")
	restore, err := cp.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // a snapshot can be restored more than once
		createConfigMap(t, c, ns, "after-snapshot")
		if err := restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := getConfigMap(t.Context(), c, ns, "before-snapshot"); err != nil {
			t.Errorf("round %d: get the object of the snapshot: %v", round, err)
		}
		if err := getConfigMap(t.Context(), c, ns, "after-snapshot"); !apierrors.IsNotFound(err) {
			t.Errorf("round %d: get the object created after the snapshot: got %v, want not found", round, err)
		}
	}
}

func stopWhilePaused(t *testing.T, cp *controlplane.ControlPlane, _ string) {
	if err := errors.Join(cp.Pause(), cp.Stop()); err != nil {
		t.Fatal(err)
	}
	if left := processesOf(t, cp.Dir()); len(left) > 0 {
		t.Errorf("processes %v still run", left)
	}
}

var errWatchEnded = errors.New("the watch ended")

// awaitEvent waits for an event about the named object.
func awaitEvent(w watch.Interface, name string, wait time.Duration) error {
	timeout := time.After(wait)
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return errWatchEnded
			}
			if o, ok := e.Object.(*corev1.ConfigMap); ok && o.Name == name {
				return nil
			}
		case <-timeout:
			return fmt.Errorf("no event about %s within %s: %w", name, wait, context.DeadlineExceeded)
		}
	}
}
