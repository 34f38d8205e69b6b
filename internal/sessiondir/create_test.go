package sessiondir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/procs"
	"github.com/seed-8e62c83d/mur/internal/protocol"
)

func TestCreateGivesTheSameSessionAgain(t *testing.T) {
	r, id := newRoot(t), newID()
	size := &protocol.Size{Cols: 80, Rows: 24}
	d := create(t, r, id, CreateOptions{Name: "work", Size: size})
	if d.ID() != protocol.NewSessionID(id) || d.Path() != filepath.Join(r.Path(), "sessions", string(d.ID())) {
		t.Errorf("it is %s at %s", d.ID(), d.Path())
	}
	again, created, err := r.Create(id, CreateOptions{Name: "work", Size: &protocol.Size{Cols: 80, Rows: 24}})
	if err != nil || created {
		t.Fatalf("created %v, %v", created, err)
	}
	defer again.Close()
	if !bytes.Equal(again.Bootstrap().Secret, d.Bootstrap().Secret) {
		t.Error("the secret is another one")
	}
	for what, o := range map[string]CreateOptions{
		"name": {Name: "play", Size: size},
		"size": {Name: "work"},
	} {
		var conflict *ConflictError
		if _, _, err := r.Create(id, o); !errors.As(err, &conflict) || conflict.What != what || conflict.Session != d.ID() {
			t.Errorf("another %s gives %v", what, err)
		}
	}
	var taken *NameTakenError
	if _, _, err := r.Create(newID(), CreateOptions{Name: "work"}); !errors.As(err, &taken) || taken.Holder != d.ID() {
		t.Errorf("a second session of that name gives %v", err)
	}
	wantTidy(t, r)
}

func TestCreateRefusesWhatCannotBe(t *testing.T) {
	r := newRoot(t)
	if _, _, err := r.Create(protocol.MutationID{}, CreateOptions{}); err == nil {
		t.Error("the nil id was taken")
	}
	for _, name := range []string{"a/b", "..", ".x", "-x", "ses_1", string(bytes.Repeat([]byte{'a'}, 65)), "naïve", "a b", "0123456789abcdef0123456789abcdef"} {
		if _, _, err := r.Create(newID(), CreateOptions{Name: name}); !errors.Is(err, ErrBadName) {
			t.Errorf("the name %q gives %v", name, err)
		}
	}
	for _, size := range []protocol.Size{{Cols: 0, Rows: 1}, {Cols: 1, Rows: -1}, {Cols: 65536, Rows: 1}} {
		if _, _, err := r.Create(newID(), CreateOptions{Size: &size}); err == nil {
			t.Errorf("the size %v was taken", size)
		}
	}
	if ids, err := r.List(); err != nil || len(ids) != 0 {
		t.Errorf("left %v, %v", ids, err)
	}
	wantTidy(t, r)
}

func TestParallelCreatesForOneNameMakeOneSession(t *testing.T) {
	r := newRoot(t)
	same := newID()
	type result struct {
		id      protocol.SessionID
		secret  string
		created bool
		err     error
	}
	results := make([]result, 64)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			id := same
			if i%2 == 1 {
				id = newID()
			}
			// A root of its own each, as processes would have.
			own, err := OpenRoot(r.Path())
			if err != nil {
				results[i].err = err
				return
			}
			defer own.Close()
			d, created, err := own.Create(id, CreateOptions{Name: "one"})
			results[i] = result{created: created, err: err}
			if err == nil {
				results[i].id, results[i].secret = d.ID(), string(d.Bootstrap().Secret)
				d.Close()
			}
		})
	}
	wg.Wait()
	holder, err := r.Resolve("one")
	if err != nil {
		t.Fatal(err)
	}
	created, secrets := 0, make(map[string]bool)
	for i, got := range results {
		var taken *NameTakenError
		switch {
		case got.err == nil && got.id == holder:
			secrets[got.secret] = true
			if got.created {
				created++
			}
		case errors.As(got.err, &taken) && taken.Holder == holder:
			if i%2 == 0 && holder == protocol.NewSessionID(same) {
				t.Errorf("create %d of the holder's id was refused", i)
			}
		default:
			t.Errorf("create %d gives %q, %v", i, got.id, got.err)
		}
	}
	if created != 1 || len(secrets) != 1 {
		t.Errorf("%d created, %d secrets", created, len(secrets))
	}
	if ids, _ := r.List(); len(ids) != 1 {
		t.Errorf("sessions %v", ids)
	}
	wantTidy(t, r)
}

