package wasmhost

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/seed-8e62c83d/mur/internal/capsule"
	"golang.org/x/sys/unix"
)

// grantedDir is a directory of the host with its place in the guest.
type grantedDir struct {
	host, guest string
	linked      bool // the last name of host may be a link
	writable    bool
}

// grantedDirs joins what the manifest asks for with what the caller gives. A scope that nothing serves is refused: a
// capsule that asks for a directory would fail later and less clearly.
func (r *run) grantedDirs() ([]grantedDir, error) {
	var scopes []capsule.Scope
	if fs := r.manifest.Capabilities.Filesystem; fs != nil {
		scopes = fs.Scope
	}
	var out []grantedDir
	for _, d := range r.cfg.Dirs {
		if !strings.HasPrefix(d.Guest, "/") || slices.Contains(names(d.Guest), "..") {
			return nil, &Refused{"grants", CodeGrant, fmt.Sprintf("the guest directory %q must be absolute", d.Guest)}
		}
		g := grantedDir{host: d.Host, guest: guestName(d.Guest), linked: true, writable: !d.ReadOnly}
		if slices.ContainsFunc(out, func(o grantedDir) bool { return o.guest == g.guest }) {
			return nil, &Refused{"grants", CodeGrant, fmt.Sprintf("the guest directory %s is given twice", g.guest)}
		}
		if i := slices.IndexFunc(scopes, func(s capsule.Scope) bool { return s.Guest == g.guest }); i >= 0 {
			g.writable = g.writable && scopes[i].Writable
		}
		out = append(out, g)
	}
	for _, s := range scopes {
		if slices.ContainsFunc(out, func(g grantedDir) bool { return g.guest == s.Guest }) {
			continue
		}
		if s.Guest != capsule.WorkGuest || r.cfg.WorkDir == "" {
			return nil, &Refused{"grants", CodeGrant, fmt.Sprintf("it asks for the directory %s, which was not given", s.Guest)}
		}
		out = append(out, grantedDir{host: r.cfg.WorkDir, guest: s.Guest, writable: s.Writable})
	}
	return out, nil
}

func guestName(guest string) string { return "/" + strings.Join(names(guest), "/") }

// openMounts opens the granted directories and sets the read-only subtrees.
func (r *run) openMounts() error {
	dirs, err := r.grantedDirs()
	if err != nil {
		return err
	}
	for _, d := range dirs {
		m, err := openMount(d.host, d.linked, d.writable, r.files)
		if err != nil {
			return &Refused{"files", CodeGrant, openReason(d, err)}
		}
		r.mounts = append(r.mounts, guestMount{steps: names(d.guest), fs: m})
	}
	if fs := r.manifest.Capabilities.Filesystem; fs != nil {
		for _, guest := range fs.ReadOnly {
			if err := r.freeze(guest); err != nil {
				return err
			}
		}
	}
	r.shareFrozen()
	return nil
}

// shareFrozen makes what is read-only in one mount read-only in all, for directories of the host that lie within each
// other. The root of a mount is exempt: what was granted writable by itself is.
func (r *run) shareFrozen() {
	all := map[fileID]struct{}{}
	for _, m := range r.mounts {
		maps.Copy(all, m.fs.frozenIDs)
		if !m.fs.writable {
			all[idOf(&m.fs.self)] = struct{}{}
		}
	}
	for _, m := range r.mounts {
		maps.Copy(m.fs.frozenIDs, all)
		delete(m.fs.frozenIDs, idOf(&m.fs.self))
	}
}

func openReason(d grantedDir, err error) string {
	reason := err.Error()
	if info, statErr := os.Lstat(d.host); statErr == nil && info.Mode()&os.ModeSymlink != 0 {
		reason = "it is a link, give the directory it leads to"
	} else if errors.Is(err, unix.ENOTDIR) {
		reason = "it is not a directory"
	}
	return fmt.Sprintf("cannot open %s for the guest's %s: %s", d.host, d.guest, reason)
}

// freeze makes a guest path read-only in the deepest mount that holds it, and below it any mount as a whole.
func (r *run) freeze(guest string) error {
	steps, holder := names(guest), -1
	for i, m := range r.mounts {
		switch {
		case len(m.steps) <= len(steps) && slices.Equal(m.steps, steps[:len(m.steps)]):
			if holder < 0 || len(m.steps) > len(r.mounts[holder].steps) {
				holder = i
			}
		case len(m.steps) > len(steps) && slices.Equal(m.steps[:len(steps)], steps):
			m.fs.writable = false
		}
	}
	if holder < 0 {
		return &Refused{"grants", CodeGrant, fmt.Sprintf("the read-only path %s is in no granted directory", guest)}
	}
	m := r.mounts[holder]
	m.fs.freeze(strings.Join(steps[len(m.steps):], "/"))
	return nil
}
