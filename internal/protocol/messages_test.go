package protocol

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seed-8e62c83d/mur/internal/lifecycle"
)

// message is one kind of frame: how to make an empty one and one with all fields.
type message struct {
	name  string
	empty func() any
	full  any // a pointer
}

func of[T any](name string, full T) message {
	return message{name: name, empty: func() any { return new(T) }, full: &full}
}

func exampleID() MutationID {
	return MutationID{0x01, 0x8b, 0xcf, 0xe5, 0x68, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 1}
}

func exampleRecord() *lifecycle.Record {
	code := 7
	return &lifecycle.Record{
		Result: lifecycle.ResultExited, ExitCode: &code, Reason: "deadline", AskedBy: exampleID().String(),
		Times: exampleTimes(), Duration: 5_000_000, Usage: &lifecycle.Usage{UserNanos: 1, SystemNanos: 2, MaxRSSBytes: 4096},
		EndOffset: 6, Drain: lifecycle.DrainEmpty, Holders: 1, Descendants: 2,
	}
}

func exampleTimes() lifecycle.Times {
	return lifecycle.Times{Created: 1_700_000_000_000_000_000, Started: 1_700_000_000_001_000_000, Exited: 1_700_000_000_006_000_000, Ended: 1_700_000_000_007_000_000}
}

func exampleSnapshot() *lifecycle.Snapshot {
	code := 7
	return &lifecycle.Snapshot{
		Durable: lifecycle.Durable{
			Version: 1, Session: string(NewSessionID(exampleID())), Name: "build", Generation: 2, Revision: 9,
			State: lifecycle.Ended, Started: true, StartID: exampleID().String(), Program: "sh",
			Capsule:   &lifecycle.Capsule{Name: "local/notes", Version: "1.2.0", SHA256: "00ff", Path: "/x/notes"},
			TargetPID: 42, Target: &lifecycle.Process{PID: 42, Start: 4200, Boot: "b"}, OwnerPID: 41,
			ExitCode: &code, TargetTerminated: true, AskedBy: exampleID().String(),
			CleanupError: &lifecycle.Failure{Stage: "release", Errno: 5, Message: "input/output error"},
			Times:        exampleTimes(), Record: exampleRecord(),
		},
		Live: &lifecycle.Live{Cols: 80, Rows: 24, OutputEnd: 6, Attached: 1, Subscribers: 1, GuardianPID: 40},
	}
}

func exampleStart() StartSpec {
	return StartSpec{
		Program: []byte("sh"), Args: [][]byte{[]byte("-c"), []byte("exit 7"), {0xff, 0x00}}, Cwd: []byte("/tmp"),
		Env:  map[Bytes]Bytes{"PATH": "/usr/bin:/bin", "A\xff": "", "TERM": "xterm"},
		Size: &Size{Cols: 100, Rows: 30}, Umask: new(int), History: 65_536,
	}
}

