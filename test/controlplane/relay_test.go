package controlplane

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo starts a server that sends back what it receives, in place of an API server.
func echo(t *testing.T) (port int) {
	t.Helper()
	listener, err := net.ListenTCP("tcp", loopbackAddr(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(conn, conn)
				conn.Close()
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func startRelay(t *testing.T, backend int) *relay {
	t.Helper()
	r, err := newRelay(0, backend)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

func dial(t *testing.T, r *relay) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTCP("tcp", nil, r.listener.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends a word and returns what comes back within the timeout.
func exchange(t *testing.T, conn *net.TCPConn, word string, wait time.Duration) (string, error) {
	t.Helper()
	if _, err := conn.Write([]byte(word)); err != nil {
		return "", err
	}
	return receive(t, conn, len(word), wait)
}

func receive(t *testing.T, conn *net.TCPConn, n int, wait time.Duration) (string, error) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, n)
	got, err := io.ReadFull(conn, buffer)
	return string(buffer[:got]), err
}

const (
	answerTimeout = 10 * time.Second
	quietPeriod   = 100 * time.Millisecond
)

func TestRelayCopiesBytesInBothDirections(t *testing.T) {
	conn := dial(t, startRelay(t, echo(t)))
	for _, word := range []string{"one", "two"} {
		if got, err := exchange(t, conn, word, answerTimeout); got != word || err != nil {
			t.Errorf("sent %q, got back %q, %v", word, got, err)
		}
	}
}

func TestRelayPassesOnTheEndOfOneDirection(t *testing.T) {
	conn := dial(t, startRelay(t, echo(t)))
	if _, err := conn.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(answerTimeout))
	if got, err := io.ReadAll(conn); string(got) != "last words" || err != nil {
		t.Errorf("after closing our half: got %q, %v", got, err)
	}
}

func TestRelayCutIsSilentAndHealResetsWhatWasCut(t *testing.T) {
	r := startRelay(t, echo(t))
	before := dial(t, r)
	if _, err := exchange(t, before, "hello", answerTimeout); err != nil {
		t.Fatal(err)
	}
	r.cut()
	r.cut() // has no effect
	if got, err := exchange(t, before, "anyone?", quietPeriod); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a cut connection must stay open without an answer, got %q, %v", got, err)
	}
	during := dial(t, r) // the kernel completes the handshake, but the relay does not answer
	if got, err := exchange(t, during, "knock", quietPeriod); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection opened while cut must get no answer, got %q, %v", got, err)
	}
	r.heal()
	if got, err := receive(t, before, 1, answerTimeout); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heal must reset a connection that was cut, got %q, %v", got, err)
	}
	if got, err := receive(t, during, len("knock"), answerTimeout); got != "knock" || err != nil {
		t.Errorf("a connection opened while cut must be served after heal, got %q, %v", got, err)
	}
	if got, err := exchange(t, dial(t, r), "back", answerTimeout); got != "back" || err != nil {
		t.Errorf("after heal: got %q, %v", got, err)
	}
}

func TestRelayResetsClientsOfAServerThatIsGone(t *testing.T) {
	listener, err := net.ListenTCP("tcp", loopbackAddr(0))
	if err != nil {
		t.Fatal(err)
	}
	unused := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	conn, err := net.DialTCP("tcp", nil, startRelay(t, unused).listener.Addr().(*net.TCPAddr))
	if err != nil {
		return // already reset
	}
	defer conn.Close()
	if _, err := receive(t, conn, 1, answerTimeout); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want the connection to end", err)
	}
}

func TestRelayCloseEndsEverythingAlsoWhileCut(t *testing.T) {
	r := startRelay(t, echo(t))
	conn := dial(t, r)
	if _, err := exchange(t, conn, "hello", answerTimeout); err != nil {
		t.Fatal(err)
	}
	address := r.listener.Addr().(*net.TCPAddr)
	r.cut()
	r.close()
	if _, err := receive(t, conn, 1, answerTimeout); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want the connection to end", err)
	}
	if late, err := net.DialTCP("tcp", nil, address); err == nil {
		late.Close()
		t.Error("a closed relay still accepts connections")
	}
}

func TestRelayNamesAPortThatIsTaken(t *testing.T) {
	taken := echo(t)
	if _, err := newRelay(taken, taken); !errors.Is(err, errPortTaken) {
		t.Errorf("got %v, want %v", err, errPortTaken)
	}
}
