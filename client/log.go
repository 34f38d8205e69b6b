package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/seed-8e62c83d/mur/internal/output"
)

// logPiece is how much of a log is read at once, in bytes.
const logPiece = 64 * 1024

// logPause is how long a session that writes is not looked at otherwise.
const logPause = 20 * time.Millisecond

// Piece is output of a session, or the lack of it.
type Piece struct {
	Offset int64
	Bytes  []byte // valid until the next piece
	// GapTo is set in place of Bytes: output from Offset up to it is no longer kept.
	GapTo int64
}

// ReadLog gives the output from an offset on as far as it goes now, from the
// files: no guardian is woken or needed.
func (s *Session) ReadLog(from int64, each func(Piece) error) error {
	l := &logReader{s: s, at: from}
	defer l.close()
	return l.drain(each)
}

// FollowLog gives the output from an offset on as it is written, until the final
// record is there and everything up to its end offset was given, or the context
// ends.
func (s *Session) FollowLog(ctx context.Context, from int64, each func(Piece) error) error {
	c, err := watchChanges(ctx, s.dir.WatchOutput)
	if err != nil {
		return err
	}
	defer c.close()
	l := &logReader{s: s, at: from}
	defer l.close()
	for {
		st, err := s.fromFiles()
		if err != nil {
			return err
		}
		if err := l.drain(each); err != nil {
			return err
		}
		// The record may be ahead of the log: what is missing is in the hands of the
		// owner, for the next guardian to write down.
		if st.State.Final() && (l.at >= st.Record.EndOffset || !st.OwnerAlive && !st.GuardianAlive) {
			return nil
		}
		if err := l.follow(ctx, c, st.recheck, each); err != nil {
			return err
		}
	}
}

// follow waits for more and gives it until there is a pause: only then is the
// rest of the session worth a look.
func (l *logReader) follow(ctx context.Context, c *changes, recheck time.Duration, each func(Piece) error) error {
	if err := c.wait(ctx, recheck); err != nil {
		return err
	}
	for {
		before := l.at
		if err := l.drain(each); err != nil || l.at == before {
			return err
		}
		pause, cancel := context.WithTimeout(ctx, logPause)
		err := c.wait(pause, 0)
		cancel()
		if err != nil {
			return ctx.Err()
		}
	}
}

// logReader reads on where it was.
type logReader struct {
	s   *Session
	at  int64
	dir *os.File
	r   *output.Reader
	buf []byte
}

func (l *logReader) close() {
	if l.r != nil {
		l.r.Close()
	}
	if l.dir != nil {
		l.dir.Close()
	}
}

// open tells whether there is any output yet.
func (l *logReader) open() (bool, error) {
	if l.r != nil {
		return true, nil
	}
	dir, err := l.s.dir.Output()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.dir = dir
	if l.r, err = output.OpenReader(dir); err != nil {
		return false, err
	}
	l.buf = make([]byte, logPiece)
	return true, nil
}

func (l *logReader) drain(each func(Piece) error) error {
	if ok, err := l.open(); !ok || err != nil {
		return err
	}
	for {
		n, err := l.r.ReadAt(l.buf, l.at)
		var gap *output.GapError
		switch {
		case n > 0:
			if err := each(Piece{Offset: l.at, Bytes: l.buf[:n]}); err != nil {
				return err
			}
			l.at += int64(n)
		case errors.As(err, &gap):
			if err := each(Piece{Offset: gap.From, GapTo: gap.To}); err != nil {
				return err
			}
			l.at = gap.To
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}
