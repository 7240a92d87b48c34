//go:build linux

package relay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

const address = "\x02\x00\x00\x00\x00\x01"

// wire is both ends of a device: it reads the frames that were sent to it, and records when frames
// are written.
type wire struct {
	frames  chan string
	started time.Time
	got     []string
}

var errUnplugged = errors.New("unplugged")

func (w *wire) Read(buffer []byte) (int, error) {
	f, open := <-w.frames
	if !open {
		return 0, errUnplugged
	}
	return copy(buffer, f), nil
}

func (w *wire) Write(data []byte) (int, error) {
	w.got = append(w.got, fmt.Sprintf("%s at %s", data[len(address):], time.Since(w.started)))
	return len(data), nil
}

// start forwards frames of a wire until the test ends.
func start(t *testing.T, delay time.Duration) *wire {
	t.Helper()
	w := &wire{frames: make(chan string), started: time.Now()}
	done := make(chan error)
	go func() { done <- forward(context.Background(), w, w, []byte(address), delay) }()
	t.Cleanup(func() {
		close(w.frames)
		if err := <-done; !errors.Is(err, errUnplugged) {
			t.Errorf("forwarding ended with: %v", err)
		}
	})
	return w
}

// TestFramesAreDelayedInOrder sends frames at different times. Each arrives exactly one delay after
// it was sent, and frames of the kernel's own are dropped.
func TestFramesAreDelayedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 500*time.Millisecond)
		w.frames <- address + "first"
		w.frames <- "\x33\x33\x00\x00\x00\x02multicast"
		w.frames <- "short"
		w.frames <- address + "second"
		time.Sleep(200 * time.Millisecond)
		w.frames <- address + "third"
		time.Sleep(time.Second)
		w.frames <- address + "fourth"
		time.Sleep(time.Second)
		synctest.Wait()
		want := "[first at 500ms second at 500ms third at 700ms fourth at 1.7s]"
		if got := fmt.Sprint(w.got); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// TestFullQueueDropsNewFrames checks the bound of memory: frames that do not fit are lost, those
// that wait are not.
func TestFullQueueDropsNewFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, time.Minute)
		for i := range maxFrames + 100 {
			w.frames <- fmt.Sprint(address, i)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		// One more than the queue holds, because the frame that is due next is out of it.
		if len(w.got) != maxFrames && len(w.got) != maxFrames+1 {
			t.Errorf("%d frames arrived, want %d", len(w.got), maxFrames)
		}
		if want := fmt.Sprintf("%d at 1m0s", len(w.got)-1); len(w.got) > 0 && w.got[len(w.got)-1] != want {
			t.Errorf("the last frame is %s, want %s", w.got[len(w.got)-1], want)
		}
	})
}

// TestForwardingEndsWithItsContext checks that frames that wait do not keep a relay alive.
func TestForwardingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &wire{frames: make(chan string)}
		defer close(w.frames)
		done := make(chan error, 1)
		go func() { done <- forward(ctx, w, w, []byte(address), time.Minute) }()
		w.frames <- address + "waits"
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with: %v", err)
		}
	})
}
