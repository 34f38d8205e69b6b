package wasmhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/internal/capsule"
)

func TestAGuestSeesItsArgumentsAndNothingOfTheHostsEnvironment(t *testing.T) {
	t.Setenv("HOST_ONLY", "1")
	m := manifest(func(m *capsule.Manifest) { m.Entry.Args = []string{"args"} })
	if _, out := call(t, m, nil, "a b", ""); out != "probe|args|a b|\n" {
		t.Fatalf("arguments %q", out)
	}
	_, out := call(t, manifest(), func(c *Config) { c.Env, c.Term = []string{"LANG=C", "PWD=/host"}, "xterm" }, "env")
	if out != "LANG=C|PWD=/work\n" {
		t.Fatalf("environment %q", out)
	}
}

func TestTheExitCodeIsTheGuests(t *testing.T) {
	for _, code := range []string{"0", "1", "7", "255"} {
		if res, _ := call(t, manifest(), nil, "exit", code); res.Reason != Exited || res.Detail != "" {
			t.Fatalf("exit %s gives %+v", code, res)
		}
	}
	if res, _ := call(t, manifest(), nil, "exit", "258"); res.ExitCode != 2 {
		t.Fatalf("a code over a byte gives %+v", res)
	}
}

func runTiny(t *testing.T, module []byte, m *capsule.Manifest) (Result, error) {
	t.Helper()
	return Run(context.Background(), Config{Capsule: testCapsule(m, module), WorkDir: t.TempDir()})
}

func TestAFaultOfTheGuestHasItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		body   []byte
		reason Reason
		detail string
	}{
		"unreachable": {unreachable(), Trapped, "the guest trapped: unreachable"},
		"recursion":   {recursion(), StackOverflow, "the guest's calls went too deep"},
		"memory":      {growAndTrap(), OutOfMemory, "the memory limit of 8MiB was reached"},
	} {
		t.Run(name, func(t *testing.T) {
			m := manifest(func(m *capsule.Manifest) { m.Capabilities.Limits.Memory = 8 << 20 })
			res, err := runTiny(t, tinyModule(c.body...), m)
			if err != nil || res.ExitCode != 1 || res.Reason != c.reason || res.Detail != c.detail {
				t.Fatalf("%+v, %v", res, err)
			}
		})
	}
}

func TestWhatCannotRunIsRefusedBeforeItsFirstInstruction(t *testing.T) {
	for name, c := range map[string]struct {
		module []byte
		change func(*capsule.Manifest)
		stage  string
		text   string
	}{
		"broken module":   {[]byte("\x00asm\x01\x00\x00\x00\x09"), nil, "compile", "the module is not valid"},
		"no start":        {[]byte("\x00asm\x01\x00\x00\x00"), nil, "link", "it has no _start"},
		"foreign import":  {importing("murmur_net", "fetch"), nil, "link", `it imports "fetch" from "murmur_net"`},
		"unknown import":  {importing("murmur_tty", "fly"), nil, "link", `"fly" is not exported in module "murmur_tty"`},
		"too much memory": {tinyModuleWith(100, unreachable()...), func(m *capsule.Manifest) { m.Capabilities.Limits.Memory = 1 << 20 }, "grants", "the module needs 6400KiB of memory, the limit is 1MiB"},
		"containment":     {tinyModule(), func(m *capsule.Manifest) { m.Containment = capsule.Sealed }, "containment", "it asks for sealed containment"},
		"unserved scope": {tinyModule(), func(m *capsule.Manifest) {
			m.Capabilities.Filesystem.Scope = append(m.Capabilities.Filesystem.Scope, capsule.Scope{Guest: "/data"})
		}, "grants", "it asks for the directory /data, which was not given"},
		"stray read-only": {tinyModule(), func(m *capsule.Manifest) { m.Capabilities.Filesystem.ReadOnly = []string{"/etc"} }, "grants", "the read-only path /etc is in no granted directory"},
	} {
		t.Run(name, func(t *testing.T) {
			m := manifest()
			if c.change != nil {
				c.change(m)
			}
			_, err := runTiny(t, c.module, m)
			var refused *Refused
			if !errors.As(err, &refused) || refused.Stage != c.stage || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("%v", err)
			}
		})
	}
}

func TestALinkedWorkFolderIsRefused(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	_, err := Run(context.Background(), Config{Capsule: testCapsule(manifest(), tinyModule()), WorkDir: link})
	var refused *Refused
	if !errors.As(err, &refused) || !strings.Contains(refused.Message, "it is a link") {
		t.Fatalf("%v", err)
	}
}

