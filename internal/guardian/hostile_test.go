package guardian_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

func TestWrongCredentialsGetOneTypedRefusal(t *testing.T) {
	s := newSession(t)
	wrong := make([]byte, 32)
	for name, change := range map[string]func(*protocol.Hello){
		"secret":  func(h *protocol.Hello) { h.Authentication = wrong },
		"token":   func(h *protocol.Hello) { h.ExecutionToken = wrong },
		"short":   func(h *protocol.Hello) { h.Authentication = h.Authentication[:31] },
		"nothing": func(h *protocol.Hello) { h.Authentication, h.ExecutionToken = nil, nil },
	} {
		h := s.hello()
		change(&h)
		conn := s.dialRaw()
		w := hello(t, conn, h)
		if w.Error == nil || w.Error.Code != protocol.CodeUnauthorized || w.Session != "" {
			t.Errorf("%s: %+v", name, w)
		}
		closed(t, conn)
	}
	s.dial().status()
}

func TestAnUnknownVersionIsToldTheRangeBeforeAnythingIsCompared(t *testing.T) {
	s := newSession(t)
	for _, version := range []int{0, -1, protocol.Version + 1} {
		conn := s.dialRaw()
		w := hello(t, conn, protocol.Hello{Version: version})
		if w.Error == nil || w.Error.Code != protocol.CodeVersion || w.Version != protocol.Version || w.MinVersion != protocol.MinVersion {
			t.Errorf("version %d: %+v", version, w)
		}
		closed(t, conn)
	}
}

func TestAHandshakeCutAnywhereHarmsNobody(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	whole, err := protocol.AppendFrame(nil, s.hello())
	if err != nil {
		t.Fatal(err)
	}
	for cut := range whole {
		conn := s.dialRaw()
		if _, err := conn.Write(whole[:cut]); err != nil {
			t.Fatal(err)
		}
		conn.CloseWrite()
		closed(t, conn)
	}
	l.status()
}

