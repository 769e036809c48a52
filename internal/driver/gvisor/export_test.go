package gvisor

import (
	"context"

	"github.com/modbox/modbox/internal/sandbox"
)

// Installation is the name of the control group of the driver with that RunDir.
func Installation(runDir string) string {
	return (&Driver{cfg: Config{RunDir: runDir}}).installation()
}

// MarkHeld leaves a box as a server does that died before or after it held it still.
func (d *Driver) MarkHeld(ctx context.Context, id sandbox.ID, held bool) error {
	b, err := d.lookup(id)
	if err != nil {
		return err
	}
	if held {
		return b.hold(ctx)
	}
	return b.setHeld(true)
}
