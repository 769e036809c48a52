package build

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/workbox"
)

// Host gives builds their capacity, base images and boxes. [NewHost] makes the host of a server.
type Host interface {
	// CheckDisk returns an error if the caller's workspace may not build now. Errors:
	// QuotaExceeded if its disk is used up; Unavailable if the server's disk is.
	CheckDisk(ctx context.Context, c sandbox.Caller) error
	// CheckDiskFor returns QuotaExceeded or Unavailable when add bytes more of built images do not
	// fit the quota of the workspace or the disk, for a build that has the given resources. It
	// removes nothing.
	CheckDiskFor(ctx context.Context, c sandbox.Caller, have sandbox.Resources, add int64) error
	// AcquireSlot waits for a build slot of the workspace and reserves resources for each RUN: the
	// resources asked for, or for a zero value the default of builds within the quota. It calls
	// waits, which may be nil, with the reason while it waits. It waits for the quota for maxWait
	// at most. Release ends the reservation; idempotent. Errors: the context's; QuotaExceeded, also
	// when too many of the workspace wait; Invalid, naming the field.
	AcquireSlot(ctx context.Context, c sandbox.Caller, asked sandbox.Resources, maxWait time.Duration, waits func(string)) (have sandbox.Resources, release func(), err error)
	// Base returns the image of a FROM: an image that the workspace has built, one of its
	// snapshots or a public snapshot by its full name, a runtime, or an image of a registry, which
	// it pulls if necessary. Errors: Invalid; NotFound; the errors of a pull.
	Base(ctx context.Context, c sandbox.Caller, ref string, progress func(phase.Event)) (spec.Image, error)
	// Run runs a RUN instruction in a box of its own, passes stdout and stderr to output, and
	// writes the changed files to layer when the command exits with 0. Errors: Invalid or NotFound
	// for a command that cannot be run; Unavailable when the box ended, with the reason;
	// Unsupported; errors of layer.
	Run(ctx context.Context, cmd Command, output func([]byte), layer io.Writer) (agentapi.Exit, error)
	// CheckLimits checks the resources and the waiting time that a build asks for. Errors:
	// Invalid, naming the field.
	CheckLimits(r sandbox.Resources, maxWait time.Duration) error
}

// Command is a RUN of a Dockerfile.
type Command struct {
	// Base is the digest of the root filesystem that it runs on.
	Base      string
	Argv      []string
	Env       map[string]string
	Cwd, User string
	// Script, unless "", is written to ScriptPath, which Argv runs and which is not part of the
	// layer.
	Script, ScriptPath string
	// Network connects the box to the network; Resources come from [Host.AcquireSlot].
	Network   bool
	Resources sandbox.Resources
}

// unkept returns the files of a box that belong to the server: the layer of a command does not
// contain them.
func unkept() []string { return []string{"etc/hostname", "etc/hosts", "etc/resolv.conf"} }

// Images finds the images that builds start from.
type Images interface {
	// Resolve returns the image of a digest and the path of its root filesystem. Errors: NotFound.
	Resolve(ctx context.Context, digest string) (spec.Image, string, error)
	// Built returns the image that a workspace has built under a reference. Errors: NotFound.
	Built(ctx context.Context, ws sandbox.WorkspaceID, ref string) (spec.Image, error)
}

// Snapshots finds snapshots. [github.com/modbox/modbox/internal/snapshot.Service] implements it.
type Snapshots interface {
	// Get returns the snapshot that ref means to the caller. Errors: NotFound.
	Get(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Snapshot, error)
}

// HostDeps are the parts that the host of a server uses. It does not close them.
type HostDeps struct {
	Images    Images
	Snapshots Snapshots
	Prepare   *prepare.Service
	Boxes     *workbox.Maker
	Quotas    *quota.Controller
	Work      *background.Group
}

// host is the host of a server.
type host struct {
	HostDeps
	// slots are separate from the slots of installs: a create must not wait for a Dockerfile, whose
	// commands may take an hour.
	slots *fairsem.Semaphore
}