func TestLeftoversAreClearedAndTheLivingLeftAlone(t *testing.T) {
	r := newRoot(t)
	session := string(protocol.NewSessionID(newID()))
	mk := func(name string, files ...string) *os.File {
		t.Helper()
		dir, err := makeDir(r.sessions, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dir.Close() })
		for _, f := range files {
			file, err := createFile(dir, f, nil)
			if err != nil {
				t.Fatal(err)
			}
			file.Close()
		}
		return dir
	}
	mk(newPrefix + session + ".1")
	mk(newPrefix+session+".2", GuardianLock, BootstrapFile)
	mk(gonePrefix+session+".3", JournalFile)
	living := mk(newPrefix+session+".4", GuardianLock)
	lock, err := openFile(living, GuardianLock, unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if ok, err := procs.Lock(lock); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := os.WriteFile(filepath.Join(r.Path(), "names", ".tmp-00"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := create(t, r, newID(), CreateOptions{})
	left, err := readNames(r.sessions)
	if err != nil || len(left) != 2 {
		t.Errorf("left %q, %v", left, err)
	}
	lock.Close()
	again, _, err := r.Create(newID(), CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	wantTidy(t, r)
	if _, held, err := d.Holder(GuardianLock); held || err != nil {
		t.Errorf("a new session shows a guardian: %v, %v", held, err)
	}
}

func TestMakerWhoseDirectoryIsClearedAwayBeginsAgain(t *testing.T) {
	r := newRoot(t)
	id := protocol.NewSessionID(newID())
	for _, point := range []string{"before the lock", "before the rename"} {
		m := maker{root: r, id: id, temp: newPrefix + string(id) + "." + randomText()}
		var err error
		if point == "before the lock" {
			if m.dir, err = makeDir(r.sessions, m.temp); err != nil {
				t.Fatal(err)
			}
			r.clearLeftovers()
			_, err = createFile(m.dir, GuardianLock, nil)
		} else {
			if err := m.make(CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			r.clearLeftovers() // it holds its lock: nothing happens
			if err := procs.Unlock(m.lock); err != nil {
				t.Fatal(err)
			}
			r.clearLeftovers()
			err = m.publish("")
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s: %v", point, err)
		}
		if err := m.finish(err); !errors.Is(err, errSwept) {
			t.Errorf("%s: %v", point, err)
		}
	}
	wantTidy(t, r)
}

func TestNameOfASessionThatIsGoneIsFree(t *testing.T) {
	r := newRoot(t)
	dangling := newID()
	for name, content := range map[string]string{
		"gone":    string(protocol.NewSessionID(dangling)) + "\n",
		"empty":   "",
		"garbage": "../../etc\n",
	} {
		if err := os.WriteFile(filepath.Join(r.Path(), "names", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Resolve(name); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		d := create(t, r, newID(), CreateOptions{Name: name})
		if id, err := r.Resolve(name); id != d.ID() || err != nil {
			t.Errorf("%s is %q, %v", name, id, err)
		}
	}
	// The entry of a creation that was killed does not come to life when its id
	// is used for a session without a name.
	create(t, r, dangling, CreateOptions{})
	wantTidy(t, r)
}

func TestKilledCreateLeavesNothingInTheWay(t *testing.T) {
	r := newRoot(t)
	whole := 0
	for round := range 40 {
		name, id := fmt.Sprintf("n%d", round), newID()
		c := spawn(t, "create", r.Path(), "022", name, id.String())
		// From before the first call to after the last; a quiet machine takes 3 ms.
		<-time.After(rand.N(6 * time.Millisecond))
		c.kill()
		first, second := id, newID()
		if round%2 == 1 {
			first, second = second, first
		}
		if _, err := r.Open(protocol.NewSessionID(id)); err == nil {
			whole++
		}
		d, _, err := r.Create(first, CreateOptions{Name: name})
		var taken *NameTakenError
		if errors.As(err, &taken) && first != id {
			// The killed one had come to its end.
			d, _, err = r.Create(id, CreateOptions{Name: name})
			second = first
		}
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		d.Close()
		if _, _, err := r.Create(second, CreateOptions{Name: name}); !errors.As(err, &taken) {
			t.Fatalf("round %d: the other id gives %v", round, err)
		}
	}
	t.Logf("%d of 40 were killed after the end", whole)
	wantTidy(t, r)
}

func TestNothingIsEverWiderThanPrivate(t *testing.T) {
	for _, mask := range []string{"000", "777"} {
		root := filepath.Join(t.TempDir(), "state")
		openRoot(t, root)
		seen := watchModes(t, root)
		args := []string{"create", root, mask, "n"}
		for range 10 {
			args = append(args, newID().String())
		}
		c := spawn(t, args...)
		if line, err := c.out.ReadString('\n'); line != "done\n" {
			t.Fatalf("the child says %q, %v", line, err)
		}
		if n := seen(); n < 20 {
			t.Errorf("only %d things were seen", n)
		}
		wantPrivate(t, root)
	}
	fresh := filepath.Join(t.TempDir(), "a", "b", "state")
	spawn(t, "create", fresh, "000", "n")
	wantPrivate(t, filepath.Dir(filepath.Dir(fresh)))
}

// watchModes looks at everything that appears in the state root's directories,
// and in those that appear there; the function it returns ends it and tells how
// much was seen.
func watchModes(t *testing.T, root string) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	paths := make(map[int32]string)
	watch := func(path string) {
		if wd, err := unix.InotifyAddWatch(fd, path, unix.IN_CREATE|unix.IN_ATTRIB|unix.IN_MOVED_TO|unix.IN_ONLYDIR); err == nil {
			paths[int32(wd)] = path
		}
	}
	for _, dir := range []string{"", "sessions", "names"} {
		watch(filepath.Join(root, dir))
	}
	count, over := 0, false
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for !over {
			size, err := f.Read(buf)
			if err != nil {
				t.Error(err)
				return
			}
			eachEvent(buf[:size], func(wd int32, _ uint32, name string) {
				over = over || name == "over"
				path := filepath.Join(paths[wd], name)
				info, err := os.Lstat(path)
				if err != nil {
					return
				}
				count++
				if info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s had mode %v", path, info.Mode())
				}
				if info.IsDir() && name != "" {
					watch(path)
				}
			})
		}
	}()
	return func() int {
		over := filepath.Join(root, "over")
		if err := os.Mkdir(over, 0o700); err != nil {
			t.Fatal(err)
		}
		<-done
		f.Close()
		_ = os.Remove(over)
		return count
	}
}