func TestMemoryGrowsToTheLimitAndCostsWhatIsUsed(t *testing.T) {
	limit := func(m *capsule.Manifest) { m.Capabilities.Limits.Memory = 64 << 20 }
	if res, out := call(t, manifest(limit), nil, "hog", "20"); res.ExitCode != 0 || out != "kept 20\n" {
		t.Fatalf("%+v %q", res, out)
	}
	res, _ := call(t, manifest(limit), nil, "hog", "200")
	if res.Reason != OutOfMemory || res.ExitCode == 0 || res.Detail != "the memory limit of 64MiB was reached" {
		t.Fatalf("%+v", res)
	}
	res, _ = call(t, manifest(), func(c *Config) { c.Memory = 64 << 20 }, "hog", "200")
	if res.Reason != OutOfMemory {
		t.Fatalf("the operator's limit: %+v", res)
	}
}

// A guest that waits must end at once whatever ends it.
func TestAWaitingGuestEndsAtOnce(t *testing.T) {
	signals := map[string]struct {
		sig    os.Signal
		code   int
		reason Reason
	}{
		"SIGINT":  {syscall.SIGINT, 130, Interrupted},
		"SIGQUIT": {syscall.SIGQUIT, 131, Quit},
		"SIGHUP":  {syscall.SIGHUP, 129, HungUp},
		"SIGTERM": {syscall.SIGTERM, 143, Terminated},
		"cancel":  {nil, 143, Canceled},
	}
	for name, c := range signals {
		for _, args := range [][]string{{"line"}, {"sleep", "1h"}, {"tick"}} {
			t.Run(name+" "+args[0], func(t *testing.T) {
				ch := make(chan os.Signal, 1)
				g := start(t, manifest(), func(cfg *Config) { cfg.Signals = ch }, args...)
				g.out.await(t, "ready")
				began := time.Now()
				if c.sig != nil {
					ch <- c.sig
				} else {
					g.cancel()
				}
				res, _ := g.wait(t)
				t.Logf("ended after %v", time.Since(began))
				if res.ExitCode != c.code || res.Reason != c.reason || res.Abandoned {
					t.Fatalf("%+v", res)
				}
			})
		}
	}
}

func TestTheDeadlineEndsAGuest(t *testing.T) {
	m := manifest(func(m *capsule.Manifest) { m.Capabilities.Limits.Deadline = 50 * time.Millisecond })
	res, _ := call(t, m, nil, "sleep", "1h")
	if res.ExitCode != 1 || res.Reason != DeadlineOver || res.Detail != "the deadline of 50ms has passed" {
		t.Fatalf("%+v", res)
	}
	m.Capabilities.Limits.Deadline = time.Hour
	if res, _ := call(t, m, func(c *Config) { c.Deadline = 50 * time.Millisecond }, "sleep", "1h"); res.Reason != DeadlineOver {
		t.Fatalf("the operator's deadline: %+v", res)
	}
}

func TestSigtermLetsAGuestFinishItsFiles(t *testing.T) {
	ch := make(chan os.Signal, 1)
	g := start(t, manifest(), func(c *Config) { c.Signals = ch }, "busy", "/work/f")
	g.out.await(t, "ready")
	ch <- syscall.SIGTERM
	res, _ := g.wait(t)
	if res.ExitCode != 143 || res.Abandoned {
		t.Fatalf("%+v", res)
	}
	if _, err := os.Stat(filepath.Join(g.cfg.WorkDir, "f.done")); err != nil {
		t.Fatalf("the guest was ended amid its work: %v", err)
	}
	g = start(t, manifest(), func(c *Config) { c.Signals = ch }, "busy", "/work/f")
	g.out.await(t, "ready")
	ch <- syscall.SIGTERM
	ch <- syscall.SIGTERM
	if res, _ := g.wait(t); res.ExitCode != 143 || res.Reason != Terminated || res.Abandoned {
		t.Fatalf("a second SIGTERM: %+v", res)
	}
}

func TestASpinningGuestIsAbandoned(t *testing.T) {
	for name, sig := range map[string]os.Signal{"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "deadline": nil} {
		t.Run(name, func(t *testing.T) {
			job := runnerJob{Manifest: manifest(), Args: []string{"spin"}}
			if sig == nil {
				job.Deadline = 3 * time.Second // it has to begin to spin before
			}
			p := runnerCmd(t, job)
			// One processor is the hardest: nothing else would ever run.
			p.cmd.Env = append(p.cmd.Env, "GOMAXPROCS=1")
			r, w := pipe(t)
			p.cmd.Stdout = w
			if err := p.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			collect(r).await(t, "ready")
			began := time.Now()
			if sig != nil {
				_ = p.cmd.Process.Signal(sig)
			}
			code, res := p.end(t)
			t.Logf("ended after %v", time.Since(began))
			want := map[string]int{"SIGINT": 130, "SIGTERM": 143, "deadline": 1}[name]
			if code != want || !res.Abandoned {
				t.Fatalf("code %d, %+v", code, res)
			}
		})
	}
}

