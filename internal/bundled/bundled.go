// Package bundled holds the capsules that come inside the mur executable.
//
// The build puts each below files/, as files/NAME/murmur.yaml and capsule.wasm,
// before it compiles this package; a build without them works and has none. The
// package only reads what the compiler embedded: nothing on disk can take a
// bundled capsule's place.
package bundled

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

//go:embed all:files
var files embed.FS

const (
	// namespace is what bundled capsules' full names begin with.
	namespace = "mur/"
	manifest  = "murmur.yaml"
)

// known are the names that are never looked up elsewhere, built in or not.
func known() []string { return []string{"shell", "hello"} }

// Name tells whether name, such as shell or mur/shell, is that of a bundled
// capsule, and its short form.
func Name(name string) (short string, ok bool) {
	short = strings.TrimPrefix(name, namespace)
	for _, k := range known() {
		if k == short {
			return short, true
		}
	}
	return "", false
}

// Names are the short names of the capsules that this build has.
func Names() []string {
	var out []string
	for _, k := range known() {
		if _, ok := Open(k); ok {
			out = append(out, k)
		}
	}
	return out
}

// Open gives the files of a bundled capsule by its short name; ok is false when
// this build has none.
func Open(short string) (capsule fs.FS, ok bool) {
	dir := path.Join("files", short)
	if _, err := fs.Stat(files, path.Join(dir, manifest)); err != nil {
		return nil, false
	}
	sub, err := fs.Sub(files, dir)
	return sub, err == nil
}
