package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/modbox/modbox/internal/sandbox"
)

// Destroy implements [driver.Driver].
func (d *Driver) Destroy(ctx context.Context, id sandbox.ID) error {
	ctx, leave := d.enter(ctx)
	defer leave()
	if parsed, ok := sandbox.ParseID(string(id)); !ok || parsed != id {
		return nil // no box has such an ID; and it must not become part of a path
	}
	for {
		b := d.newBox(id)
		if d.claim(b) == nil {
			// Unknown box: remains of an earlier driver, or nothing at all.
			err := d.clear(ctx, id, true)
			d.forget(b)
			close(b.done)
			return d.destroyError(ctx, id, err)
		}
		d.mu.Lock()
		b = d.boxes[id]
		d.mu.Unlock()
		if b == nil {
			continue
		}
		b.abort(sandbox.Errorf(sandbox.Unavailable, "the sandbox was destroyed while it was made"))
		select {
		case <-b.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-b.ready:
			return d.destroyError(ctx, id, d.destroy(ctx, b))
		default: // its making failed and left nothing, or another Destroy cleared remains
		}
	}
}

// destroy ends a completely made box.
func (d *Driver) destroy(ctx context.Context, b *box) error {
	b.mu.Lock()
	b.destroyed = true
	b.mu.Unlock()
	// Before waiting for the lock: a Start in progress ends with the process.
	if err := b.proc.kill(); err != nil && !b.hasEnded() {
		return err
	}
	select {
	case <-b.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	d.mu.Lock()
	gone := d.boxes[b.id] != b
	d.mu.Unlock()
	if gone {
		return nil // by another Destroy; the ID may belong to another box now
	}
	if err := d.clear(ctx, b.id, false); err != nil {
		return err
	}
	d.forget(b)
	return nil
}

func (d *Driver) destroyError(ctx context.Context, id sandbox.ID, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return sandbox.Wrap(sandbox.Internal, err, "box %s could not be removed completely", id)
	}
}

// clear removes everything of a box from the host. With search it also looks for processes, which
// is needed when the driver did not start or recover them.
func (d *Driver) clear(ctx context.Context, id sandbox.ID, search bool) error {
	if search {
		if err := d.killStrays(ctx, id); err != nil {
			return err
		}
	}
	if g := d.group(id); g != nil {
		if err := g.Remove(ctx); err != nil {
			return err
		}
	}
	if err := removeLayers(d.layersDir(), id); err != nil {
		return err
	}
	// Last, because the box is listed as long as the directory exists.
	return os.RemoveAll(d.boxDir(id))
}

// killStrays ends processes of a box that the driver does not know.
func (d *Driver) killStrays(ctx context.Context, id sandbox.ID) error {
	strays, err := d.strays()
	if err != nil {
		return err
	}
	for _, s := range strays {
		if s.id != id {
			continue
		}
		p, err := findProcess(s.pid, s.start)
		if errors.Is(err, errNoProcess) {
			continue
		}
		if err != nil {
			return err
		}
		err = p.killAndWait(ctx)
		p.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// stray is a process that this installation started for a box.
type stray struct {
	id    sandbox.ID
	pid   int
	start uint64
}

// strays finds the first processes of all boxes of this installation by their command lines, which
// guests can neither see nor change.
func (d *Driver) strays() ([]stray, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	begin := []byte(processName + "\x00--root=" + d.cfg.RunDir + "\x00")
	var found []stray
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		start, err := startTime(pid)
		if err != nil {
			continue // it ended meanwhile
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !bytes.HasPrefix(line, begin) {
			continue
		}
		words := bytes.Split(bytes.TrimSuffix(line, []byte{0}), []byte{0})
		if id, ok := sandbox.ParseID(string(words[len(words)-1])); ok {
			found = append(found, stray{id: id, pid: pid, start: start})
		}
	}
	return found, nil
}

// List implements [driver.Driver].
func (d *Driver) List(ctx context.Context) ([]sandbox.ID, error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	found := map[sandbox.ID]bool{}
	note := func(name string) {
		if id, ok := sandbox.ParseID(name); ok {
			found[id] = true
		}
	}
	d.mu.Lock()
	for id := range d.boxes {
		found[id] = true
	}
	d.mu.Unlock()
	strays, err := d.strays()
	if err != nil {
		return nil, err
	}
	for _, s := range strays {
		found[s.id] = true
	}
	if d.groups != nil {
		names, err := d.groups.List()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			note(name)
		}
	}
	boxes, err := os.ReadDir(d.boxesDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list boxes: %w", err)
	}
	for _, e := range boxes {
		note(e.Name())
	}
	layers, err := os.ReadDir(d.layersDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list writable layers: %w", err)
	}
	for _, e := range layers {
		if id, ok := layerOwner(e.Name()); ok {
			found[id] = true
		}
	}
	ids := make([]sandbox.ID, 0, len(found))
	for id := range found {
		ids = append(ids, id)
	}
	return ids, nil
}