// messages lists every kind of frame that goes over a session's sockets.
func messages() []message {
	id, limits := exampleID(), DefaultLimits()
	head := func(op Op) Head { return Head{ID: 1, Op: op} }
	refusal := Refuse(CodeConflict, "cannot start: the launch is held")
	refusal.Holder = id.String()
	since := int64(4)
	return []message{
		of("Hello", Hello{Version: 1, ExecutionToken: []byte{1, 2}, Authentication: []byte{3, 4}, Capabilities: Capabilities()}),
		of("Welcome", Welcome{Version: 1, MinVersion: 1, Session: NewSessionID(id), Role: RoleController, Capabilities: Capabilities(), Generation: 2, Limits: &limits}),
		of("Ready", Ready{Version: 1, PID: 40, Generation: 2, Already: true, Error: &lifecycle.Failure{Stage: "journal", Message: "no"}}),
		of("Head", head("unheard-of")),
		of("StartRequest", StartRequest{Head: head(OpStart), MutationID: id, StartSpec: exampleStart()}),
		of("StartAnswer", StartAnswer{MutationID: id, State: lifecycle.LaunchFailed, TargetPID: 42, Error: &lifecycle.Failure{Stage: "exec", Errno: 2, Message: "no such file or directory"}}),
		of("TermRequest", TermRequest{Head: head(OpTerm), MutationID: id, GraceMS: 10_000}),
		of("SweepRequest", SweepRequest{Head: head(OpSweep), MutationID: id}),
		of("SweepAnswer", SweepAnswer{MutationID: id, Proved: true, Processes: []Swept{{PID: 42, Name: "sh", How: "target", Signal: 9, Gone: true}}, Partial: "p"}),
		of("RetireRequest", RetireRequest{Head: head(OpRetire), MutationID: id}),
		of("RetireAnswer", RetireAnswer{MutationID: id, Record: exampleRecord()}),
		of("SignalRequest", SignalRequest{Head: head(OpSignal), MutationID: id, Signal: 10, Group: GroupAll}),
		of("ControlAnswer", ControlAnswer{MutationID: id, Delivery: NotDelivered, Errno: 1}),
		of("StatusRequest", StatusRequest{head(OpStatus)}),
		of("ResizeRequest", ResizeRequest{Head: head(OpResize), Size: Size{Cols: 132, Rows: 43}}),
		of("InputRequest", InputRequest{Head: head(OpInput), Bytes: []byte("ls\r")}),
		of("InputAnswer", InputAnswer{Written: 3}),
		of("ReadRequest", ReadRequest{Head: head(OpRead), From: 4, Max: 100}),
		of("ReadAnswer", ReadAnswer{From: 4, Bytes: []byte{0, 0xff}, End: 6}),
		of("ReceiptsRequest", ReceiptsRequest{Head: head(OpReceipts), MutationID: &id}),
		of("ReceiptsAnswer", ReceiptsAnswer{Receipts: []Receipt{{MutationID: id, Op: "term", AdmittedAt: 5, CompletedAt: 6, Code: "ok", Response: []byte{0xa0}}}}),
		of("LeaveRequest", LeaveRequest{head(OpLeave), true}),
		of("SubscribeRequest", SubscribeRequest{Head: head(OpSubscribe), Since: 3, LiveMS: 500}),
		of("SubscribeFrame", SubscribeFrame{Snapshot: exampleSnapshot(), Skipped: true, Last: true}),
		of("AttachRequest", AttachRequest{Head: head(OpAttach), Size: &Size{Cols: 80, Rows: 24}, ReadOnly: true, Since: &since, Back: 4096, Nudge: true}),
		of("AttachFrame", AttachFrame{Output: &OutputFrame{Offset: 4, Next: 6, Bytes: []byte("ok")}}),
		of("AttachInput", AttachInput{Input: &InputFrame{Seq: 1, Bytes: []byte{0x1b, '[', 'A'}}}),
		of("Response", Response{ID: 1, OK: []byte{0xa1, 0x67, 'w', 'r', 'i', 't', 't', 'e', 'n', 0x03}, Replayed: true, NotDurable: true, Snapshot: exampleSnapshot()}),
		of("Error", *refusal),
	}
}

// kinds maps a name to a maker of empty messages.
func kinds() map[string]func() any {
	m := map[string]func() any{}
	for _, msg := range messages() {
		m[msg.name] = msg.empty
	}
	return m
}

// alike compares messages as the wire does: nil and empty are one.
func alike(a, b any) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty())
}

func TestEveryMessageComesBackAsItWent(t *testing.T) {
	for _, m := range messages() {
		t.Run(m.name, func(t *testing.T) {
			first, err := Marshal(m.full)
			if err != nil {
				t.Fatal(err)
			}
			back := m.empty()
			if err := Unmarshal(first, back); err != nil {
				t.Fatal(err)
			}
			if diff := alike(m.full, back); diff != "" {
				t.Errorf("came back different:\n%s", diff)
			}
			second, err := Marshal(back)
			if err != nil {
				t.Fatal(err)
			}
			if string(first) != string(second) {
				t.Errorf("encoded again it is %x, was %x", second, first)
			}
		})
	}
}

// TestExamplesLeaveNoFieldOut keeps the examples, and so the vectors, whole as
// messages grow.
func TestExamplesLeaveNoFieldOut(t *testing.T) {
	alternatives := map[string]bool{"AttachFrame": true, "AttachInput": true, "Response": true, "Welcome": true}
	for _, m := range messages() {
		v := reflect.ValueOf(m.full).Elem()
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if v.Field(i).IsZero() && !alternatives[m.name] && field.Name != "Capsule" {
				t.Errorf("the example of %s has no %s", m.name, field.Name)
			}
		}
	}
}

