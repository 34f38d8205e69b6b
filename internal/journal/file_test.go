package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func openDir(t testing.TB, path string) *os.File {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return dir
}

func create(t testing.TB, dir *os.File) *File {
	t.Helper()
	j, err := Create(dir, "journal")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func text(records [][]byte) []string {
	list := []string{}
	for _, record := range records {
		list = append(list, string(record))
	}
	return list
}

func TestAppendedRecordsAreThereAfterReopen(t *testing.T) {
	dir := openDir(t, t.TempDir())
	j := create(t, dir)
	if err := j.Append([]byte("one"), []byte("two")); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(); err != nil {
		t.Fatal(err)
	}
	if err := j.AppendReserved([]byte("three")); err != nil {
		t.Fatal(err)
	}
	want := []string{"one", "two", "three"}
	if got, err := Read(dir, "journal"); err != nil || !slices.Equal(text(got), want) {
		t.Fatalf("read beside the writer: %q, %v", got, err)
	}
	_ = j.Close()
	j, got, err := Open(dir, "journal")
	if err != nil || !slices.Equal(text(got), want) {
		t.Fatalf("opened: %q, %v", got, err)
	}
	defer j.Close()
	if err := j.Append([]byte("four")); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(dir, "journal"); err != nil || !slices.Equal(text(got), append(want, "four")) {
		t.Fatalf("read after reopening: %q, %v", got, err)
	}
}

func TestOnlyTheFirstCreateWins(t *testing.T) {
	dir := openDir(t, t.TempDir())
	create(t, dir)
	if _, err := Create(dir, "journal"); !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
}

func TestAMissingJournalIsNotDamage(t *testing.T) {
	dir := openDir(t, t.TempDir())
	if _, _, err := Open(dir, "journal"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := Read(dir, "journal"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestLinksAndSpecialFilesAreRefused(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	create(t, dir)
	if err := os.Symlink("journal", filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(path, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "fifo", "."} {
		if _, _, err := Open(dir, name); err == nil {
			t.Errorf("opened %s", name)
		}
		if _, err := Read(dir, name); err == nil {
			t.Errorf("read %s", name)
		}
	}
}

func TestADamagedJournalIsRefusedAndLeftAlone(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	j := create(t, dir)
	for i := range 3 {
		if err := j.Append(fmt.Appendf(nil, "record %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	_ = j.Close()
	file := filepath.Join(path, "journal")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[bytes.Index(data, []byte("record 1"))] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = Open(dir, "journal")
	wantCorrupt(t, err)
	_, err = Read(dir, "journal")
	wantCorrupt(t, err)
	if after, _ := os.ReadFile(file); !bytes.Equal(after, data) {
		t.Fatal("a damaged journal was changed")
	}
}

func TestReadingATornJournalDoesNotChangeIt(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	j := create(t, dir)
	if err := j.Append([]byte("kept")); err != nil {
		t.Fatal(err)
	}
	commit, _ := appendCommit(nil, j.id, j.end, [][]byte{[]byte("vanished")})
	if _, err := j.f.WriteAt(commit[:len(commit)-2], j.end); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(path, "journal"))
	if got, err := Read(dir, "journal"); err != nil || !slices.Equal(text(got), []string{"kept"}) {
		t.Fatalf("%q, %v", got, err)
	}
	if after, _ := os.ReadFile(filepath.Join(path, "journal")); !bytes.Equal(before, after) {
		t.Fatal("changed by a reader")
	}
	again, got, err := Open(dir, "journal")
	if err != nil || !slices.Equal(text(got), []string{"kept"}) {
		t.Fatalf("%q, %v", got, err)
	}
	defer again.Close()
	after, _ := os.ReadFile(filepath.Join(path, "journal"))
	if bytes.Contains(after, []byte("vani")) || len(after) != len(before) {
		t.Fatal("the torn commit was not zeroed in place")
	}
}

func TestTooLargeAndEmptyRecordsAreRefusedWithoutHarm(t *testing.T) {
	dir := openDir(t, t.TempDir())
	j := create(t, dir)
	big := make([]byte, MaxRecord)
	if err := j.Append(append(big, 0)); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	if err := j.Append(slices.Repeat([][]byte{big}, 16)...); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	if err := j.Append([]byte("x"), nil); err == nil {
		t.Fatal("empty record taken")
	}
	if err := j.Append(big, big); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(dir, "journal"); err != nil || len(got) != 2 || !bytes.Equal(got[1], big) {
		t.Fatalf("%d records, %v", len(got), err)
	}
}

func TestCompactionIsDueAboveOneMiBAndTwiceTheLast(t *testing.T) {
	dir := openDir(t, t.TempDir())
	j := create(t, dir)
	chunk := bytes.Repeat([]byte("r"), 300<<10)
	var kept [][]byte
	for i := range 4 {
		if j.ShouldCompact() {
			t.Fatalf("due after %d", i)
		}
		if err := j.Append(chunk); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, chunk)
	}
	if !j.ShouldCompact() {
		t.Fatal("not due")
	}
	next, err := Rewrite(dir, "journal", kept[:3])
	if err != nil {
		t.Fatal(err)
	}
	_ = next.Close()
	if next, _, err = Open(dir, "journal"); err != nil { // remembered in the file
		t.Fatal(err)
	}
	defer next.Close()
	for i := range 3 {
		if err := next.Append(chunk); err != nil || next.ShouldCompact() {
			t.Fatalf("after %d more: due, or %v", i, err)
		}
		if i == 1 { // 1.5 MiB, less than twice 0.9
			break
		}
	}
	if err := next.Append(chunk, chunk); err != nil || !next.ShouldCompact() {
		t.Fatalf("not due, or %v", err)
	}
	// The old file has lost its name: nothing may be lost in it.
	if err := j.Append([]byte("into nowhere")); !errors.Is(err, ErrPoisoned) {
		t.Fatalf("appended to a replaced file: %v", err)
	}
}

func TestAFailedRewriteLeavesTheOldJournalInUse(t *testing.T) {
	dir := openDir(t, t.TempDir())
	j := create(t, dir)
	if err := j.Append([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := Rewrite(dir, "journal", [][]byte{make([]byte, MaxRecord+1)}); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	if err := j.Append([]byte("two")); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(dir, "journal"); err != nil || !slices.Equal(text(got), []string{"one", "two"}) {
		t.Fatalf("%q, %v", got, err)
	}
}

// breakFile puts another file under the journal's descriptor, one on which a
// write (/dev/full) or only the sync (/dev/null) fails for real.
func breakFile(t *testing.T, j *File, device string) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Dup3(int(f.Fd()), int(j.f.Fd()), unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
}

func TestAFailedWriteOrSyncPoisonsTheFileForGood(t *testing.T) {
	for device, cause := range map[string]error{"/dev/full": unix.ENOSPC, "/dev/null": unix.EINVAL} {
		t.Run(filepath.Base(device), func(t *testing.T) {
			path := t.TempDir()
			dir := openDir(t, path)
			j := create(t, dir)
			if err := j.Append([]byte("one")); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(filepath.Join(path, "journal"))
			whole, err := openAt(dir, "journal", unix.O_RDWR)
			if err != nil {
				t.Fatal(err)
			}
			defer whole.Close()
			breakFile(t, j, device)
			if err := j.Append([]byte("two")); !errors.Is(err, ErrPoisoned) || !errors.Is(err, cause) || errors.Is(err, ErrFull) {
				t.Fatalf("broken: %v", err)
			}
			if err := unix.Dup3(int(whole.Fd()), int(j.f.Fd()), unix.O_CLOEXEC); err != nil { // the disk is well again
				t.Fatal(err)
			}
			for _, appending := range []func(...[]byte) error{j.Append, j.AppendReserved} {
				if err := appending([]byte("three")); !errors.Is(err, ErrPoisoned) || !errors.Is(err, cause) {
					t.Fatalf("poisoned: %v", err)
				}
			}
			if after, _ := os.ReadFile(filepath.Join(path, "journal")); !bytes.Equal(before, after) {
				t.Fatal("a poisoned file was written to")
			}
			fresh, err := Rewrite(dir, "journal", [][]byte{[]byte("anew")})
			if err != nil {
				t.Fatal(err)
			}
			defer fresh.Close()
			if err := fresh.Append([]byte("on")); err != nil {
				t.Fatal(err)
			}
			if got, err := Read(dir, "journal"); err != nil || !slices.Equal(text(got), []string{"anew", "on"}) {
				t.Fatalf("%q, %v", got, err)
			}
		})
	}
}

func TestReadersBesideAWriterSeeOnlyWholeCommitsInOrder(t *testing.T) {
	dir := openDir(t, t.TempDir())
	j := create(t, dir)
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			seen := 0
			for {
				got, err := Read(dir, "journal")
				if err != nil || len(got) < seen || len(got)%2 != 0 {
					t.Errorf("after %d records: %d, %v", seen, len(got), err)
					return
				}
				for i, record := range got {
					if want := i / 2 % 251; record[0] != byte(want) {
						t.Errorf("record %d begins with %d, want %d", i, record[0], want)
						return
					}
				}
				seen = len(got)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 300 {
		record := bytes.Repeat([]byte{byte(i % 251)}, 1+i*97%7000)
		if err := j.Append(record, record); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	readers.Wait()
}

// The model is a list of records; the real thing goes through crashes.
func TestRandomAppendsCrashesAndRewritesKeepEveryCommit(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		path := t.TempDir()
		dir := openDir(t, path)
		j, err := Create(dir, "journal")
		if err != nil {
			r.Fatal(err)
		}
		defer func() { _ = j.Close() }()
		var model [][]byte
		reopen := func() {
			var got [][]byte
			_ = j.Close()
			if j, got, err = Open(dir, "journal"); err != nil {
				r.Fatal(err)
			}
			if diff := differ(model, got); diff != "" {
				r.Fatal(diff)
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"append": func(r *rapid.T) {
				records := drawRecords(r)
				if err := j.Append(records...); err != nil {
					r.Fatal(err)
				}
				model = append(model, records...)
			},
			"rewrite": func(r *rapid.T) {
				model = model[rapid.IntRange(0, len(model)).Draw(r, "dropped"):]
				next, err := Rewrite(dir, "journal", model)
				if err != nil {
					r.Fatal(err)
				}
				_ = j.Close()
				j = next
			},
			"reopen": func(*rapid.T) { reopen() },
			"crash": func(r *rapid.T) {
				// The last byte is no zero: each cut takes something away.
				records := append(drawRecords(r), []byte("."))
				commit, err := appendCommit(nil, j.id, j.end, records)
				if err != nil {
					r.Fatal(err)
				}
				if end := j.end + int64(len(commit)); end < j.allocated && rapid.Bool().Draw(r, "shorter") {
					if err := j.f.Truncate(rapid.Int64Range(j.end, end).Draw(r, "size")); err != nil {
						r.Fatal(err)
					}
				}
				n := rapid.IntRange(0, len(commit)).Draw(r, "written")
				if n == len(commit) {
					model = append(model, records...)
				} else if n > 0 && rapid.Bool().Draw(r, "flip") {
					commit[rapid.IntRange(0, n-1).Draw(r, "at")] ^= 0x10
				}
				if _, err := j.f.WriteAt(commit[:n], j.end); err != nil {
					r.Fatal(err)
				}
				reopen()
			},
		})
	})
}

func BenchmarkAppend(b *testing.B) {
	j := create(b, openDir(b, b.TempDir()))
	record := bytes.Repeat([]byte("r"), 90)
	for b.Loop() {
		if err := j.Append(record); err != nil {
			b.Fatal(err)
		}
	}
}
