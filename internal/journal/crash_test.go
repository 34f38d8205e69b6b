package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/durable"
)

const childEnv = "MUR_JOURNAL_TEST_DIR"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		fmt.Fprintln(os.Stderr, writeUntilKilled(path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func numbered(i int) []byte {
	return fmt.Appendf(nil, "%d:%s", i, bytes.Repeat([]byte{'x'}, i*31%3000))
}

// writeUntilKilled appends numbered records, prints each number when it is
// durable, and compacts to the last five now and then.
func writeUntilKilled(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := durable.ClearTemps(dir); err != nil {
		return err
	}
	j, records, err := Open(dir, "journal")
	if err != nil {
		return err
	}
	next := 0
	if len(records) > 0 {
		last, _, _ := bytes.Cut(records[len(records)-1], []byte(":"))
		if next, err = strconv.Atoi(string(last)); err != nil {
			return err
		}
		next++
	}
	for ; ; next += 2 {
		pair := [][]byte{numbered(next), numbered(next + 1)}
		if err := j.Append(pair...); err != nil {
			return err
		}
		records = append(records, pair...)
		if _, err := fmt.Println(next + 1); err != nil {
			return err
		}
		if len(records) > 30 {
			records = records[len(records)-5:]
			old := j
			if j, err = Rewrite(dir, "journal", records); err != nil {
				return err
			}
			_ = old.Close()
		}
	}
}

func TestEveryAcknowledgedRecordSurvivesKill(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	_ = create(t, dir).Close()
	acked := -1
	for round := range 50 {
		acked = max(acked, killOne(t, path, rand.IntN(40)))
		if err := durable.ClearTemps(dir); err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(path); len(left) != 1 {
			t.Fatalf("round %d left %v", round, left)
		}
		j, records, err := Open(dir, "journal")
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		_ = j.Close()
		last := checkNumbered(t, records)
		if last < acked || last > acked+2 || last%2 == 0 && len(records) > 0 {
			t.Fatalf("round %d: last record %d, acknowledged %d", round, last, acked)
		}
		acked = max(acked, last) // from now on it may not be lost either
	}
	t.Logf("%d records through 50 kills", acked+1)
}

// killOne lets a child acknowledge some records, kills it wherever it then is,
// and returns the last number it acknowledged.
func killOne(t *testing.T, path string, after int) int {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+path)
	var stderr bytes.Buffer
	child.Stderr = &stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(20*time.Second, func() { _ = child.Process.Kill() })
	defer guard.Stop()
	acked := -1
	lines := bufio.NewReader(out)
	for i := 0; ; i++ {
		if i == after {
			_ = child.Process.Kill()
		}
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if acked, err = strconv.Atoi(line[:len(line)-1]); err != nil {
			t.Fatal(err)
		}
	}
	_ = child.Wait()
	if stderr.Len() > 0 {
		t.Fatalf("child: %s", stderr.String())
	}
	return acked
}

func checkNumbered(t *testing.T, records [][]byte) (last int) {
	t.Helper()
	last = -1
	for i, record := range records {
		number, _, _ := bytes.Cut(record, []byte(":"))
		n, err := strconv.Atoi(string(number))
		if err != nil || !bytes.Equal(record, numbered(n)) || i > 0 && n != last+1 {
			t.Fatalf("record %d is %.40q after %d", i, record, last)
		}
		last = n
	}
	return last
}

// smallDisk mounts a tmpfs of that many bytes.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	path := t.TempDir()
	err := unix.Mount("none", path, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size))
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting a small tmpfs is not permitted here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return path
}

// fill takes all the space that is left.
func fill(t *testing.T, path string) (free func()) {
	t.Helper()
	f, err := os.Create(path)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	_ = f.Close()
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() { _ = os.Remove(path) }
}

func TestOnAFullDiskTheReserveIsKeptForWhatMustGoOn(t *testing.T) {
	path := smallDisk(t, 1<<20)
	dir := openDir(t, path)
	j := create(t, dir)
	free := fill(t, filepath.Join(path, "filler"))
	record := make([]byte, 1000)
	count := 0
	err := error(nil)
	for ; err == nil && count < 1000; count++ {
		err = j.Append(record)
	}
	if !errors.Is(err, ErrFull) || !errors.Is(err, unix.ENOSPC) || errors.Is(err, ErrPoisoned) {
		t.Fatal(err)
	}
	taken := count - 1 // 48 KiB of 64
	if taken < 40 || taken > 48 {
		t.Fatalf("%d records fitted beside the reserve", taken)
	}

	// Also a writer that starts on the full disk has the reserve.
	_ = j.Close()
	j, got, err := Open(dir, "journal")
	if err != nil || len(got) != taken {
		t.Fatalf("%d records, %v", len(got), err)
	}
	defer func() { _ = j.Close() }()
	if err := j.Append(record); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if _, err := Rewrite(dir, "journal", got); !errors.Is(err, ErrFull) {
		t.Fatalf("rewrite on a full disk: %v", err)
	}
	reserved := 0
	for err = nil; err == nil && reserved < 1000; reserved++ {
		err = j.AppendReserved(record)
	}
	if reserved--; !errors.Is(err, ErrFull) || reserved < 15 {
		t.Fatalf("%d records in the reserve, %v", reserved, err)
	}

	free()
	if err := j.Append(record); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	if got, err := Read(dir, "journal"); err != nil || len(got) != taken+reserved+1 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	if left, _ := os.ReadDir(path); len(left) != 1 {
		t.Fatalf("left behind: %v", left)
	}
}

func TestCreateOnAFullDiskLeavesNothing(t *testing.T) {
	path := smallDisk(t, 128<<10)
	dir := openDir(t, path)
	free := fill(t, filepath.Join(path, "filler"))
	if _, err := Create(dir, "journal"); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	free()
	if left, _ := os.ReadDir(path); len(left) != 0 {
		t.Fatalf("left behind: %v", left)
	}
	create(t, dir)
}