func TestListsAreListsAndNeverNull(t *testing.T) {
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"no processes": {struct {
			P []Swept `json:"p"`
		}{}, "\xa1\x61p\x80"},
		"no bytes": {struct {
			B []byte `json:"b"`
		}{}, "\xa1\x61b\x40"},
	} {
		got, err := Marshal(c.value)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %x, %v, want %x", name, got, err, c.want)
		}
	}
}

func TestAMessageWithAnyBytesInATextStaysReadable(t *testing.T) {
	long := make([]byte, 300)
	for i := range long {
		long[i] = 0xff
	}
	for _, name := range []string{"", "sh", "\xff", "caf\xe9 \u00e9", "\xe2\x82", string(long)} {
		item, err := Marshal(lifecycle.Durable{Program: name, Error: &lifecycle.Failure{Message: name + ": " + name}})
		if err != nil {
			t.Fatal(err)
		}
		var back lifecycle.Durable
		if err := Unmarshal(item, &back); err != nil {
			t.Errorf("%q made the snapshot unreadable: %v", name, err)
		}
		if len(back.Program) != len(name) {
			t.Errorf("%q became %q", name, back.Program)
		}
	}
}

func TestRepairingTextLeavesBytesAndNumbersAlone(t *testing.T) {
	spec := exampleStart()
	for _, n := range []int{23, 24, 255, 256, 65_535, 65_536, 200_000} {
		spec.Args = append(spec.Args, make([]byte, n))
		spec.Args[len(spec.Args)-1][n-1] = 0xff
		spec.History = int64(n)
	}
	spec.History = -1 << 62
	item, err := Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var back StartSpec
	if err := Unmarshal(item, &back); err != nil {
		t.Fatal(err)
	}
	if back.History != spec.History || len(back.Args) != len(spec.Args) {
		t.Fatalf("came back with history %d and %d arguments", back.History, len(back.Args))
	}
	for i := range spec.Args {
		if !bytes.Equal(back.Args[i], spec.Args[i]) {
			t.Errorf("argument %d came back different", i)
		}
	}
}

func TestMutationIDsAreVersionSevenAndSortByTime(t *testing.T) {
	early := time.UnixMilli(1_700_000_000_000)
	a, b := NewMutationID(early), NewMutationID(early.Add(time.Millisecond))
	if a[6]>>4 != 7 || a[8]>>6 != 2 {
		t.Errorf("%s is no version 7 UUID", a)
	}
	if a.String() >= b.String() {
		t.Errorf("%s is not before %s", a, b)
	}
	back, err := ParseMutationID(a.String())
	if err != nil || back != a {
		t.Errorf("%s came back as %s, %v", a, back, err)
	}
}

func TestWhatIsNoIDIsRefused(t *testing.T) {
	for _, s := range []string{
		"", "x", "00000000-0000-0000-0000-000000000000", "018bcfe5680070008000000000000001",
		"018bcfe5-6800-7000-8000-00000000000g", "{018bcfe5-6800-7000-8000-000000000001}",
		"018bcfe5-6800-7000-8000-0000000000-1", "018bcfe5-6800-7000-8000-000000000001 ",
	} {
		if id, err := ParseMutationID(s); err == nil {
			t.Errorf("operation id %q was read as %s", s, id)
		}
	}
	for _, s := range []string{"", "ses_", "ses_018BCFE5680070008000000000000001", "018bcfe5680070008000000000000001", "ses_018bcfe568007000800000000000000/"} {
		if id, err := ParseSessionID(s); err == nil {
			t.Errorf("session id %q was read as %s", s, id)
		}
	}
	want := NewSessionID(exampleID())
	if got, err := ParseSessionID(string(want)); err != nil || got != want {
		t.Errorf("%s came back as %s, %v", want, got, err)
	}
}

func TestAnIDThatIsNotThereIsLeftOut(t *testing.T) {
	item, err := Marshal(SweepAnswer{Proved: true})
	if err != nil {
		t.Fatal(err)
	}
	var back SweepAnswer
	if err := Unmarshal(item, &back); err != nil || back.MutationID != (MutationID{}) {
		t.Errorf("%x came back as %+v, %v", item, back, err)
	}
	if bytes.Contains(item, []byte("mutation_id")) {
		t.Errorf("%q has an id", item)
	}
}
