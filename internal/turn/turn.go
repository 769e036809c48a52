// Package turn gives a server with standbys its turn: the lock of the state directory, of all sandboxes or of a part of them, once the
// database answers and has the tables of this program. The process ends when it cannot be sure of the lock any more.
package turn

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
)

const (
	// stallLimit is the time for which the active server may stand still; then the kernel ends it, so that a standby gets its turn.
	stallLimit = 15 * time.Second
	// lockCheck is the interval of the checks of the lock of the state directory, and lockLimit the time after which a server ends
	// if none has succeeded: a file server keeps a lock for longer (90 seconds with NFSv4).
	lockCheck = 5 * time.Second
	lockLimit = time.Minute
	// databasePause is the time between two attempts to reach the database, and alonePause the time after which a server that must change
	// the tables looks whether another has.
	databasePause = 5 * time.Second
	alonePause    = time.Second
	// wholePause is the time after which a server that waits for all parts looks whether it still needs all.
	wholePause = 10 * time.Second
)

// Config has what a turn needs. All fields but Whole must be set.
type Config struct {
	StateDir string
	// Parts are the parts of the sandboxes that have a server each; one part for a server that works on all.
	Parts []sandbox.Ranges
	// Look reports whether the database has the tables of this program, or whatever else the start of the server judges. Errors: the
	// database cannot be reached.
	Look func(context.Context) (ready bool, err error)
	// Whole reports whether the server must work on all sandboxes, although there are several parts; nil: never. Errors: the database cannot be reached.
	Whole func(context.Context) (bool, error)
	// Prepare makes or updates the tables. Only servers with parts need it; the others do so as they start.
	Prepare func(context.Context) error
	Log     *slog.Logger
}

// Turn is the lock of the state directory of a server with standbys. It ends with the process, and not before: requests and work in the
// background may outlast everything else.
type Turn struct {
	cfg    Config
	ranges sandbox.Ranges
	held   atomic.Pointer[statedir.Held] // nil before
	// confirmed is the uptime at which the lock was held for sure.
	confirmed atomic.Int64
}

// Take waits until no other server works on a part, and the database answers. Errors: of the disk; of Prepare; the cause of ctx.
func Take(ctx context.Context, cfg Config) (*Turn, error) {
	t := &Turn{cfg: cfg}
	if err := endStalled(stallLimit, t.well); err != nil { // before the lock, with which it must not stand still
		cfg.Log.Warn("a server that stands still keeps its standbys from their turn: the kernel refuses a timer", "error", err)
	}
	if os.Getpid() == 1 {
		cfg.Log.Warn("the kernel does not end a stopped server that is the first process of its container, so its standbys do not get their turn: use an init process (docker run --init, shareProcessNamespace)")
	}
	return t, t.take(ctx)
}

// Ranges returns the ranges of shards that the server works on.
func (t *Turn) Ranges() sandbox.Ranges { return t.ranges }

// take waits for the lock. A server that cannot reach the database leaves it to the others.
func (t *Turn) take(ctx context.Context) error {
	alone := len(t.cfg.Parts) == 1
	for said := false; ; {
		ready, err := t.awaitDatabase(ctx)
		if err != nil {
			return err
		}
		if !ready && !alone {
			if !said {
				t.cfg.Log.Info("waiting until no other server works on the state directory, to make or update the tables of the database", "state_dir", t.cfg.StateDir)
			}
			said = true
			if err := t.prepare(ctx); err != nil {
				return err
			}
			continue
		}
		whole, err := t.whole(ctx)
		if err != nil {
			t.cfg.Log.Warn("it is not known whether this server must work on all sandboxes, trying again", "error", err)
			select {
			case <-time.After(databasePause):
			case <-ctx.Done():
			}
			continue
		}
		held, ranges, err := t.await(ctx, whole)
		if err != nil {
			return err
		}
		if held == nil {
			continue
		}
		ready, err = t.cfg.Look(ctx)
		again, wrong := t.whole(ctx)
		if err != nil || wrong != nil || !ready && !alone || again != whole { // others may have worked until now
			held.Release()
			continue
		}
		t.ranges = ranges
		t.confirmed.Store(int64(uptime()))
		t.held.Store(held)
		go t.watch() // until the process ends
		return nil
	}
}

// whole reports whether the server works on all sandboxes. Errors: of Whole.
func (t *Turn) whole(ctx context.Context) (bool, error) {
	if len(t.cfg.Parts) == 1 || t.cfg.Whole == nil {
		return len(t.cfg.Parts) == 1, nil
	}
	return t.cfg.Whole(ctx)
}

// await waits for the lock of the state directory, or of a part. It returns no lock after a while if there are parts, and the server waits for all of them: it
// need not any more, perhaps.
func (t *Turn) await(ctx context.Context, whole bool) (*statedir.Held, sandbox.Ranges, error) {
	switch {
	case len(t.cfg.Parts) == 1:
		held, err := statedir.Await(ctx, t.cfg.StateDir, t.cfg.StateDir)
		return held, t.cfg.Parts[0], err
	case whole:
		waiting, cancel := context.WithTimeout(ctx, wholePause)
		defer cancel()
		held, err := statedir.Await(waiting, t.cfg.StateDir, t.cfg.StateDir)
		if err != nil && ctx.Err() == nil && waiting.Err() != nil {
			return nil, 0, nil
		}
		return held, sandbox.AllRanges, err
	}
	held, part, err := statedir.AwaitPart(ctx, t.cfg.StateDir, t.cfg.StateDir, t.cfg.Parts)
	return held, t.cfg.Parts[part], err
}

// prepare has the tables made or updated while no other server works on the state directory. It returns nil after a while if others do: one of them
// may have updated the tables. Until then servers of the earlier version go on, and their standbys take over from them.
func (t *Turn) prepare(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, alonePause)
	defer cancel()
	alone, err := statedir.Await(waiting, t.cfg.StateDir, t.cfg.StateDir)
	switch {
	case err == nil:
		defer alone.Release()
		return t.cfg.Prepare(ctx)
	case ctx.Err() == nil && waiting.Err() != nil:
		return nil
	}
	return err
}

// watch ends the process when the lock is lost, because another server may have it.
func (t *Turn) watch() {
	for range time.Tick(lockCheck) {
		if err := t.held.Load().Check(); err != nil {
			t.cfg.Log.Error("the lock of the state directory is lost: the server ends", "error", err)
			os.Exit(1)
		}
		t.confirmed.Store(int64(uptime()))
	}
}

// well reports whether the server may go on: it has no turn yet, or had the lock a short time ago.
func (t *Turn) well() bool {
	return t.held.Load() == nil || uptime()-time.Duration(t.confirmed.Load()) < lockLimit
}

// awaitDatabase waits until the database answers, and returns what Look does.
func (t *Turn) awaitDatabase(ctx context.Context) (ready bool, err error) {
	for {
		ready, err := t.cfg.Look(ctx)
		if err == nil {
			return ready, nil
		}
		if ctx.Err() == nil {
			t.cfg.Log.Warn("waiting until the database answers", "error", err)
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(databasePause):
		}
	}
}
