package capsule

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

const emptyModule = "\x00asm\x01\x00\x00\x00"

func write(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestABareModuleGetsTheDefaultGrants(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"My Tool_2.wasm": emptyModule})
	c, err := Load(filepath.Join(dir, "My Tool_2.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Manifest.Name != "local/my-tool-2" || !c.Manifest.Capabilities.Terminal.Raw || c.Manifest.Entry.Workdir != "/work" {
		t.Fatalf("%+v", c.Manifest)
	}
	if c.Digest != "93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476" || string(c.Module) != emptyModule {
		t.Fatalf("digest %s", c.Digest)
	}
}

func TestADirectoryWithAManifestIsACapsule(t *testing.T) {
	files := map[string]string{ManifestFile: head, "a.wasm": emptyModule, "main.go": "package main"}
	c, err := Load(write(t, t.TempDir(), files))
	if err != nil || c.Manifest.Name != "a" {
		t.Fatalf("%+v, %v", c, err)
	}
	embedded := fstest.MapFS{}
	for name, text := range files {
		embedded[name] = &fstest.MapFile{Data: []byte(text)}
	}
	c, err = LoadFS(embedded, "mur/a")
	if err != nil || c.Path != "mur/a" {
		t.Fatalf("%+v, %v", c, err)
	}
}

func TestCapsuleWasmWinsOverOtherModules(t *testing.T) {
	manifest := "name: a\nversion: v1\nrequires_files: [b.wasm, capsule.wasm, lib/c.wasm]\n"
	c, err := Load(write(t, t.TempDir(), map[string]string{
		ManifestFile: manifest, "b.wasm": emptyModule, "capsule.wasm": emptyModule + "\x00\x02\x01x", "lib/c.wasm": emptyModule,
	}))
	if err != nil || len(c.Module) != len(emptyModule)+4 {
		t.Fatalf("%+v, %v", c, err)
	}
}

func TestWhatIsNoCapsuleIsRefused(t *testing.T) {
	outside := write(t, t.TempDir(), map[string]string{"a.wasm": emptyModule, "dir/b.wasm": emptyModule})
	for name, c := range map[string]struct {
		files map[string]string
		links map[string]string
		want  error
	}{
		"no manifest":      {files: map[string]string{"a.wasm": emptyModule}, want: fs.ErrNotExist},
		"missing file":     {files: map[string]string{ManifestFile: head}, want: fs.ErrNotExist},
		"linked module":    {files: map[string]string{ManifestFile: head}, links: map[string]string{"a.wasm": outside + "/a.wasm"}, want: ErrNotCapsule},
		"linked manifest":  {links: map[string]string{ManifestFile: outside + "/a.wasm"}, want: ErrNotCapsule},
		"two modules":      {files: map[string]string{ManifestFile: "name: a\nversion: b\nrequires_files: [a.wasm, b.wasm]\n"}, want: ErrNotCapsule},
		"no module":        {files: map[string]string{ManifestFile: "name: a\nversion: b\nrequires_files: [lib/a.wasm]\n"}, want: ErrNotCapsule},
		"linked directory": {files: map[string]string{ManifestFile: "name: a\nversion: b\nrequires_files: [a.wasm, dir/b.wasm]\n", "a.wasm": emptyModule}, links: map[string]string{"dir": outside + "/dir"}, want: ErrNotCapsule},
		"not wasm":         {files: map[string]string{ManifestFile: head, "a.wasm": "#!/bin/sh\n"}, want: ErrNotCapsule},
		"a component":      {files: map[string]string{ManifestFile: head, "a.wasm": "\x00asm\x0d\x00\x01\x00"}, want: ErrNotCapsule},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, t.TempDir(), c.files)
			for link, target := range c.links {
				if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Load(dir); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
	if _, err := Load(filepath.Join(outside, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a missing path gives %v", err)
	}
}

func TestTooMuchIsRefusedBeforeItIsRead(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{ManifestFile: head, "a.wasm": emptyModule})
	if err := os.Truncate(filepath.Join(dir, "a.wasm"), MaxCapsuleBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("a huge module gives %v", err)
	}
}
