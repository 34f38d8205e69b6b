package owner

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/output"
	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/ptmx"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

const (
	// drainBytes after the exit are somebody else's: the kernel holds about 20 KB
	// of what the target wrote.
	drainBytes = 128 << 10
	// drainTime is how long capture may have taken, not counting the time in
	// which it could not write.
	drainTime = 2 * time.Second
	// maxUnheld looks take a fifth of a second, which is longer than a process that
	// is only looking is kept from running.
	maxUnheld = 50
)

// drain judges when the output of an ended target is complete. Others move the
// bytes; it looks only at its own duplicates and at the log.
type drain struct {
	reader  *output.Reader
	base    int64 // taken when the target had ended
	taken   int64
	active  time.Duration // in which bytes moved
	looked  time.Time
	moved   time.Time // when bytes were last seen to move
	looks   int
	unheld  int // looks at a terminal that is open and that nobody was found to hold
	failure error
}

func (o *owner) beginDrain() *drain {
	d := &drain{looked: time.Now(), moved: time.Now()}
	dir, err := openOutput(o.in.dir)
	if err == nil {
		defer dir.Close()
		d.reader, err = output.OpenReader(dir)
	}
	if err == nil {
		d.base, err = d.measure(o.in.pipeR)
	}
	d.taken, d.failure = d.base, err
	return d
}

func openOutput(dir *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), sessiondir.OutputDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open the output: %w", err)
	}
	return os.NewFile(uintptr(fd), sessiondir.OutputDir), nil
}

// measure tells how many bytes have left the terminal. Between log and pipe a
// byte could be counted twice or not at all while it moves: the log must not have
// moved meanwhile.
func (d *drain) measure(pipe int) (int64, error) {
	_, end, err := d.reader.Bounds()
	for err == nil {
		var waiting int
		if waiting, err = unix.IoctlGetInt(pipe, unix.TIOCINQ); err != nil {
			break
		}
		before := end
		if _, end, err = d.reader.Bounds(); err == nil && end == before {
			return end + int64(waiting), nil
		}
	}
	return 0, fmt.Errorf("cannot measure the output: %w", err)
}

// pause is the time until the next look.
func (d *drain) pause() time.Duration {
	switch {
	case d.looks < 20:
		return time.Millisecond
	case time.Since(d.moved) < time.Second:
		return 5 * time.Millisecond
	}
	return 250 * time.Millisecond // a full disk, say
}

// step looks once; nil: the drain is not over.
func (d *drain) step(o *owner) *lifecycle.DrainReport {
	d.looks++
	if d.failure != nil {
		return d.finish(o, lifecycle.DrainFailed)
	}
	in, hup, err := ptmx.Readable(o.in.master)
	if err == nil && in {
		err = d.advance(o.in.pipeR)
	}
	switch {
	case err != nil:
		d.failure = err
		return d.finish(o, lifecycle.DrainFailed)
	case !in && hup:
		return d.finish(o, lifecycle.DrainEOF)
	case !in && d.passing(o):
		return nil
	case !in:
		return d.finish(o, lifecycle.DrainEmpty)
	case d.taken-d.base >= drainBytes, d.active >= drainTime:
		return d.finish(o, lifecycle.DrainCut)
	}
	return nil
}

// passing tells that the terminal is kept open by nobody who can be named: whoever
// reads a link of /proc/PID/fd holds that file for the moment, also past its last
// close. A holder that may not be looked at costs these few looks.
func (d *drain) passing(o *owner) bool {
	if _, holders := census(o.in.slaveRdev); len(holders) > 0 || d.unheld == maxUnheld {
		return false
	}
	d.unheld++
	return true
}

// advance counts what was taken, and the time only while something is: a full
// disk or a stopped guardian must not cut off what the target wrote.
func (d *drain) advance(pipe int) error {
	now := time.Now()
	taken, err := d.measure(pipe)
	if err != nil {
		return err
	}
	if taken != d.taken {
		d.active += now.Sub(d.looked)
		d.moved = now
	}
	d.taken, d.looked = taken, now
	return nil
}

func (d *drain) finish(o *owner, state lifecycle.DrainState) *lifecycle.DrainReport {
	report := &lifecycle.DrainReport{State: state, EndOffset: d.taken}
	if d.reader != nil {
		if end, err := d.measure(o.in.pipeR); err == nil {
			report.EndOffset = end
		} else if d.failure == nil {
			report.State, d.failure = lifecycle.DrainFailed, err
		}
		d.reader.Close()
	}
	if d.failure != nil {
		report.Errno = failed("", d.failure).Errno
		if report.Errno == 0 {
			report.Errno = int(unix.EIO)
		}
	}
	descendants, holders := census(o.in.slaveRdev)
	report.Descendants, report.Holders = descendants, len(holders)
	for _, pid := range holders[:min(len(holders), lifecycle.MaxHeldBy)] {
		name, _ := procs.Name(pid)
		// The name is the process's own choice of bytes; the report is text.
		report.HeldBy = append(report.HeldBy, lifecycle.Holder{PID: pid, Name: strings.ToValidUTF8(name, "?")})
	}
	return report
}