func TestMalformedFramesEndTheirConnectionOnly(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	frame := func(body ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	for name, bytes := range map[string][]byte{
		"zero length":       {0, 0, 0, 0},
		"oversized":         {0, 4, 0, 1},
		"largest length":    {0xff, 0xff, 0xff, 0xff},
		"not CBOR":          frame(0xff, 0xff),
		"not a map":         frame(0x01),
		"duplicate keys":    frame(0xa2, 0x62, 'o', 'p', 0x61, 'a', 0x62, 'o', 'p', 0x61, 'b'),
		"indefinite length": frame(0xbf, 0x62, 'o', 'p', 0x61, 'a', 0xff),
		"trailing bytes":    frame(0xa1, 0x62, 'o', 'p', 0x61, 'a', 0x00),
		"wrong type":        frame(0xa1, 0x62, 'o', 'p', 0x01),
	} {
		bad := s.dial()
		if _, err := bad.conn.Write(bytes); err != nil {
			t.Fatal(err)
		}
		var r protocol.Response
		read(t, bad.conn, &r)
		if r.Error == nil || r.Error.Code != protocol.CodeMalformed {
			t.Errorf("%s: %+v", name, r.Error)
		}
		closed(t, bad.conn)
	}
	if got := l.status().State; got != lifecycle.New {
		t.Errorf("the session is %s", got)
	}
}

func TestImpossibleValuesAreRefusedAndLeaveNothing(t *testing.T) {
	s := newSession(t)
	l := s.dial()
	spec := func(change func(*protocol.StartSpec)) protocol.StartSpec {
		spec := shell("true")
		change(&spec)
		return spec
	}
	for name, bad := range map[string]protocol.StartSpec{
		"no program":    {},
		"NUL":           spec(func(s *protocol.StartSpec) { s.Args[1] = []byte("a\x00b") }),
		"relative cwd":  spec(func(s *protocol.StartSpec) { s.Cwd = []byte("tmp") }),
		"empty name":    spec(func(s *protocol.StartSpec) { s.Env[""] = "x" }),
		"name with =":   spec(func(s *protocol.StartSpec) { s.Env["a=b"] = "x" }),
		"zero size":     spec(func(s *protocol.StartSpec) { s.Size = &protocol.Size{} }),
		"absurd size":   spec(func(s *protocol.StartSpec) { s.Size = &protocol.Size{Cols: 65536, Rows: 1} }),
		"negative size": spec(func(s *protocol.StartSpec) { s.Size = &protocol.Size{Cols: -1, Rows: 1} }),
		"bad history":   spec(func(s *protocol.StartSpec) { s.History = -1 }),
	} {
		if r := l.start(newID(), bad); r.Error == nil || r.Error.Code != protocol.CodeInvalid {
			t.Errorf("%s: %+v", name, r.Error)
		}
	}
	if r := l.start(protocol.MutationID{}, shell("true")); r.Error == nil || r.Error.Code != protocol.CodeInvalid {
		t.Errorf("no id: %+v", r.Error)
	}
	list := decode[protocol.ReceiptsAnswer](t, l.call(protocol.ReceiptsRequest{Head: l.head(protocol.OpReceipts)}))
	if len(list.Receipts) != 0 {
		t.Errorf("refusals left %+v", list.Receipts)
	}
	l.run("true")
}

func TestAnUnknownOperationIsTyped(t *testing.T) {
	l := newSession(t).dial()
	r := l.call(protocol.StatusRequest{Head: l.head("no-such-op")})
	if r.Error == nil || r.Error.Code != protocol.CodeUnknownOp {
		t.Errorf("%+v", r.Error)
	}
	l.status()
}

func TestABootstrapThatOthersCanReadIsRefused(t *testing.T) {
	s := makeSession(t)
	if err := os.Chmod(filepath.Join(s.dir.Path(), sessiondir.BootstrapFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := s.startGuardian(); r.Error == nil || r.Error.Stage != "directory" {
		t.Errorf("%+v", r)
	}
}

func TestALinkedDirectoryIsRefused(t *testing.T) {
	s := makeSession(t)
	link := filepath.Join(filepath.Dir(s.dir.Path()), "ses_00000000000000000000000000000001")
	if err := os.Symlink(s.dir.Path(), link); err != nil {
		t.Fatal(err)
	}
	if _, err := sessiondir.Open(link); err == nil {
		t.Error("a linked directory was opened")
	}
}

func TestASecondGuardianLeavesWithAlready(t *testing.T) {
	s := newSession(t)
	s.dial()
	if r := s.startGuardian(); !r.Already || r.Error != nil {
		t.Errorf("%+v", r)
	}
	s.dial().status()
}

func TestTheSocketIsPrivateAndBoundAgainWhenItsNameIsTaken(t *testing.T) {
	s := newSession(t)
	path := filepath.Join(s.dir.Path(), sessiondir.GuardianSocket)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	before := info.Sys().(*syscall.Stat_t).Ino
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the socket to be bound again", func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Sys().(*syscall.Stat_t).Ino != before
	})
	// Between bind(2) and listen(2) the name refuses; a client tries again.
	s.reach().status()
}

func TestEachLimitIsAnsweredBusy(t *testing.T) {
	s := newSession(t)
	limits := protocol.DefaultLimits()
	var kept []*link
	for range limits.RequestConns {
		l := s.dial()
		l.status()
		kept = append(kept, l)
	}
	over := s.dial()
	r := over.call(protocol.StatusRequest{Head: over.head(protocol.OpStatus)})
	if r.Error == nil || r.Error.Code != protocol.CodeBusy || r.Error.Retry != protocol.RetryLater {
		t.Errorf("one request connection too many: %+v", r.Error)
	}
	closed(t, over.conn)
	for range limits.Attachers {
		kept = append(kept, s.attach(protocol.AttachRequest{}))
	}
	over = s.dial()
	if r := over.call(protocol.AttachRequest{Head: over.head(protocol.OpAttach)}); r.Error == nil || r.Error.Code != protocol.CodeBusy {
		t.Errorf("one attacher too many: %+v", r.Error)
	}
	for range limits.Subscribers {
		l := s.dial()
		if r := l.call(protocol.SubscribeRequest{Head: l.head(protocol.OpSubscribe)}); r.Error != nil {
			t.Fatal(r.Error)
		}
		kept = append(kept, l)
	}
	over = s.dial()
	if r := over.call(protocol.SubscribeRequest{Head: over.head(protocol.OpSubscribe)}); r.Error == nil || r.Error.Code != protocol.CodeBusy {
		t.Errorf("one subscriber too many: %+v", r.Error)
	}
	kept[0].status()
	kept[1].conn.Close()
	eventually(t, "the free place", func() bool {
		l := s.dial()
		defer l.conn.Close()
		return l.call(protocol.StatusRequest{Head: l.head(protocol.OpStatus)}).Error == nil
	})
}

func TestAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	s := newSession(t)
	for dir := s.dir.Path(); dir != "/"; dir = filepath.Dir(dir) {
		// Even a directory that lets everybody in does not help.
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o005 == 0 {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(filepath.Join(s.dir.Path(), sessiondir.GuardianSocket), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "MUR_TEST_DIAL="+s.dir.Path())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != string(protocol.CodeUnauthorized) {
		t.Errorf("%s, %v", out, err)
	}
	s.dial().status()
}
