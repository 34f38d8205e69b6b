package machine

import (
	"fmt"
	"os"

	"github.com/seed-8e62c83d/mur/internal/cgroup"
)

// Cgroup is the control group, of version 2, that the calling process is in.
type Cgroup struct {
	cgroup.Place
	// Denied is why no group of use could be made in it; nil: one was made, and removed.
	Denied error
}

// OwnCgroup finds the calling process's group and tries to make one in it.
func OwnCgroup() (Cgroup, error) {
	place, err := cgroup.Own()
	if err != nil || place.Dir == "" {
		return Cgroup{Place: place}, err
	}
	g, err := cgroup.Make(fmt.Sprintf("mur-doctor-%d", os.Getpid()))
	if err != nil {
		return Cgroup{Place: place, Denied: err}, nil
	}
	defer g.Close()
	return Cgroup{Place: place}, g.Dissolve()
}

// String is how people are told about it.
func (c Cgroup) String() string {
	switch {
	case c.Mount == "":
		return "version 2 is not mounted"
	case c.Dir == "":
		return fmt.Sprintf("version 2 at %s, this process's group is not visible there", c.Mount)
	default:
		return c.Dir
	}
}
