package fleet

import (
	"context"
	"errors"
	"sync"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// holdFor is hold for a box that is restored from a checkpoint, if there is one: a fresh place is on a worker that can restore it. It adds
// the workers that cannot to except. Errors: also of CanRestore, if no worker can; Unavailable if another worker may.
func (d *Driver) holdFor(spec driver.Spec, checkpoint string, except map[*member]bool) (p *place, release func(), fresh bool, err error) {
	var refusal error
	for {
		p, release, fresh, err = d.hold(spec, except)
		switch {
		case err != nil && refusal != nil:
			return nil, nil, false, d.refused(refusal, except)
		case err != nil || !fresh || checkpoint == "" || d.isOnly(p.member):
			return p, release, fresh, err
		}
		err = p.member.boxes.CanRestore(checkpoint)
		if err == nil || ofFiles(err) {
			return p, release, fresh, nil
		}
		release()
		if refusal == nil || sandbox.CodeOf(err) != sandbox.Unsupported { // an error that says less counts
			refusal = err
		}
		except[p.member] = true
	}
}

// ofFiles reports whether an error of CanRestore is the same on all workers, because it is about the files.
func ofFiles(err error) bool {
	return sandbox.CodeOf(err) == sandbox.NotFound || errors.Is(err, driver.ErrNoMemory)
}

// CanRestore implements [driver.Checkpointer]: a worker can. Errors: Unavailable if none can that is connected, and another may.
func (d *Driver) CanRestore(dir string) error {
	asked := map[*member]bool{}
	var refusal error
	for _, m := range d.reachable() {
		err := m.boxes.CanRestore(dir)
		if err == nil || ofFiles(err) {
			return err
		}
		if refusal == nil || sandbox.CodeOf(err) != sandbox.Unsupported { // an error that says less counts
			refusal = err
		}
		asked[m] = true
	}
	if refusal == nil {
		refusal = driver.ErrAway
	}
	return d.refused(refusal, asked)
}

// Stage implements [driver.Stager]. Files without a box are staged on all workers that are connected.
func (d *Driver) Stage(ctx context.Context, w sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (func(), error) {
	if spec.ID == "" {
		return d.stageEverywhere(ctx, w, spec, checkpoint)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	except := map[*member]bool{}
	var last error
	for {
		p, release, fresh, err := d.holdFor(spec, checkpoint, except)
		if err != nil && last != nil {
			return nil, last
		} else if err != nil {
			return nil, err
		}
		unstage, err := p.member.boxes.Stage(ctx, w, spec, checkpoint)
		if err == nil {
			return func() { unstage(); release() }, nil
		}
		release()
		// The disk of another worker may have space.
		if !fresh || ctx.Err() != nil || sandbox.CodeOf(err) != sandbox.DiskFull && !errors.Is(err, driver.ErrAway) {
			return nil, err
		}
		last = err
		except[p.member] = true
	}
}

// stageEverywhere stages files for any boxes. It succeeds if a worker has them. A box that is placed on another worker
// finds out that it does not.
func (d *Driver) stageEverywhere(ctx context.Context, w sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (func(), error) {
	list := d.reachable()
	releases, errs := make([]func(), len(list)), make([]error, len(list))
	var all sync.WaitGroup
	for i, m := range list {
		all.Go(func() { releases[i], errs[i] = m.boxes.Stage(ctx, w, spec, checkpoint) })
	}
	all.Wait()
	staged := false
	release := func() {
		for i := range list {
			if errs[i] == nil {
				releases[i]()
			}
		}
	}
	for _, err := range errs {
		staged = staged || err == nil
	}
	if !staged {
		if len(list) == 0 {
			return nil, driver.ErrAway
		}
		return nil, errs[0]
	}
	return release, nil
}
