package owner

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// reportPatience is how long the end of the report pipe is waited for after the
// target's end: what the runtime wrote is in it already.
const reportPatience = 100 * time.Millisecond

// reports reads what a capsule's runtime tells about its guest.
type reports struct {
	f      *os.File
	frames chan lifecycle.Report // closed at the end of the pipe
}

// openReports makes the pipe. The target gets w as its descriptor 3.
func openReports() (r *reports, w int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, fmt.Errorf("cannot make the report pipe: %w", err)
	}
	// Only the reading end: the runtime may expect to write with patience.
	if err := unix.SetNonblock(p[0], true); err != nil {
		return nil, -1, fmt.Errorf("cannot make the report pipe: %w", err)
	}
	return &reports{f: os.NewFile(uintptr(p[0]), "report"), frames: make(chan lifecycle.Report, 4)}, p[1], nil
}

// read passes frames on until the pipe ends or holds something else.
func (r *reports) read() {
	defer close(r.frames)
	defer r.f.Close()
	for {
		body, err := protocol.ReadFrame(r.f, nil)
		if err != nil {
			return
		}
		var frame lifecycle.Report
		if protocol.Unmarshal(body, &frame) != nil {
			return
		}
		r.frames <- frame
	}
}

// merge adds a frame to what was reported before; nil: the pipe has ended.
func merge(before *lifecycle.Report, frame *lifecycle.Report) *lifecycle.Report {
	var sum lifecycle.Report
	if before != nil {
		sum = *before
	}
	switch {
	case frame == nil:
		sum.Closed = before == nil
	case frame.Reason != "":
		sum.Reason = frame.Reason
	case sum.Running || sum.Refused != nil: // said once
	default:
		sum.Running, sum.Refused = frame.Running, frame.Refused
	}
	if before != nil && sum == *before {
		return before
	}
	return &sum
}
