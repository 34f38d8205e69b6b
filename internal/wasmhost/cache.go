package wasmhost

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// The compile cache is a directory of entries. An entry is a directory named after what its code depends on; it holds
// what the runtime keeps for one module and a list of checksums. The runtime checks the machine code it reads but not
// the tables around it, and a damaged table is a jump to anywhere, so an entry is checked as a whole before the runtime
// sees it. An entry is written beside its place and renamed there, so that it is whole or absent; a directory that is
// already there wins. Whoever can write here runs code in this process: only the owner can.
type cache struct {
	dir string
	key string
}

const (
	sumsFile      = "sums"
	scratchPrefix = "tmp-"
	scratchAge    = time.Hour // a crashed writer's leftovers are older
)

// openCache gives the cache for one module, or nil when dir is empty or cannot be used: a run does without.
func openCache(dir, digest string) *cache {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return nil
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n%s\n", digest, runtimeVersion(), runtime.GOARCH, cpuFeatures())
	return &cache{dir: dir, key: hex.EncodeToString(h.Sum(nil))}
}

// runtimeVersion is the version of the WebAssembly runtime in this program.
func runtimeVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == "github.com/tetratelabs/wazero" {
			return dep.Version
		}
	}
	return "unknown"
}

// cpuFeatures tells processors apart for which the compiler writes other code.
func cpuFeatures() string {
	x, a := cpu.X86, cpu.ARM64
	return fmt.Sprint(x.HasSSE3, x.HasSSE41, x.HasSSE42, x.HasPOPCNT, x.HasBMI1, x.HasBMI2, x.HasAVX, a.HasATOMICS)
}

func (c *cache) entry() string { return filepath.Join(c.dir, c.key) }

// lookup gives the directory of a good entry. A bad one is removed.
func (c *cache) lookup() (string, bool) {
	if c.check() {
		return c.entry(), true
	}
	c.discard()
	return "", false
}

func (c *cache) check() bool {
	want, err := os.ReadFile(filepath.Join(c.entry(), sumsFile))
	if err != nil {
		return false
	}
	got, err := checksums(c.entry())
	return err == nil && got != "" && got == string(want)
}

// discard removes an entry. Its name goes first, so that nobody finds half of it.
func (c *cache) discard() {
	grave, err := os.MkdirTemp(c.dir, scratchPrefix)
	if err != nil {
		return
	}
	_ = os.Rename(c.entry(), filepath.Join(grave, "entry"))
	_ = os.RemoveAll(grave)
}

// scratch makes a directory in which the runtime can write a new entry.
func (c *cache) scratch() (string, error) {
	c.sweep()
	return os.MkdirTemp(c.dir, scratchPrefix)
}

// publish makes a scratch directory the entry. When it fails, or another writer was faster, the scratch is removed.
func (c *cache) publish(scratch string) {
	defer os.RemoveAll(scratch)
	sums, err := checksums(scratch)
	if err != nil || sums == "" {
		return
	}
	if err := writeSynced(filepath.Join(scratch, sumsFile), sums); err != nil {
		return
	}
	_ = os.Rename(scratch, c.entry())
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Sync()
}

// sweep removes what crashed writers left.
func (c *cache) sweep() {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), scratchPrefix) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > scratchAge {
			_ = os.RemoveAll(filepath.Join(c.dir, e.Name()))
		}
	}
}

// checksums lists every file below dir with its sha256. Anything but plain files and directories is an error.
func checksums(dir string) (string, error) {
	var lines []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case e.IsDir() || rel == sumsFile:
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is not a plain file", path)
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return err
		}
		lines = append(lines, hex.EncodeToString(h.Sum(nil))+"  "+rel+"\n")
		return nil
	})
	slices.Sort(lines)
	return strings.Join(lines, ""), err
}
