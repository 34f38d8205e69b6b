package sessiondir

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-8e62c83d/mur/internal/protocol"
)

// GroupName is how the control group of a session's processes is called. Sessions of
// two state directories may have one id (both were made with one operation id), so
// the directory itself, which must be open, counts too.
func GroupName(id protocol.SessionID, dir *os.File) (string, error) {
	var st unix.Stat_t
	if err := onDescriptor(dir, func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
		return "", fmt.Errorf("cannot look at the session's directory: %w", err)
	}
	return fmt.Sprintf("mur-%s-%x-%x", id, st.Dev, st.Ino), nil
}
