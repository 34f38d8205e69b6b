package capsule

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// rootModule is the name of the module among the files of a capsule; with no such file the only *.wasm beside the
// manifest is taken.
const rootModule = "capsule.wasm"

// Capsule is a capsule in memory. Digest is the sha256 of the module in hex, and identifies what runs.
type Capsule struct {
	Manifest *Manifest
	Module   []byte
	Digest   string
	Path     string // where it came from, for messages
}

// Load reads the capsule at path: a bare .wasm file, which gets the default manifest, or a directory with a manifest.
// Files of the directory that the manifest does not list are no part of the capsule. An error wraps fs.ErrNotExist
// when there is nothing at path.
func Load(path string) (*Capsule, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot load capsule %s: %w", path, err)
	}
	if info.IsDir() {
		root, err := os.OpenRoot(path)
		if err != nil {
			return nil, fmt.Errorf("cannot load capsule %s: %w", path, err)
		}
		defer root.Close()
		return LoadFS(root.FS(), path)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("cannot load capsule %s: %w: neither a file nor a directory", path, ErrNotCapsule)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot load capsule %s: %w", path, err)
	}
	defer f.Close()
	module, err := readAll(f, MaxCapsuleBytes)
	if err != nil {
		return nil, fmt.Errorf("cannot load capsule %s: %w", path, err)
	}
	m := Default()
	m.Name = bareModuleName(path)
	m.RequiresFiles = []string{filepath.Base(path)}
	return assemble(m, module, path)
}

// LoadFS reads a capsule whose manifest is at the root of fsys, which may be compiled into the program. The name is
// shown in messages.
func LoadFS(fsys fs.FS, name string) (*Capsule, error) {
	data, err := readFile(fsys, ManifestFile, MaxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("cannot load capsule %s: %w", name, err)
	}
	m, err := ParseManifest(path.Join(name, ManifestFile), data)
	if err != nil {
		return nil, fmt.Errorf("cannot load capsule %s: %w", name, err)
	}
	moduleName, err := chooseModule(m.RequiresFiles)
	if err != nil {
		return nil, fmt.Errorf("cannot load capsule %s: %w", name, err)
	}
	var module []byte
	left := int64(MaxCapsuleBytes)
	for _, file := range m.RequiresFiles {
		size, err := checkFile(fsys, file)
		if err != nil {
			return nil, fmt.Errorf("cannot load capsule %s: %w", name, err)
		}
		if left -= size; left < 0 {
			return nil, fmt.Errorf("cannot load capsule %s: %w: over %s unpacked", name, ErrTooLarge, Size(MaxCapsuleBytes))
		}
		if file != moduleName {
			continue
		}
		if module, err = readFile(fsys, file, size); err != nil {
			return nil, fmt.Errorf("cannot load capsule %s: %w", name, err)
		}
	}
	return assemble(m, module, name)
}

// chooseModule picks the module that is started.
func chooseModule(files []string) (string, error) {
	var found []string
	for _, f := range files {
		if f == rootModule {
			return f, nil
		}
		if !strings.Contains(f, "/") && path.Ext(f) == ".wasm" {
			found = append(found, f)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("%w: requires_files names no module beside the manifest", ErrNotCapsule)
	default:
		return "", fmt.Errorf("%w: requires_files names %d modules beside the manifest and none is %s", ErrNotCapsule, len(found), rootModule)
	}
}

// checkFile gives the size of a packed file after checking that no step of its path is a link and it is a plain file.
func checkFile(fsys fs.FS, name string) (int64, error) {
	for i := range len(name) {
		if name[i] == '/' {
			info, err := fs.Lstat(fsys, name[:i])
			if err != nil {
				return 0, err
			}
			if !info.IsDir() {
				return 0, fmt.Errorf("%w: %s is not a directory", ErrNotCapsule, name[:i])
			}
		}
	}
	info, err := fs.Lstat(fsys, name)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%w: %s is not a plain file", ErrNotCapsule, name)
	}
	return info.Size(), nil
}

// readFile reads one file of the capsule. The file that was opened is compared with the one that was looked at, so
// that a link put there in between is not read.
func readFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	if _, err := checkFile(fsys, name); err != nil {
		return nil, err
	}
	before, err := fs.Lstat(fsys, name)
	if err != nil {
		return nil, err
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	after, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if _, onDisk := f.(*os.File); onDisk && !os.SameFile(before, after) {
		return nil, fmt.Errorf("%w: %s was replaced while it was read", ErrNotCapsule, name)
	}
	data, err := readAll(f, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

func readAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: over %s", ErrTooLarge, Size(limit))
	}
	return data, err
}

// assemble checks that the module is a core module and puts the capsule together.
func assemble(m *Manifest, module []byte, name string) (*Capsule, error) {
	if err := checkHeader(module); err != nil {
		return nil, fmt.Errorf("cannot load capsule %s: %w: %w", name, ErrNotCapsule, err)
	}
	sum := sha256.Sum256(module)
	return &Capsule{Manifest: m, Module: module, Digest: hex.EncodeToString(sum[:]), Path: name}, nil
}

// checkHeader reads the eight bytes every module starts with. A component has the same magic and another version.
func checkHeader(module []byte) error {
	switch {
	case bytes.HasPrefix(module, []byte("\x00asm\x01\x00\x00\x00")):
		return nil
	case bytes.HasPrefix(module, []byte("\x00asm\x0d\x00\x01\x00")):
		return errors.New("it is a WebAssembly component, capsules are core modules for WASI preview 1")
	case bytes.HasPrefix(module, []byte("PK\x03\x04")):
		return errors.New("packed capsules are not supported by this version, unpack it and give the directory")
	default:
		return errors.New("it is no WebAssembly module")
	}
}

// bareModuleName makes a name for a module without a manifest, out of its file name.
func bareModuleName(file string) string {
	base := strings.ToLower(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
	base = strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(base, "-"), "-")
	if base == "" {
		return "local/module"
	}
	return "local/" + strings.TrimRight(base[:min(len(base), 100)], "-")
}
