package ptmx_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/ptmx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, slave, err := ptmx.Open(ptmx.Size{Cols: 100, Rows: 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		master.Close()
		slave.Close()
	})
	return master, slave
}

func control[T any](t *testing.T, f *os.File, fn func(fd int) (T, error)) T {
	t.Helper()
	var got T
	err := ptmx.Control(f, func(fd int) (err error) {
		got, err = fn(fd)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func flags(t *testing.T, f *os.File) (status, descriptor int) {
	t.Helper()
	status = control(t, f, func(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0) })
	descriptor = control(t, f, func(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0) })
	return status, descriptor
}

func TestOpenGivesNonblockingMasterAndBlockingSlave(t *testing.T) {
	master, slave := open(t)
	for _, end := range []struct {
		name     string
		f        *os.File
		nonblock bool
	}{{"master", master, true}, {"slave", slave, false}} {
		status, descriptor := flags(t, end.f)
		if got := status&unix.O_NONBLOCK != 0; got != end.nonblock {
			t.Errorf("%s: nonblocking %v, want %v", end.name, got, end.nonblock)
		}
		if descriptor&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s is not close-on-exec", end.name)
		}
	}
	if size := control(t, slave, ptmx.GetSize); size != (ptmx.Size{Cols: 100, Rows: 30}) {
		t.Errorf("the size is %v", size)
	}
}

func TestMasterHonoursDeadlineAlsoAfterFd(t *testing.T) {
	master, _ := open(t)
	master.Fd()
	if err := master.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := master.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read gives %v, want a timeout", err)
	}
}

func TestCloseWakesRead(t *testing.T) {
	master, _ := open(t)
	done := make(chan error, 1)
	go func() {
		_, err := master.Read(make([]byte, 1))
		done <- err
	}()
	master.Close()
	select {
	case err := <-done:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("Read gives %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Read did not return")
	}
}

func TestSizeChangeReachesSlave(t *testing.T) {
	master, slave := open(t)
	want := ptmx.Size{Cols: 41, Rows: 7}
	if err := ptmx.Control(master, func(fd int) error { return ptmx.SetSize(fd, want) }); err != nil {
		t.Fatal(err)
	}
	if got := control(t, slave, ptmx.GetSize); got != want {
		t.Errorf("the slave's size is %v, want %v", got, want)
	}
}

func TestTermiosRoundTripThroughMaster(t *testing.T) {
	master, slave := open(t)
	before := control(t, master, ptmx.GetTermios)
	if before.Lflag&unix.ICANON == 0 {
		t.Fatal("a new terminal is not canonical")
	}
	changed := before
	changed.Lflag &^= unix.ECHO | unix.ICANON
	if err := ptmx.Control(master, func(fd int) error { return ptmx.SetTermios(fd, changed) }); err != nil {
		t.Fatal(err)
	}
	if got := control(t, slave, ptmx.GetTermios); got.Lflag != changed.Lflag {
		t.Errorf("local flags %#x, want %#x", got.Lflag, changed.Lflag)
	}
}

func TestForegroundGroupOfSessionLeader(t *testing.T) {
	master, slave := open(t)
	if got := control(t, master, ptmx.ForegroundGroup); got != 0 {
		t.Errorf("the group is %d before anybody took the terminal", got)
	}
	in, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer inW.Close()
	cmd := exec.Command("/bin/sh", "-c", "echo up; read x <&3")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.ExtraFiles = []*os.File{in}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if got := control(t, master, ptmx.ForegroundGroup); got != cmd.Process.Pid {
		t.Errorf("the group is %d, want %d", got, cmd.Process.Pid)
	}
	inW.Close()
	cmd.Wait()
}

func TestReadableFollowsOutputAndHangUp(t *testing.T) {
	master, slave := open(t)
	check := func(step string, wantIn, wantHup bool) {
		t.Helper()
		err := ptmx.Control(master, func(fd int) error {
			in, hup, err := ptmx.Readable(fd)
			if in != wantIn || hup != wantHup {
				t.Errorf("%s: in %v, hup %v", step, in, hup)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check("new", false, false)
	if _, err := slave.Write([]byte("out")); err != nil {
		t.Fatal(err)
	}
	check("written", true, false)
	got := make([]byte, 3)
	if _, err := io.ReadFull(master, got); err != nil || !bytes.Equal(got, []byte("out")) {
		t.Fatalf("read %q, %v", got, err)
	}
	check("taken", false, false)
	slave.Close()
	if err := ptmx.Control(master, func(fd int) error {
		_, hup, err := ptmx.Readable(fd)
		if !hup {
			t.Error("no hang-up after the last slave was closed")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestReadableRefusesClosedDescriptor(t *testing.T) {
	if _, _, err := ptmx.Readable(1 << 20); !errors.Is(err, unix.EBADF) {
		t.Errorf("got %v", err)
	}
}
