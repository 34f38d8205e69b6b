package wasmhost

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// compiled runs a small module with a cache and says how many entries there are.
func compiled(t *testing.T, dir string) int {
	t.Helper()
	res, err := Run(context.Background(), Config{Capsule: testCapsule(manifest(), tinyModule()), WorkDir: t.TempDir(), CacheDir: dir})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), scratchPrefix) {
			t.Fatalf("%s was left behind", e.Name())
		}
	}
	return len(entries)
}

// cachedFiles are the files of the only entry.
func cachedFiles(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	return files
}

func TestTheCacheIsFilledOnceAndOnlyTheOwnersOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "cache")
	if n := compiled(t, dir); n != 1 {
		t.Fatalf("%d entries", n)
	}
	before := snapshot(t, dir)
	if n := compiled(t, dir); n != 1 || snapshot(t, dir) != before {
		t.Fatal("a second run wrote again")
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if n := compiled(t, open); n != 0 {
		t.Fatal("a directory that others can write to was used")
	}
}

func snapshot(t *testing.T, dir string) (s string) {
	t.Helper()
	for _, f := range cachedFiles(t, dir) {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		s += f + info.ModTime().String()
	}
	return s
}

func TestADamagedEntryIsReplaced(t *testing.T) {
	for name, damage := range map[string]func(file string) error{
		"truncated": func(file string) error { return os.Truncate(file, 3) },
		"emptied":   func(file string) error { return os.Truncate(file, 0) },
		"removed":   os.Remove,
		"garbled": func(file string) error {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for i := len(b) / 3; i < len(b); i += 7 {
				b[i] ^= 0xff
			}
			return os.WriteFile(file, b, 0o600)
		},
		"added to": func(file string) error { return os.WriteFile(file+"x", nil, 0o600) },
		"linked": func(file string) error {
			if err := os.Rename(file, file+"x"); err != nil {
				return err
			}
			return os.Symlink(file+"x", file)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range 2 {
				dir := filepath.Join(t.TempDir(), "cache")
				compiled(t, dir)
				if err := damage(cachedFiles(t, dir)[i]); err != nil {
					t.Fatal(err)
				}
				if n := compiled(t, dir); n != 1 {
					t.Fatalf("%d entries", n)
				}
				c := openCache(dir, testCapsule(nil, tinyModule()).Digest)
				if _, ok := c.lookup(); !ok {
					t.Fatal("the entry was not replaced")
				}
			}
		})
	}
}

func TestAnEntryWithTheRightSumsAndTheWrongContentIsReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	compiled(t, dir)
	c := openCache(dir, testCapsule(nil, tinyModule()).Digest)
	for _, f := range cachedFiles(t, dir) {
		if filepath.Base(f) != sumsFile {
			if err := os.WriteFile(f, []byte("not machine code at all"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	sums, err := checksums(c.entry())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.entry(), sumsFile), []byte(sums), 0o600); err != nil {
		t.Fatal(err)
	}
	compiled(t, dir)
	if _, ok := c.lookup(); !ok {
		t.Fatal("the entry was not replaced")
	}
}

func TestManyWritersMakeOneEntry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			p, err := compileCached(context.Background(), tinyModule(), openCache(dir, "digest"), func() {})
			if err != nil {
				t.Error(err)
				return
			}
			p.close()
		})
	}
	wg.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	if _, ok := openCache(dir, "digest").lookup(); !ok {
		t.Fatal("the entry is not good")
	}
}

func TestWhatACrashedWriterLeftIsSweptWhenItIsOld(t *testing.T) {
	dir := t.TempDir()
	old, young := filepath.Join(dir, scratchPrefix+"old"), filepath.Join(dir, scratchPrefix+"young")
	for _, d := range []string{old, young} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * scratchAge)
	if err := os.Chtimes(old, long, long); err != nil {
		t.Fatal(err)
	}
	(&cache{dir: dir}).sweep()
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Fatal("an old scratch is still there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Fatal("a young scratch is gone")
	}
}

func TestCompilingIsAnnouncedAndCanBeStopped(t *testing.T) {
	module, _, _ := probe(t)
	var events []bool
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir := filepath.Join(t.TempDir(), "cache")
	res, err := Run(ctx, Config{
		Capsule: testCapsule(manifest(), module), WorkDir: t.TempDir(), CacheDir: dir,
		Compiling: func(active bool) {
			events = append(events, active)
			cancel()
		},
	})
	if err != nil || res.Reason != Canceled || res.Abandoned {
		t.Fatalf("%+v, %v", res, err)
	}
	if len(events) != 2 || !events[0] || events[1] {
		t.Fatalf("events %v", events)
	}
}
