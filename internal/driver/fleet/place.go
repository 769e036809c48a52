package fleet

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"sync"
	"syscall"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// search is a search for the place of a box, which is restored from a checkpoint if there is one.
type search struct {
	*Driver
	spec       driver.Spec
	checkpoint string           // "": none
	except     map[*member]bool // workers that are no place for the box; it grows
}

// hold returns the place of the box until release is called: a fresh place is on a worker that can restore the checkpoint, if there is one. With a
// supplier, the box gets a worker of its own. Errors: also of CanRestore, if no worker can; Unavailable if another worker may.
func (s search) hold(ctx context.Context, w sandbox.WorkspaceID) (p *place, release func(), fresh bool, err error) {
	if s.checkpoint != "" {
		if err := exists(s.checkpoint); err != nil {
			return nil, nil, false, err
		}
	}
	if s.cfg.Supplier != nil {
		if p, release, err = (supplied{s.Driver}).held(s.spec.ID); p == nil && err == nil {
			p, release, err = (supplied{s.Driver}).give(ctx, w, s.spec, s.checkpoint)
		} else if err == nil && w != "" {
			s.cfg.Supplier.Claim(p.member.record.ID, w) // the id does not change
		}
		return p, release, false, err
	}
	p, release, fresh, err = s.board.hold(s.spec, s.except)
	if err != nil || !fresh || s.checkpoint == "" || s.isOnly(p.member) {
		return p, release, fresh, err
	}
	release()
	return s.holdWilling()
}

// holdWilling is hold for a box without a place: it asks the workers, the worker with the most memory first.
func (s search) holdWilling() (p *place, release func(), fresh bool, err error) {
	asked := newPoll(s.candidates(s.spec, s.except), betterWait, func(m *member) error { return m.canRestore(s.life, s.checkpoint) })
	for asked.goesOn() {
		before := len(asked.agreed)
		asked.round()
		if len(asked.agreed) > before {
			if p, release, fresh, err = s.board.hold(s.spec, asked.others(s.except)); err == nil {
				break
			}
		}
	}
	maps.Copy(s.except, asked.refused)
	switch {
	case p != nil:
		return p, release, fresh, nil
	case asked.refusal == nil && err == nil: // there is no worker to ask
		return s.board.hold(s.spec, s.except)
	case asked.refusal == nil:
		return nil, nil, false, err
	}
	return nil, nil, false, s.refused(asked.refusal, s.spec, s.except)
}

// CanRestore implements [driver.Checkpointer]: a worker can. Errors: Unavailable if none can that is connected, and another may.
func (d *Driver) CanRestore(dir string) error {
	if err := exists(dir); err != nil {
		return err
	}
	asked := newPoll((supplied{d}).others(), 0, func(m *member) error { return m.canRestore(d.life, dir) })
	for asked.goesOn() {
		if asked.round(); len(asked.agreed) > 0 {
			return asked.answer
		}
	}
	if asked.refusal == nil {
		asked.refusal = driver.ErrAway
	}
	return d.refused(asked.refusal, driver.Spec{}, asked.refused)
}

// exists returns an error unless there is a checkpoint: its directory appears when it is complete. Errors: NotFound.
func exists(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && len(entries) == 0 {
		return sandbox.Wrap(sandbox.NotFound, err, "there is no complete checkpoint")
	}
	return err
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
		p, release, fresh, err := search{d, spec, checkpoint, except}.hold(ctx, w)
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
// finds out that it does not. With a supplier it does nothing: only workers that get no box could have them.
func (d *Driver) stageEverywhere(ctx context.Context, w sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (func(), error) {
	if d.cfg.Supplier != nil {
		return func() {}, nil
	}
	list := (supplied{d}).others()
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
