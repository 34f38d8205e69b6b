package wasmhost

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"

	"github.com/seed-8e62c83d/mur/internal/capsule"
	"golang.org/x/sys/unix"
)

// terminal is the terminal a guest has, if any of its streams is one. It changes modes through standard input only,
// and puts them back when the run ends.
type terminal struct {
	in      int // standard input's descriptor when that is a terminal, else -1
	sized   int // a descriptor that knows the size, else -1
	mask    uint32
	grant   *capsule.Terminal
	signals chan os.Signal

	mu      sync.Mutex // guards what follows
	saved   unix.Termios
	raw     bool
	touched bool // modes were changed and must be put back
	size    unix.Winsize
	changes atomic.Uint32
}

// openTerminal looks at the streams and remembers the modes as the run found them.
func openTerminal(streams [3]*stream, grant *capsule.Terminal) (*terminal, error) {
	t := &terminal{in: -1, sized: -1, grant: grant}
	for _, i := range []int{1, 2, 0} { // output knows best where it goes
		if s := streams[i]; s.tty {
			t.mask |= 1 << i
			if t.sized < 0 {
				t.sized = s.fd
			}
		}
	}
	if streams[0].tty {
		modes, err := unix.IoctlGetTermios(streams[0].fd, unix.TCGETS)
		if err != nil {
			return nil, err
		}
		t.in, t.saved = streams[0].fd, *modes
	}
	return t, nil
}

// start puts the terminal into the mode the guest begins with, and follows its size. A program in the background that
// changes modes is stopped by the kernel, so the modes wait for the moment it is continued.
func (t *terminal) start() {
	if t.sized < 0 {
		return
	}
	if ws, err := unix.IoctlGetWinsize(t.sized, unix.TIOCGWINSZ); err == nil {
		t.size = *ws // changes are counted from here
	}
	t.apply()
	t.signals = make(chan os.Signal, 4)
	signal.Notify(t.signals, unix.SIGWINCH, unix.SIGCONT)
	go func(signals <-chan os.Signal) {
		for sig := range signals {
			if sig == unix.SIGCONT {
				t.apply()
			}
			t.look()
		}
	}(t.signals)
}

// end puts the modes back as they were. It is safe to call without start.
func (t *terminal) end() {
	if t.signals != nil {
		signal.Stop(t.signals)
		close(t.signals)
		t.signals = nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	in := t.in
	t.in = -1
	if in >= 0 && t.touched && inForeground(in) {
		_ = unix.IoctlSetTermios(in, unix.TCSETS, &t.saved)
	}
}

// setRaw changes between raw mode and the mode the run found.
func (t *terminal) setRaw(on bool) uint32 {
	t.mu.Lock()
	t.raw = on
	t.mu.Unlock()
	return t.apply()
}

// apply sets the modes for the state the guest is in.
func (t *terminal) apply() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.in < 0 {
		return errnoNotty
	}
	if !inForeground(t.in) {
		return errnoSuccess
	}
	modes := t.modes()
	if err := unix.IoctlSetTermios(t.in, unix.TCSETS, &modes); err != nil {
		return errnoIO
	}
	t.touched = true
	return errnoSuccess
}

const (
	ctrlC    = 3
	disabled = 0 // _POSIX_VDISABLE
)

// modes are the saved modes with what the state and the meaning of ^C change.
func (t *terminal) modes() unix.Termios {
	m := t.saved
	if t.raw {
		// Output stays processed: a guest's newline still begins a line.
		m.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		m.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.IEXTEN
		m.Cflag = m.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
		m.Cc[unix.VMIN], m.Cc[unix.VTIME] = 1, 0
	}
	if t.grant == nil || t.grant.Interrupt != capsule.InterruptInput {
		// A guest that is suspended would hold its caller's terminal with nobody to continue it.
		m.Lflag |= unix.ISIG
		m.Cc[unix.VSUSP] = disabled
		return m
	}
	m.Lflag &^= unix.ISIG
	if !t.raw {
		// In line mode a byte waits for the end of its line. As a second line end, ^C is handed over at once, and is
		// part of what is read, unlike an end of file.
		m.Cc[unix.VEOL] = ctrlC
	}
	return m
}

// inForeground says whether changing the terminal's modes would not stop this process: it is in the foreground, or
// the terminal is not its own.
func inForeground(fd int) bool {
	front, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err != nil || front == unix.Getpgrp()
}

// look compares the size with the last one seen.
func (t *terminal) look() (unix.Winsize, uint32) {
	if t.sized < 0 {
		return unix.Winsize{}, errnoNotty
	}
	ws, err := unix.IoctlGetWinsize(t.sized, unix.TIOCGWINSZ)
	if err != nil {
		return unix.Winsize{}, errnoNotty
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if ws.Col != t.size.Col || ws.Row != t.size.Row {
		t.size = *ws
		t.changes.Add(1)
	}
	return *ws, errnoSuccess
}
