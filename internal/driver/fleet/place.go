package fleet

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// holdFor is hold for a box that is restored from a checkpoint, if there is one: a fresh place is on a worker that can restore it. It adds
// the workers that cannot to except. With a supplier, the box gets a worker of its own. Errors: also of CanRestore, if no worker can; Unavailable if another worker may.
func (d *Driver) holdFor(ctx context.Context, w sandbox.WorkspaceID, spec driver.Spec, checkpoint string, except map[*member]bool) (p *place, release func(), fresh bool, err error) {
	if checkpoint != "" {
		if err := exists(checkpoint); err != nil {
			return nil, nil, false, err
		}
	}
	if d.cfg.Supplier != nil {
		if p, release, err = (supplied{d}).held(spec.ID); p == nil && err == nil {
			p, release, err = (supplied{d}).give(ctx, w, spec, checkpoint)
		}
		return p, release, false, err
	}
	p, release, fresh, err = d.hold(spec, except)
	if err != nil || !fresh || checkpoint == "" || d.isOnly(p.member) {
		return p, release, fresh, err
	}
	release()
	return d.holdWilling(spec, checkpoint, except)
}

// betterWait limits the wait for the answers of other workers, which may have more memory, after a worker has agreed.
const betterWait = 250 * time.Millisecond

// holdWilling is holdFor for a box without a place. It asks all workers at the same time: a worker whose machine is lost counts as connected for a
// while, and its missing answer delays nothing.
func (d *Driver) holdWilling(spec driver.Spec, checkpoint string, except map[*member]bool) (p *place, release func(), fresh bool, err error) {
	list := d.candidates(spec, except)
	answers := askCanRestore(d.life, list, checkpoint)
	var refusal error
	silent := map[*member]bool{} // no answer so far
	for _, m := range list {
		silent[m] = true
	}
	// hold places the box on a worker that has agreed.
	hold := func() (*place, func(), bool, error) {
		others := maps.Clone(except)
		maps.Copy(others, silent)
		return d.hold(spec, others)
	}
	var enough <-chan time.Time
	agreed := 0
	for len(silent) > 0 {
		select {
		case a := <-answers:
			delete(silent, a.member)
			if a.err != nil && !errors.Is(a.err, driver.ErrNoMemory) {
				refusal = lesser(refusal, a.err)
				except[a.member] = true
				continue
			}
			agreed++
			if agreed == 1 {
				enough = time.After(betterWait)
				continue
			} else if enough != nil {
				continue
			}
		case <-enough:
			enough = nil
		}
		if p, release, fresh, err = hold(); err == nil {
			return p, release, fresh, nil
		}
	}
	if agreed == 0 && refusal != nil {
		return nil, nil, false, d.refused(refusal, except)
	}
	p, release, fresh, err = hold()
	if err != nil && refusal != nil {
		return nil, nil, false, d.refused(refusal, except)
	}
	return p, release, fresh, err
}

// canAnswer is the answer of a worker to CanRestore.
type canAnswer struct {
	member *member
	err    error
}

// askCanRestore asks workers whether they can restore a checkpoint. Each answer is sent once.
func askCanRestore(ctx context.Context, list []*member, checkpoint string) <-chan canAnswer {
	answers := make(chan canAnswer, len(list))
	for _, m := range list {
		go func() { answers <- canAnswer{m, m.canRestore(ctx, checkpoint)} }()
	}
	return answers
}

// canRestore asks a worker. One that hangs counts as away.
func (m *member) canRestore(ctx context.Context, dir string) error {
	_, err := within(ctx, memberTimeout, func(context.Context) (struct{}, error) { return struct{}{}, m.boxes.CanRestore(dir) })
	return err
}

// lesser returns which of two refusals of workers counts, the first may be nil: the refusal that says less about the checkpoint. That a
// checkpoint is damaged, as not found says, counts if all workers say so.
func lesser(a, b error) error {
	weight := func(err error) int {
		switch sandbox.CodeOf(err) {
		case sandbox.NotFound:
			return 0
		case sandbox.Unsupported:
			return 1
		}
		return 2
	}
	if a == nil || weight(b) > weight(a) {
		return b
	}
	return a
}

// CanRestore implements [driver.Checkpointer]: a worker can. Errors: Unavailable if none can that is connected, and another may.
func (d *Driver) CanRestore(dir string) error {
	if err := exists(dir); err != nil {
		return err
	}
	list := (supplied{d}).others()
	answers := askCanRestore(d.life, list, dir)
	asked := map[*member]bool{}
	var refusal error
	for range list {
		a := <-answers
		if a.err == nil || errors.Is(a.err, driver.ErrNoMemory) {
			return a.err
		}
		refusal = lesser(refusal, a.err)
		asked[a.member] = true
	}
	if refusal == nil {
		refusal = driver.ErrAway
	}
	return d.refused(refusal, asked)
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
		p, release, fresh, err := d.holdFor(ctx, w, spec, checkpoint, except)
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
