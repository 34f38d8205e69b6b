package archtest

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// layers orders the packages: one may import only packages further down in this
// list, and none of its own line.
func layers() [][]string {
	return [][]string{
		{"cmd/mur", "cmd/guardian", "cmd/owner"},
		{"internal/cli"},
		{"client"},
		{"internal/guardian", "internal/owner", "internal/bundled"},
		{"internal/wasmhost"},
		{"internal/sessiondir", "internal/ownerlink", "internal/capsule", "internal/machine"},
		{"internal/receipts", "internal/output"},
		{"internal/journal"},
		{"internal/protocol"},
		{"internal/lifecycle", "internal/durable", "internal/procs", "internal/ptmx", "internal/peersock", "internal/cgroup", "internal/version"},
	}
}

// layer is the height of a package, counted from below; 0 is unknown.
func layer(pkg string) int {
	for i, line := range layers() {
		if slices.Contains(line, pkg) {
			return len(layers()) - i
		}
	}
	return 0
}

// apart are packages outside of the layers: guests, which run in the sandbox, and
// what nothing imports.
func apart(pkg string) bool {
	return within(pkg, "capsules", "sdk", "tests", "bench")
}

func TestImportsPointDownOnly(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || apart(s.pkg) {
			continue
		}
		if layer(s.pkg) == 0 {
			t.Errorf("%s: the package %s has no place in the layers: give it one", s.path, s.pkg)
			continue
		}
		for _, path := range s.imports() {
			pkg, ours := strings.CutPrefix(path, module+"/")
			if ours && !apart(pkg) && layer(pkg) >= layer(s.pkg) {
				t.Errorf("%s: %s imports %s, which is not below it", s.path, s.pkg, pkg)
			}
		}
	}
}

// rule forbids some packages to import others directly.
type rule struct {
	who    []string
	never  []string // import paths; with /... also what is below
	reason string
}

func rules() []rule {
	ours := func(pkg string) string { return module + "/" + pkg }
	return []rule{
		{
			who: []string{"internal/lifecycle"}, never: []string{"os", "os/...", "net", "net/...", "syscall", "io/...", "time", "golang.org/x/sys/...", module + "/..."},
			reason: "the state machine is pure: what it decides depends on its arguments alone",
		},
		{
			who: []string{"internal/protocol"}, never: []string{"os", "os/...", "net", "net/...", "syscall", "golang.org/x/sys/..."},
			reason: "the wire is bytes on a reader and a writer, whoever they belong to",
		},
		{
			who:    []string{"internal/receipts"},
			never:  []string{"net", "net/...", "os/exec", ours("internal/guardian"), ours("internal/peersock"), ours("client")},
			reason: "receipts keep opaque answers: they know neither who asks nor what was done",
		},
		{
			who:    []string{"internal/ptmx", "internal/procs", "internal/peersock", "internal/durable"},
			never:  []string{ours("internal/protocol"), ours("internal/lifecycle"), ours("internal/sessiondir")},
			reason: "each is one thing of the kernel and knows nothing of sessions",
		},
		{
			who:    []string{"capsules", "sdk"},
			never:  []string{ours("internal/..."), ours("client")},
			reason: "guests run in the sandbox and are built by people who have only the sdk",
		},
		{
			who:    []string{"client"},
			never:  []string{"github.com/spf13/...", "github.com/tetratelabs/...", ours("internal/cli")},
			reason: "a multiplexer imports it",
		},
	}
}

func TestForbiddenImports(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, r := range rules() {
			if !within(s.pkg, r.who...) {
				continue
			}
			for _, path := range s.imports() {
				if matches(path, r.never) {
					t.Errorf("%s imports %s: %s", s.path, path, r.reason)
				}
			}
		}
	}
}

func matches(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if dir, below := strings.CutSuffix(p, "/..."); below {
			return strings.HasPrefix(path, dir+"/")
		}
		return path == p
	})
}

// TestGuardianAndOwnerStaySmall looks at everything that is linked.
func TestGuardianAndOwnerStaySmall(t *testing.T) {
	heavy := []string{
		"github.com/tetratelabs/...", "github.com/spf13/...", "github.com/goccy/...", "mvdan.cc/...",
		"net/http", "net/http/...", "crypto/tls", "text/template", "html/template",
		module + "/internal/cli", module + "/internal/wasmhost", module + "/internal/bundled", module + "/client",
	}
	for _, program := range []string{"cmd/guardian", "cmd/owner"} {
		for _, path := range linked(t, module+"/"+program) {
			if matches(path, heavy) {
				t.Errorf("%s links %s: there is one of it for every session, and what guards a guest runs no guest", program, path)
			}
		}
	}
	for _, path := range linked(t, module+"/cmd/owner") {
		if matches(path, []string{module + "/internal/guardian"}) {
			t.Errorf("cmd/owner links %s: an owner goes on without its guardian, and without its faults", path)
		}
	}
}

// linked lists what a program consists of.
func linked(t *testing.T, program string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", program)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v\n%s", program, err, errs.String())
	}
	return strings.Fields(string(out))
}
