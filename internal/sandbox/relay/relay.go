//go:build linux

package relay

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// name is the name by which a program knows that it runs as the relay.
const name = "seamark-sandbox-relay"

// Program is the path of the program to run, with Args.
const Program = "/proc/self/exe"

// Options are how a relay works.
type Options struct {
	// Device is the name of the TAP device, which exists as long as the relay runs.
	Device string
	// Beside is the device on which the packets arrive. The TAP device gets its address and MTU.
	Beside string
	// Delay is how long packets are kept.
	Delay time.Duration
}

// Args returns the arguments of the process, with its name.
func Args(o Options) []string {
	return []string{name, "--device=" + o.Device, "--beside=" + o.Beside, "--delay=" + o.Delay.String()}
}

// init runs the relay if this process was started as one. It cannot be left to main, because the
// mains of tests belong to the testing package.
func init() {
	if os.Args[0] != name {
		return
	}
	if err := runProcess(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runProcess(args []string) error {
	var o Options
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&o.Device, "device", "", "name of the TAP device")
	flags.StringVar(&o.Beside, "beside", "", "device on which the packets arrive")
	flags.DurationVar(&o.Delay, "delay", 0, "how long packets are kept")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return run(ctx, o)
}

// run relays packets until ctx ends.
func run(ctx context.Context, o Options) error {
	tap, address, err := openTAP(o)
	if err != nil {
		return fmt.Errorf("open device %s: %w", o.Device, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = tap.Close() }) // the kernel removes the device
	defer stop()
	err = forward(ctx, tap, tap, address, o.Delay)
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(fmt.Errorf("relay packets of device %s: %w", o.Device, err), tap.Close())
}

// frame is a packet with its Ethernet header.
type frame struct {
	data []byte
	due  time.Time
}

const (
	// maxFrames bounds the memory of a relay: with the usual MTU of 1,500 bytes it is 50 MB. More
	// frames are dropped, as by a router whose queue is full.
	maxFrames = 1 << 15
	// maxFrameSize is that of an IP packet with its Ethernet header.
	maxFrameSize = 1<<16 + 18
)

// forward writes each frame for the address that it reads after the delay. All frames wait equally
// long, so they stay in order. Other frames are the kernel's own on the device, such as IPv6
// multicast, and are dropped. It returns the first error of the reader or the writer.
func forward(ctx context.Context, from io.Reader, to io.Writer, address []byte, delay time.Duration) error {
	waiting := make(chan frame, maxFrames)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() { fail(enqueue(from, waiting, address, delay)) }()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case f := <-waiting:
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Until(f.due)):
			}
			// A device that is set down refuses frames. They are lost, as on a cable.
			if _, err := to.Write(f.data); err != nil && !errors.Is(err, syscall.EIO) {
				return err
			}
		}
	}
}

func enqueue(from io.Reader, waiting chan<- frame, address []byte, delay time.Duration) error {
	buffer := make([]byte, maxFrameSize)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return err
		}
		if n < len(address) || string(buffer[:len(address)]) != string(address) {
			continue
		}
		select {
		case waiting <- frame{append([]byte(nil), buffer[:n]...), time.Now().Add(delay)}:
		default:
		}
	}
}