// defaultSlots is the default number of concurrent builds.
const defaultSlots = 2

// NewHost returns the host of a server, which runs at most slots builds at once; 0 is 2.
func NewHost(slots int, deps HostDeps) Host {
	return &host{HostDeps: deps, slots: fairsem.New(cmp.Or(slots, defaultSlots))}
}

// CheckDisk implements [Host].
func (h *host) CheckDisk(ctx context.Context, c sandbox.Caller) error {
	return h.Quotas.CheckDisk(ctx, c.Workspace)
}

// CheckDiskFor implements [Host].
func (h *host) CheckDiskFor(ctx context.Context, c sandbox.Caller, have sandbox.Resources, add int64) error {
	return h.Quotas.CheckDiskFor(ctx, c.Workspace, have.DiskBytes, add)
}

// CheckLimits implements [Host].
func (h *host) CheckLimits(r sandbox.Resources, maxWait time.Duration) error {
	return cmp.Or(quota.CheckWait(maxWait), h.Quotas.CheckAsked(r))
}

// AcquireSlot implements [Host].
func (h *host) AcquireSlot(ctx context.Context, c sandbox.Caller, asked sandbox.Resources, maxWait time.Duration, waits func(string)) (have sandbox.Resources, release func(), err error) {
	got, err := h.Quotas.ReserveWithPlace(ctx, h.slots, c.Workspace, asked, maxWait, waits)
	if err != nil {
		return have, nil, err
	}
	return got.Have, got.Release, nil
}

// Base implements [Host]. Only Base resolves references, because their meaning may change during a
// build.
func (h *host) Base(ctx context.Context, c sandbox.Caller, ref string, progress func(phase.Event)) (spec.Image, error) {
	if err := sandbox.CheckText("from", ref, 1, sandbox.ImageRefMax); err != nil {
		return spec.Image{}, err
	}
	img, err := h.Images.Built(ctx, c.Workspace, ref)
	if err == nil {
		return img, nil
	}
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return spec.Image{}, err
	}
	switch sn, err := h.Snapshots.Get(ctx, c, ref); {
	case err == nil:
		img, _, err = h.Images.Resolve(ctx, sn.Digest)
		return img, err
	case sandbox.CodeOf(err) != sandbox.NotFound:
		return spec.Image{}, err
	}
	return h.Prepare.Base(ctx, "from", ref, c.Workspace, progress)
}

// errCommandFailed ends the work of a command with a nonzero exit code.
var errCommandFailed = errors.New("the command failed")

// Run implements [Host].
func (h *host) Run(ctx context.Context, cmd Command, output func([]byte), layer io.Writer) (agentapi.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := h.Work.Context()
	defer context.AfterFunc(server, cancel)()
	var exit agentapi.Exit
	var err error
	work := func(ctx context.Context, w *workbox.Box) error {
		if cmd.Script != "" {
			opts := agentapi.WriteOptions{Mode: 0o755, User: "0:0", Parents: true}
			if _, err := w.Files().WriteFile(ctx, cmd.ScriptPath, strings.NewReader(cmd.Script), opts); err != nil {
				return w.Explain(ctx, err)
			}
		}
		var err error
		exit, err = w.Run(ctx, agentapi.Command{Argv: cmd.Argv, Env: cmd.Env, Cwd: cmd.Cwd, User: cmd.User}, output)
		if err == nil && exit.Code != 0 {
			return errCommandFailed
		}
		return err
	}
	done := make(chan struct{})
	if !h.Work.Go(func() { // so that the server waits for it when it stops
		defer close(done)
		err = h.Boxes.WriteLayer(ctx, workbox.Spec{Base: cmd.Base, Network: cmd.Network, PlainTmp: true, Resources: cmd.Resources}, layer, work)
	}) {
		return agentapi.Exit{}, box.ErrClosed
	}
	<-done
	switch {
	case errors.Is(err, errCommandFailed):
		return exit, nil
	case err != nil && server.Err() != nil:
		return exit, box.ErrClosed
	}
	return exit, err
}
