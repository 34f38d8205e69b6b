package output

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const benchBytes = 8 << 20

// feed writes benchBytes through the terminal and returns when taken says so.
func feed(b *testing.B, g *rig, taken func()) time.Duration {
	b.Helper()
	piece := make([]byte, 8<<10)
	begin := time.Now()
	done := make(chan error, 1)
	go func() {
		for range benchBytes / len(piece) {
			if _, err := g.slave.Write(piece); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	taken()
	took := time.Since(begin)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return took
}

// plainLoop reads as a program without a log would: one thread, blocking reads.
func plainLoop(b *testing.B, g *rig) {
	b.Helper()
	fd := int(g.master.Fd())
	buf := make([]byte, 64<<10)
	for left := benchBytes; left > 0; {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, -1); err != nil && err != unix.EINTR {
			b.Fatal(err)
		}
		n, err := unix.Read(fd, buf)
		if err != nil && err != unix.EAGAIN {
			b.Fatal(err)
		}
		left -= max(n, 0)
	}
}

// BenchmarkCaptureBesideReadLoop takes both in turns on the same terminal: only
// the ratio, capture's throughput over the loop's, means anything.
func BenchmarkCaptureBesideReadLoop(b *testing.B) {
	for _, watched := range []bool{false, true} {
		name := "detached"
		if watched {
			name = "watched"
		}
		b.Run(name, func(b *testing.B) {
			g := newRig(b)
			var plain, captured time.Duration
			for b.Loop() {
				plain += feed(b, g, func() { plainLoop(b, g) })
				c, stop := g.capture(b, Options{})
				unwatch := func() {}
				if watched {
					unwatch = c.Watch()
				}
				end := c.End() + benchBytes
				captured += feed(b, g, func() {
					if err := c.Wait(context.Background(), end-1); err != nil {
						b.Fatal(err)
					}
				})
				unwatch()
				stop()
			}
			mib := float64(b.N) * benchBytes / (1 << 20)
			b.ReportMetric(plain.Seconds()/captured.Seconds(), "ratio")
			b.ReportMetric(mib/captured.Seconds(), "MiB/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkWakeUp is the time from a write to the terminal until a goroutine that
// waits for the log's growth runs.
func BenchmarkWakeUp(b *testing.B) {
	g := newRig(b)
	c, _ := g.capture(b, Options{})
	defer c.Watch()()
	off := c.End()
	for b.Loop() {
		if _, err := g.slave.Write([]byte("k")); err != nil {
			b.Fatal(err)
		}
		if err := c.Wait(context.Background(), off); err != nil {
			b.Fatal(err)
		}
		off = c.End()
	}
}