func TestTheProcessorLimitEndsAGuest(t *testing.T) {
	p := runnerCmd(t, runnerJob{Args: []string{"spin"}, Manifest: manifest(func(m *capsule.Manifest) { m.Capabilities.Limits.CPUSeconds = 1 })})
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if code, res := p.end(t); code != 1 || res.Reason != CPUOver {
		t.Fatalf("code %d, %+v", code, res)
	}
}

func TestOutputIsLimited(t *testing.T) {
	m := manifest(func(m *capsule.Manifest) { m.Capabilities.Limits.Output = 100_000 })
	res, out := call(t, m, nil, "flood", "0")
	if res.Reason != OutputOver || res.ExitCode != 1 || len(out) != 100_000 {
		t.Fatalf("%+v after %d bytes", res, len(out))
	}
}

func TestOutputIsWhole(t *testing.T) {
	_, out := call(t, manifest(), nil, "flood", "4194304")
	if len(out) != 4194304 || strings.Trim(out, "x\n") != "" {
		t.Fatalf("%d bytes", len(out))
	}
}

func TestAClosedOutputEndsAGuestLikeSigpipe(t *testing.T) {
	r, w := pipe(t)
	r.Close()
	g := start(t, manifest(), func(c *Config) { c.Stdout.Close(); c.Stdout = w }, "flood", "0")
	if res, _ := g.wait(t); res.ExitCode != 141 || res.Reason != OutputClosed {
		t.Fatalf("%+v", res)
	}
}

func TestAClosedStandardOutputOfTheProcessDoesNotKillIt(t *testing.T) {
	p := runnerCmd(t, runnerJob{Manifest: manifest(), Args: []string{"flood", "0"}})
	r, w := pipe(t)
	r.Close()
	p.cmd.Stdout = w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if code, res := p.end(t); code != 141 || res.Reason != OutputClosed {
		t.Fatalf("%d %+v", code, res)
	}
}

func TestAGuestWhoseReaderHasStoppedCanBeEnded(t *testing.T) {
	_, w := pipe(t) // nobody reads
	ch := make(chan os.Signal, 1)
	g := start(t, manifest(), func(c *Config) { c.Stdout.Close(); c.Stdout, c.Signals = w, ch }, "flood", "0")
	waitFor(t, "a full pipe", func() bool { return !ready(int(w.Fd()), 4) })
	ch <- syscall.SIGINT
	if res, _ := g.wait(t); res.ExitCode != 130 || res.Abandoned {
		t.Fatalf("%+v", res)
	}
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick, limit := time.NewTicker(time.Millisecond), time.After(bound)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("no %s within %v", what, bound)
		}
	}
}

func TestInputReachesTheGuestWhole(t *testing.T) {
	g := start(t, manifest(), nil, "cat")
	want := strings.Repeat("0123456789abcde\n", 1<<16)
	if _, err := g.stdin.WriteString(want); err != nil {
		t.Fatal(err)
	}
	g.stdin.Close()
	if _, out := g.wait(t); out != want+"err <nil>\n" {
		t.Fatalf("%d bytes came back", len(out))
	}
}

func TestNoStreamsAreAnEmptyInputAndADiscardedOutput(t *testing.T) {
	res, _ := call(t, manifest(), func(c *Config) {
		c.Stdout.Close()
		c.Stderr.Close()
		c.Stdin, c.Stdout, c.Stderr = nil, nil, nil
	}, "cat")
	if res.ExitCode != 0 {
		t.Fatalf("%+v", res)
	}
}

func TestTickersRunWhileInputIsAwaitedAndCostNothing(t *testing.T) {
	g := start(t, manifest(), nil, "tick")
	g.out.await(t, "ready")
	if _, err := g.stdin.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	if res, out := g.wait(t); res.ExitCode != 0 || !strings.Contains(out, `ticks true "go\n"`) {
		t.Fatalf("%+v %q", res, out)
	}

	g = start(t, manifest(), nil, "line")
	g.out.await(t, "ready")
	before := cpuTime()
	<-time.After(300 * time.Millisecond) // an interval to measure over, nothing is expected to happen in it
	if used := cpuTime() - before; used > 30*time.Millisecond {
		t.Fatalf("an idle guest used %v of 300 ms", used)
	}
	g.stdin.Close()
	g.wait(t)
}

