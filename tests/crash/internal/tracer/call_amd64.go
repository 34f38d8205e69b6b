package tracer

import (
	"iter"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func lines(b []byte) iter.Seq[string] { return strings.Lines(string(b)) }

// syscall handles the stop at either end of a system call.
func (t *tracing) syscall(tid int, th *thread) {
	if th.inCall {
		th.inCall = false
		t.leave(tid, th)
		return
	}
	th.inCall, th.call, th.act, th.fake, th.boot = true, -1, None, false, -1
	var r unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &r) == nil {
		t.enter(tid, th, &r)
	}
}

func (t *tracing) enter(tid int, th *thread, r *unix.PtraceRegs) {
	switch {
	case r.Orig_rax == unix.SYS_PRCTL && r.Rdi == unix.PR_SET_DUMPABLE && r.Rsi == 0:
		// Nobody without privileges could look into it any more, and the tracer
		// has to.
		t.skip(tid, th, r)
		return
	case t.program.Boot != "" && r.Orig_rax == unix.SYS_READ:
		if fdPath(tid, r.Rdi) == bootFile {
			th.boot = position(tid, r.Rdi)
		}
		return
	}
	c := t.decoder.decode(tid, r)
	if c == nil {
		return
	}
	t.sites.name(th.role, c, t.program.Root)
	if t.program.Fake != nil && t.program.Fake(*c) {
		c.Faked = true
		t.skip(tid, th, r)
	}
	t.clock++
	c.Entered = t.clock
	t.res.Calls = append(t.res.Calls, *c)
	th.call = len(t.res.Calls) - 1
	if t.fault.Mode == None || t.res.Killed {
		return
	}
	again := t.sticky && c.Role == t.fault.At.Role && c.Name == t.fault.At.Name
	if c.Site == t.fault.At || again {
		t.strike(tid, th, c, r)
	}
}

// strike is the fault at the entry of its call.
func (t *tracing) strike(tid int, th *thread, c *Call, r *unix.PtraceRegs) {
	switch t.fault.Mode {
	case KillBefore:
		t.res.Fired = true
		t.kill(th)
	case KillAfter:
		t.res.Fired = true
		th.act = KillAfter
	case Torn:
		if r.Orig_rax != unix.SYS_WRITE && r.Orig_rax != unix.SYS_PWRITE64 || len(c.Data) < 2 {
			return
		}
		t.res.Fired = true
		r.Rdx = uint64(len(c.Data) / 2)
		_ = unix.PtraceSetRegs(tid, r)
		th.act = KillAfter
	case Fail:
		t.res.Fired, t.sticky = true, t.fault.Sticky
		t.skip(tid, th, r)
		th.fake, th.act = false, Fail
	}
}

// skip lets the call be none, which then returns 0.
func (t *tracing) skip(tid int, th *thread, r *unix.PtraceRegs) {
	r.Orig_rax = ^uint64(0)
	_ = unix.PtraceSetRegs(tid, r)
	th.fake = true
}

func (t *tracing) leave(tid int, th *thread) {
	if th.call < 0 && !th.fake && th.boot < 0 {
		return
	}
	var r unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &r) != nil {
		return
	}
	switch {
	case th.boot >= 0:
		t.otherBoot(tid, th, &r)
		return
	case th.act == Fail:
		r.Rax = uint64(-int64(t.fault.Errno))
		_ = unix.PtraceSetRegs(tid, &r)
	case th.fake:
		r.Rax = 0
		_ = unix.PtraceSetRegs(tid, &r)
	}
	if th.call < 0 {
		return
	}
	c := &t.res.Calls[th.call]
	t.clock++
	c.Ret, c.Done, c.Left = int64(r.Rax), true, t.clock
	switch {
	case c.Name == "open" && c.Ret >= 0:
		c.Inode = inode(tid, r.Rax)
	case c.Name == "splice" && c.Ret > 0:
		c.Data = spliced(c)
	}
	if th.act == KillAfter {
		t.kill(th)
	}
}

// spliced reads back what no buffer of the process ever held.
func spliced(c *Call) []byte {
	f, err := os.Open(c.Path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, c.Ret)
	n, _ := f.ReadAt(b, c.Off)
	return b[:n]
}

// otherBoot lets a process read another boot id.
func (t *tracing) otherBoot(tid int, th *thread, r *unix.PtraceRegs) {
	id := []byte(t.program.Boot)
	if int64(r.Rax) <= 0 || th.boot >= int64(len(id)) {
		return
	}
	id = id[th.boot:]
	id = id[:min(len(id), int(r.Rax))]
	_, _ = unix.ProcessVMWritev(tid, []unix.Iovec{{Base: &id[0], Len: uint64(len(id))}},
		[]unix.RemoteIovec{{Base: uintptr(r.Rsi), Len: len(id)}}, 0)
}
