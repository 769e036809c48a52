package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/client"
)

// fromSnapshot measures a sandbox made from a snapshot of another until it has
// answered a command. The snapshot stays until [Server.removeSnapshots].
func (m *Server) fromSnapshot(id string) Op {
	var snapshot string
	return func(ctx context.Context) (_ time.Duration, err error) {
		if snapshot == "" {
			if snapshot, err = newSnapshot(ctx, m, id); err != nil {
				return 0, err
			}
		}
		return createFrom(ctx, m, snapshot)
	}
}

// fromNewSnapshot is fromSnapshot with a new snapshot each time. The pool cannot have a box of a snapshot this new, so
// the server takes a blank box.
func fromNewSnapshot(m *Server, id string) Op {
	var snapshot string
	create := m.Pooled(func(ctx context.Context) (time.Duration, error) { return createFrom(ctx, m, snapshot) })
	return func(ctx context.Context) (_ time.Duration, err error) {
		if err := m.exec(ctx, id, "bash", "-c", "date +%s%N > ~/.bench"); err != nil { // else it has the same files
			return 0, err
		}
		if snapshot, err = newSnapshot(ctx, m, id); err != nil {
			return 0, err
		}
		return create(ctx)
	}
}

// newSnapshot makes a snapshot that stays until [Server.removeSnapshots].
func newSnapshot(ctx context.Context, m *Server, id string) (string, error) {
	sn, err := m.c.Snapshots.Create(ctx, id, client.SnapshotOptions{})
	if err != nil {
		return "", err
	}
	m.snapshots = append(m.snapshots, sn.ID)
	return sn.ID, nil
}

// createFrom measures a sandbox made from a snapshot until it has answered a command.
func createFrom(ctx context.Context, m *Server, snapshot string) (time.Duration, error) {
	var made *client.Sandbox
	took, err := Timed(func() (err error) {
		made, err = m.c.Sandboxes.Create(ctx, client.CreateOptions{Snapshot: snapshot, Resources: m.limits, TTL: ttl, WaitUpTo: time.Minute})
		if err != nil {
			return err
		}
		return m.exec(ctx, made.ID, "true")
	})
	if made != nil {
		err = errors.Join(err, m.Remove(ctx, made.ID))
	}
	return took, err
}

// removeSnapshots removes the snapshots of fromSnapshot, also when ctx has ended.
func (m *Server) removeSnapshots(ctx context.Context) (err error) {
	for _, id := range m.snapshots {
		err = errors.Join(err, m.c.Snapshots.Delete(context.WithoutCancel(ctx), id))
	}
	m.snapshots = nil
	return err
}

// IdlePython makes a sandbox with an idle Python in it, to be paused and forked.
func (m *Server) IdlePython(ctx context.Context) (string, error) {
	id, err := m.Start(ctx)
	if err != nil {
		return id, err
	}
	return id, m.exec(ctx, id, "bash", "-c", "setsid nohup python3 -c 'import time; time.sleep(1e9)' >/dev/null 2>&1 &")
}

// pause measures saving a running sandbox until its memory is free; bringing it
// back is not measured.
func (m *Server) pause(id string) Op {
	return func(ctx context.Context) (time.Duration, error) {
		took, err := Timed(func() error { _, err := m.c.Sandboxes.Pause(ctx, id); return err })
		if err != nil {
			return 0, err
		}
		_, err = m.c.Sandboxes.Resume(ctx, id, client.ResumeOptions{})
		return took, err
	}
}

// resume measures a command in a paused sandbox, which brings it back first;
// pausing is not measured.
func (m *Server) resume(id string) Op {
	return func(ctx context.Context) (time.Duration, error) {
		if _, err := m.c.Sandboxes.Pause(ctx, id); err != nil {
			return 0, err
		}
		return Timed(func() error { return m.exec(ctx, id, "true") })
	}
}

// Fork measures n copies of a running sandbox until each has answered a command;
// their removal is not measured.
func (m *Server) Fork(id string, n int) Op {
	return func(ctx context.Context) (time.Duration, error) {
		var children []string
		took, err := Timed(func() error {
			forked, err := m.c.Sandboxes.Fork(ctx, id, client.ForkOptions{Count: n, TTL: ttl})
			if err != nil {
				return err
			}
			for _, f := range forked {
				if f.Err != nil {
					return fmt.Errorf("fork of %s: %w", id, f.Err)
				}
				children = append(children, f.Sandbox.ID)
			}
			return Parallel(len(children), func(i int) error { return m.exec(ctx, children[i], "true") })
		})
		for _, child := range children {
			if rmErr := m.Remove(ctx, child); err == nil {
				err = rmErr
			}
		}
		return took, err
	}
}
