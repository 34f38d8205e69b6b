package owner

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/journal"
	"github.com/seed-8e62c83d/mur/internal/lifecycle"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

func openDir(t *testing.T) *os.File {
	t.Helper()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

// onDisk is what a reader would say.
func onDisk(t *testing.T, dir *os.File) lifecycle.Outcome {
	t.Helper()
	records, err := journal.Read(dir, sessiondir.OutcomeFile)
	if err != nil {
		t.Fatal(err)
	}
	var o lifecycle.Outcome
	for _, b := range records {
		var r lifecycle.OutcomeRecord
		if err := protocol.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		o.Add(r)
	}
	return o
}

// life is one of each record, in an order in which they can come.
func life() []lifecycle.OutcomeRecord {
	yes, no := true, false
	return []lifecycle.OutcomeRecord{
		{Launching: true},
		{At: 77, Running: &lifecycle.Process{PID: 5, Start: 6, Boot: "b"}},
		{Report: &lifecycle.Report{Running: true}},
		{Stopped: &yes},
		{Applied: "one"},
		{Stopped: &no},
		{Applied: "two", Delivered: true},
		{Exit: &lifecycle.ExitStatus{Signal: 9, Core: true, At: 8, Usage: &lifecycle.Usage{UserNanos: 1}}},
		{Drain: &lifecycle.DrainReport{State: lifecycle.DrainCut, EndOffset: 3, Holders: 1}},
		{Consumed: true},
		{Childless: true},
	}
}

func TestNothingIsForgottenWhicheverWriteFails(t *testing.T) {
	records := life()
	for bad := range len(records) + 1 {
		dir := openDir(t)
		l, err := newLedger(dir)
		if err != nil {
			t.Fatal(err)
		}
		var want lifecycle.Outcome
		for i, r := range records {
			if i == bad {
				breakOutcome(t, dir)
			}
			if err := l.commit(r); (err != nil) != (i >= bad) {
				t.Fatalf("broken at %d: commit %d: %v", bad, i, err)
			}
			if r.At == 0 {
				r.At = 1
			}
			want.Add(r)
		}
		if l.settled() != (bad == len(records)) || (l.trouble() == "") != l.settled() {
			t.Errorf("broken at %d: settled %v, trouble %q", bad, l.settled(), l.trouble())
		}
		if bad < len(records) {
			if err := os.Remove(filepath.Join(dir.Name(), sessiondir.OutcomeFile)); err != nil {
				t.Fatal(err)
			}
			if err := l.flush(); err != nil {
				t.Fatal(err)
			}
		}
		if got := onDisk(t, dir); !l.settled() || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(l.durable, want) {
			t.Errorf("broken at %d:\n got %+v\nwant %+v", bad, got, want)
		}
		l.file.Close()
	}
}

// breakOutcome takes the file away and puts a directory in its place: neither an
// append nor a new file is possible.
func breakOutcome(t *testing.T, dir *os.File) {
	t.Helper()
	_ = unix.Unlinkat(int(dir.Fd()), sessiondir.OutcomeFile, 0)
	if err := unix.Mkdirat(int(dir.Fd()), sessiondir.OutcomeFile, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestAnOutcomeIsNeverOverwrittenByAnotherOwner(t *testing.T) {
	dir := openDir(t)
	l, err := newLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.commit(lifecycle.OutcomeRecord{Launching: true}); err != nil {
		t.Fatal(err)
	}
	defer l.file.Close()
	if _, err := newLedger(dir); err == nil {
		t.Error("taken")
	}
}

func TestLongLivedOutcomeIsCondensed(t *testing.T) {
	dir := openDir(t)
	l, err := newLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	failure := &lifecycle.Failure{Message: string(make([]byte, 200_000))}
	for range 30 {
		if err := l.commit(lifecycle.OutcomeRecord{Failure: failure}); err != nil {
			t.Fatal(err)
		}
	}
	defer l.file.Close()
	info, err := os.Stat(filepath.Join(dir.Name(), sessiondir.OutcomeFile))
	if err != nil || info.Size() > 2<<20 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if got := onDisk(t, dir); got.Failure == nil || len(got.Failure.Message) != 200_000 {
		t.Errorf("%+v", got.Failure)
	}
}

func FuzzParseKin(f *testing.F) {
	f.Add([]byte("12 (a) b) S 1 12 12 34816 12 0"))
	f.Add([]byte("12 (sleep) Z 1 12"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, ok := parseKin(b)
		if !ok && k != (kin{}) {
			t.Errorf("%+v", k)
		}
	})
}

func TestRelationsOfThisProcess(t *testing.T) {
	k, ok := kinOf(os.Getpid())
	if !ok || k.ppid != os.Getppid() || k.pgrp != unix.Getpgrp() || k.zombie {
		t.Errorf("%+v %v", k, ok)
	}
	if ours(1) || ours(os.Getppid()) || ours(os.Getpid()) || ours(1<<30) {
		t.Error("takes strangers for its own")
	}
}
