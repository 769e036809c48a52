// Package savedbox saves boxes to files, and makes boxes run again from them. It works on boxes that an
// operation of package lifecycle has exclusively (see [box.Box.Exclusively]), and records no state of a
// sandbox: a box that could not be saved, or brought back, is for the caller to let go on or to destroy.
//
// A [Saver] writes the state of a box. A [Reviver] restores a box with its memory, or starts a new box with
// the files of the saved state when the memory is lost. All access to a saved state on the way to a running
// box is here.
package savedbox

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// Host is the service that starts boxes. Its methods are safe for concurrent use.
type Host interface {
	// Spec describes the box of a sandbox to the driver.
	Spec(sb *sandbox.Sandbox, rootfs string) driver.Spec
	// Stage is [driver.Stage] for the box of a sandbox.
	Stage(ctx context.Context, ws sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (release func(), err error)
	// Turn waits until a sandbox of the workspace may boot or be restored. release ends its turn.
	Turn(ctx context.Context, ws sandbox.WorkspaceID) (release func(), err error)
}

// Images knows the images that sandboxes are made from.
type Images interface {
	// Resolve returns an image and the path of its root filesystem. Errors: NotFound if it is not on this server.
	Resolve(ctx context.Context, ref string) (spec.Image, string, error)
}

const (
	destroyTimeout = 60 * time.Second // of one attempt to destroy a box
	saveTimeout    = 10 * time.Minute // of saving a box
	// probeTimeout bounds the answer of a driver about a box. An agent gets a call after a few exchanges with a worker, and has five seconds.
	probeTimeout = time.Second
)
