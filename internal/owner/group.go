package owner

import (
	"github.com/seed-8e62c83d/mur/internal/cgroup"
	"github.com/seed-8e62c83d/mur/internal/protocol"
	"github.com/seed-8e62c83d/mur/internal/sessiondir"
)

// makeGroup makes a control group for the target, where one can be made. It ends the
// tree faster, and lets a guardian end what is left of it when the owner was killed;
// that nothing is left is proved by the kernel's answer to wait(2) all the same.
func (o *owner) makeGroup(session protocol.SessionID) (path string) {
	name, err := sessiondir.GroupName(session, o.in.dir)
	if err == nil {
		o.group, err = cgroup.Make(name)
	}
	if err != nil {
		return "" // mur doctor tells why
	}
	return o.group.Path()
}

// killGroup ends what is in the group and what is just being born into it.
func (o *owner) killGroup(s *swept) {
	if o.group == nil {
		return
	}
	// Those that come and go faster than the tree is walked are found here.
	pids, _ := o.group.Members()
	for _, pid := range pids {
		s.add(pid, "descendant")
	}
	_ = o.group.Kill()
}

// dissolveGroup leaves no group behind. What lives in it goes on in that of the owner.
func (o *owner) dissolveGroup() {
	if o.group != nil {
		_ = o.group.Dissolve()
		o.group.Close()
		o.group = nil
	}
}
