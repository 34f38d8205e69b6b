package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/client"
)

// dumping are the signals that leave a core file (signal(7)).
func dumping() []unix.Signal {
	return []unix.Signal{
		unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS,
		unix.SIGFPE, unix.SIGSEGV, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGSYS,
	}
}

// dying is a launch that dies of a signal in a directory.
func dying(sig int, limit, dir string) client.StartSpec {
	spec := shell(`ulimit -c "$1" && kill -"$2" $$`, limit, fmt.Sprint(sig))
	spec.Cwd = []byte(dir)
	return spec
}

// dumpless tells why no core file can be had here; empty: it can.
func dumpless(t *testing.T) string {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		return err.Error()
	}
	if text := strings.TrimSpace(string(pattern)); text == "" || strings.ContainsAny(text, "|/") {
		return fmt.Sprintf("core files go elsewhere: core_pattern is %q", text)
	}
	cmd := exec.Command("/bin/sh", "-c", "ulimit -c unlimited && kill -QUIT $$")
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Sprintf("a shell does not die of SIGQUIT: %v", err)
	}
	if status := exit.Sys().(syscall.WaitStatus); !status.CoreDump() {
		return fmt.Sprintf("a shell that dies of SIGQUIT leaves no core file: %v %s", exit, out)
	}
	return ""
}

// diesOf checks one death, what is told of it and that a core file is there if it
// should.
func (b *bench) diesOf(ctx context.Context, sig int, limit, dir string) error {
	s, err := b.begin(ctx, dying(sig, limit, dir))
	if err != nil {
		return err
	}
	defer s.Close()
	end, err := s.WaitEnd(ctx)
	if err != nil {
		return err
	}
	core := limit != "0"
	r := end.Record
	if r == nil || r.ExitSignal != sig || r.ExitCode != nil || r.CoreDumped != core || r.Result != "signalled" {
		err = fmt.Errorf("of signal %d, core %v, the record tells %+v", sig, core, r)
	}
	if end.ExitSignal != sig || end.ExitCode != nil || end.CoreDumped != core {
		err = errors.Join(err, fmt.Errorf("of signal %d, core %v, the snapshot tells %d, %v", sig, core, end.ExitSignal, end.CoreDumped))
	}
	if left, globErr := filepath.Glob(filepath.Join(dir, "core*")); globErr != nil || (len(left) > 0) != core {
		err = errors.Join(err, globErr, fmt.Errorf("signal %d: core files: %v", sig, left))
	}
	return errors.Join(err, b.done(s))
}

func TestACoreFileIsOnRecord(t *testing.T) {
	if why := dumpless(t); why != "" {
		t.Skip(why)
	}
	b := newBench(t)
	signals, limits := dumping(), []string{"unlimited", "0"}
	b.each(len(signals)*len(limits), func(ctx context.Context, i int) error {
		return b.diesOf(ctx, int(signals[i/len(limits)]), limits[i%len(limits)], t.TempDir())
	})
}

func TestRealTimeSignalsAreToldByNumber(t *testing.T) {
	b := newBench(t)
	const first, last = 34, 64 // the two before are the C library's
	b.each(last-first+1, func(ctx context.Context, i int) error {
		return b.diesOf(ctx, first+i, "0", t.TempDir())
	})
}