func TestTheStreamsKeepTheirModes(t *testing.T) {
	flags := func(f *os.File) (n int) {
		raw, _ := f.SyscallConn()
		_ = raw.Control(func(fd uintptr) {
			r, _, _ := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
			n = int(r)
		})
		return n
	}
	g := start(t, manifest(), nil, "line")
	before := flags(g.cfg.Stdin)
	g.out.await(t, "ready")
	if now := flags(g.cfg.Stdin); now != before {
		t.Fatalf("flags were %x and are %x", before, now)
	}
	g.stdin.Close()
	g.wait(t)
}

func TestClocksAndRandomnessAreGranted(t *testing.T) {
	_, out := call(t, manifest(), nil, "clock")
	if !strings.HasPrefix(out, "0 0s 20") {
		t.Fatalf("real time is finer than a millisecond: %q", out)
	}
	fixed := manifest(func(m *capsule.Manifest) {
		m.Capabilities.Clock, m.Capabilities.Random = capsule.ClockFixed, capsule.Random{Mode: capsule.RandomSeed, Seed: 7}
	})
	if _, out := call(t, fixed, nil, "clock"); out != "0 0s 2022-01-01T00:00:00Z\n" {
		t.Fatalf("the fixed clock: %q", out)
	}
	if _, out := call(t, fixed, nil, "sleep", "20ms"); out != "ready\nslept 20ms\n" {
		t.Fatalf("a sleep on the fixed clock: %q", out)
	}
	_, first := call(t, fixed, nil, "random")
	_, second := call(t, fixed, nil, "random")
	_, other := call(t, manifest(), nil, "random")
	if first != second || first == other {
		t.Fatalf("%q %q %q", first, second, other)
	}
	none := manifest(func(m *capsule.Manifest) { m.Capabilities.Clock = capsule.ClockNone })
	if res, _ := call(t, none, nil, "clock"); res.ExitCode != 2 {
		t.Fatalf("without a clock the Go runtime ends with 2, this with %+v", res)
	}
	none = manifest(func(m *capsule.Manifest) { m.Capabilities.Random.Mode = capsule.RandomNone })
	if res, _ := call(t, none, nil, "random"); res.ExitCode != 2 {
		t.Fatalf("without randomness the Go runtime ends with 2, this with %+v", res)
	}
}

func TestPollAnswersAsTheInterfaceSays(t *testing.T) {
	g := start(t, manifest(), nil, "polls")
	res, out := g.wait(t)
	want := `relative 0 1/0/0 true
absolute 0 2/0/0 true
wall 0 3/0/0 true
past 0 4/0/0
both 0 5/0/0
stdout 0 8/0/2
badfd 0 9/8/1
badclock 0 10/28/0
open 0
file 0 11/0/1 12/0/2
none 28
seek 70 times 28
close 0 renumber 0 seek 0
gone 0 13/0/1
`
	if res.ExitCode != 0 || out != want {
		t.Fatalf("%+v\n%s", res, out)
	}
}

func TestAManifestChoosesFromTheEnvironment(t *testing.T) {
	m := manifest(func(m *capsule.Manifest) {
		m.Capabilities.Env = capsule.Env{Allow: []string{"TZ", "GITHUB_TOKEN", "PWD", "NOT_SET", "LANG"}, Secrets: []string{"API_KEY"}}
	})
	got := ChooseEnv(m, []string{"LANG=C", "TZ=", "GITHUB_TOKEN=x", "API_KEY=k", "DB_PASSWORD=p", "PWD=/", "LANG=de", "=odd", "odd"})
	want := []string{"TZ=", "PWD=/", "LANG=de", "API_KEY=k"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("%q", got)
	}
	for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "MYSQL_PWD", "OPENAI_API_KEY", "npm_config__auth", "SSH_AUTH_SOCK", "KEY", "COOKIE_JAR"} {
		if !looksSecret(name) {
			t.Errorf("%s does not look secret", name)
		}
	}
	for _, name := range []string{"LANG", "PWD", "PATH", "KEYBOARD", "EDITOR", "COMPASS", "MONKEY"} {
		if looksSecret(name) {
			t.Errorf("%s looks secret", name)
		}
	}
}

func FuzzDeclaredMemory(f *testing.F) {
	f.Add(tinyModule(spin()...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= 8 {
			declaredMemory(data)
		}
	})
}
