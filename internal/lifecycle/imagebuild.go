package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/workbox"
)

// What a Dockerfile needs of the service: what it begins with, and boxes for its
// commands. Package build has the rest.

// BuildBase returns what a Dockerfile is built on: an image that the workspace has
// built, one of its snapshots or a public one by its full name, a runtime, or an image
// of a registry, which is pulled when it is not here. A reference is resolved here
// only: what it means may change. Progress is as in [prepare.Service.Pull].
//
// Errors: Invalid and NotFound; as [prepare.Service.Pull].
func (s *Service) BuildBase(ctx context.Context, c sandbox.Caller, ref string, progress func(sandbox.ImageEvent)) (img sandbox.Image, err error) {
	if err := sandbox.CheckText("from", ref, 1, sandbox.ImageRefMax); err != nil {
		return sandbox.Image{}, err
	}
	if img, err = s.images.Built(ctx, c.Workspace, ref); err == nil {
		return img, nil
	}
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return sandbox.Image{}, err
	}
	switch sn, err := s.snapshots.Get(ctx, c, ref); {
	case err == nil:
		img, _, err = s.images.Resolve(ctx, sn.Digest)
		return img, err
	case sandbox.CodeOf(err) != sandbox.NotFound:
		return sandbox.Image{}, err
	}
	return s.prepare.Base(ctx, "from", ref, c.Workspace, progress)
}

// BuildCommand is a RUN of a Dockerfile.
type BuildCommand struct {
	// Base is the digest of the root filesystem that it runs over.
	Base      string
	Argv      []string
	Env       map[string]string
	Cwd, User string
	// Script, when not "", is put into the file ScriptPath, which Argv runs and which
	// is no part of what the command leaves.
	Script, ScriptPath string
	// Network gives it one; Resources are what [Service.BuildPlace] said.
	Network   bool
	Resources sandbox.Resources
}

// MayBuild returns why nothing more may be built in the caller's workspace at the
// moment. Errors: QuotaExceeded when its disk is used up; Unavailable when the
// server's is.
func (s *Service) MayBuild(ctx context.Context, c sandbox.Caller) error {
	return s.quotas.CheckDisk(ctx, c.Workspace)
}

// MayKeepBuilt returns an error if the builds of the caller's workspace may not store add bytes
// more. have are the resources that [Service.BuildPlace] returned. It removes nothing. Errors: as
// [Service.MayBuild].
func (s *Service) MayKeepBuilt(ctx context.Context, c sandbox.Caller, have sandbox.Resources, add int64) error {
	return s.quotas.CheckDiskFor(ctx, c.Workspace, have.DiskBytes, add)
}

// BuildPlace returns when a build of the caller's workspace has its turn, which ends
// with release. It counts for the quota of the workspace until then, with what each of
// its commands may have: what it asks for, or for what is 0 Config.Build as far as the
// quota lets one sandbox have that. Where there is no room it waits for that as a create
// does, for as long as it may, and counts from when there is some. Waits is told what it
// waits for.
// Dependencies have places of their own: a sandbox does not wait for all that a
// Dockerfile does.
//
// Errors: the context's; QuotaExceeded when too many of the workspace wait, and when its
// quota has no room; Invalid, naming the field, for resources beyond the maximum of a
// sandbox there.
func (s *Service) BuildPlace(ctx context.Context, c sandbox.Caller, asked sandbox.Resources, patience time.Duration, waits func(string)) (have sandbox.Resources, release func(), err error) {
	got, err := s.quotas.ReserveWithPlace(ctx, s.dockerfiles, c.Workspace, asked, patience, waits)
	if err != nil {
		return have, nil, err
	}
	return got.Have, got.Release, nil
}

// BuildUnkept are the files of a box that are the service's own: what a command of
// a build leaves of them is no part of its layer.
func BuildUnkept() []string { return []string{"etc/hostname", "etc/hosts", "etc/resolv.conf"} }

// RunBuildCommand runs a command in a box of its own and hands its output, which is
// of both its streams, to output. What it leaves is written to layer as a layer, when
// it ends with code 0.
//
// Errors: Invalid or NotFound for a command that cannot be run; Unavailable when
// the box ended, saying why; Unsupported; layer's.
func (s *Service) RunBuildCommand(ctx context.Context, cmd BuildCommand, output func([]byte), layer io.Writer) (agentapi.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
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
	if !s.work.Go(func() { // so that Close waits for it
		defer close(done)
		err = s.workboxes.WriteLayer(ctx, workbox.Spec{Base: cmd.Base, Network: cmd.Network, PlainTmp: true, Resources: cmd.Resources}, layer, work)
	}) {
		return agentapi.Exit{}, box.ErrClosed
	}
	<-done
	switch {
	case err == errCommandFailed:
		return exit, nil
	case err != nil && s.ctx.Err() != nil:
		return exit, box.ErrClosed
	}
	return exit, err
}

// errCommandFailed ends the work of a command that has an exit code to tell.
var errCommandFailed = fmt.Errorf("the command failed")

// CheckBuildResources checks the limits that a build asks for, and for how long it may
// wait for them. Errors: Invalid, naming the field.
func (s *Service) CheckBuildResources(r sandbox.Resources, patience time.Duration) error {
	return cmp.Or(sandbox.CheckWaitForQuota(patience), s.cfg.checkResources(&r))
}
