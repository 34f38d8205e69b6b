package script

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/seed-8e62c83d/mur/client"
)

// rounds is how many starts are cut off; each at another moment.
const rounds = 24

func TestAStartThatIsCutOffLeavesALegalState(t *testing.T) {
	b := newBench(t)
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGKILL}
	for i := range rounds {
		op := client.NewMutationID()
		after := time.Duration(rand.IntN(50)) * time.Millisecond
		sig := signals[i%len(signals)]
		if err := b.cutOff(op, sig, after); err != nil {
			t.Errorf("%v after %v: %v", sig, after, err)
		}
	}
}

// cutOff sends a signal to a start on a terminal. Its session is then in a state
// in which the same operation can be finished.
func (b *bench) cutOff(op client.MutationID, sig syscall.Signal, after time.Duration) error {
	bin := os.Getenv(binDirVar)
	env := []string{"MUR_HOME=" + b.home, "HOME=/", "PATH=" + bin + ":/usr/bin:/bin", "TERM=xterm"}
	line := []string{"start", "--op", op.String(), "--size", "80x24", "--clean-env", "--workdir", "/", "--", "/bin/sleep", "100"}
	p, err := startOnPTY(env, "/", append([]string{"mur"}, line...))
	if err != nil {
		return err
	}
	defer p.close()
	<-time.After(after)
	if err := p.cmd.Process.Signal(sig); err != nil {
		return err
	}
	select {
	case <-p.ended:
		p.over = true
	case <-time.After(patience):
		return fmt.Errorf("mur did not end\n%q", p.output())
	}
	if now, err := p.termios(); sig != syscall.SIGKILL && (err != nil || now != p.before) {
		return fmt.Errorf("the terminal is not as before (%v)", err)
	}
	if out, status, err := b.mur(append([]string{line[0], "-d"}, line[1:]...)...); err != nil || status != 0 {
		return fmt.Errorf("the same again: %d, %v\n%s", status, err, out)
	}
	s, err := b.c.Open(client.IDFor(op))
	if err != nil {
		return err
	}
	defer s.Close()
	st, err := s.Snapshot(b.t.Context())
	if err != nil || st.State != client.StateRunning {
		return fmt.Errorf("the state is %s, %v", st.State, err)
	}
	return b.done(s)
}
