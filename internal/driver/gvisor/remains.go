package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/modbox/modbox/internal/driver/gvisor/launch"
	"github.com/modbox/modbox/internal/driver/gvisor/process"
	"github.com/modbox/modbox/internal/sandbox"
)

// clear removes everything of a box from the host. With search it also looks for processes, which
// is needed when the driver did not start or recover them.
func (h *host) clear(ctx context.Context, id sandbox.ID, search bool) error {
	if search {
		if err := h.killStrays(ctx, id); err != nil {
			return err
		}
	}
	if g := h.group(id); g != nil {
		if err := g.Remove(ctx); err != nil {
			return err
		}
	}
	if err := h.paths.layers().Remove(id); err != nil {
		return err
	}
	// Last, because the box is listed as long as the directory exists.
	return os.RemoveAll(h.paths.box(id))
}

// killStrays ends processes of a box that the driver does not know.
func (h *host) killStrays(ctx context.Context, id sandbox.ID) error {
	strays, err := launch.Strays(h.paths.run)
	if err != nil {
		return err
	}
	for _, s := range strays {
		if s.ID != id {
			continue
		}
		p, err := s.Find()
		if errors.Is(err, process.ErrNone) {
			continue
		}
		if err != nil {
			return err
		}
		err = p.KillAndWait(ctx)
		p.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// found returns the known boxes, and the boxes of which anything is on the host.
func (h *host) found(known []sandbox.ID) ([]sandbox.ID, error) {
	found := map[sandbox.ID]bool{}
	note := func(name string) {
		if id, ok := sandbox.ParseID(name); ok {
			found[id] = true
		}
	}
	for _, id := range known {
		found[id] = true
	}
	strays, err := launch.Strays(h.paths.run)
	if err != nil {
		return nil, err
	}
	for _, s := range strays {
		found[s.ID] = true
	}
	if h.groups != nil {
		names, err := h.groups.List()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			note(name)
		}
	}
	boxes, err := os.ReadDir(h.paths.boxes())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list boxes: %w", err)
	}
	for _, e := range boxes {
		note(e.Name())
	}
	owners, err := h.paths.layers().Owners()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	maps.Copy(found, owners)
	return slices.Collect(maps.Keys(found)), nil
}
