package cli

import (
	"context"

	"github.com/seed-8e62c83d/mur/internal/capsule"
	"github.com/seed-8e62c83d/mur/internal/wasmhost"
)

// fillCache compiles a capsule before its session exists: so the wait, and what
// is said about it, is mur's own and no part of the session's output.
func (d *deps) fillCache(ctx context.Context, c *capsule.Capsule, dir string) error {
	return cannot("compile", c.Manifest.Name, wasmhost.Prepare(ctx, c, dir, d.progress))
}
