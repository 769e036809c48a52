package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

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

// searchEvery is the least time between two searches for strays.
const searchEvery = time.Minute

// straySearch searches for processes of boxes. A box that has a process has a directory or a control group too, unless something else
// has removed them. So what a search alone can find is rare, and a search reads files of all processes of the host.
type straySearch struct {
	list func(root string) ([]launch.Stray, error)
	mu   sync.Mutex
	next time.Time
}

// search returns the processes of boxes, or none if the last search is recent and found no more than is listed elsewhere. Call done with whether
// this search did.
func (s *straySearch) search(root string) (strays []launch.Stray, done func(nothingElse bool), err error) {
	s.mu.Lock()
	due := !time.Now().Before(s.next)
	s.mu.Unlock()
	if !due {
		return nil, func(bool) {}, nil
	}
	strays, err = s.list(root)
	return strays, func(nothingElse bool) {
		if nothingElse { // otherwise the caller, who destroys boxes that it lists twice, must see it again
			s.mu.Lock()
			s.next = time.Now().Add(searchEvery)
			s.mu.Unlock()
		}
	}, err
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
	strays, done, err := h.strays.search(h.paths.run)
	if err != nil {
		return nil, err
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
	listed := len(found)
	for _, s := range strays {
		found[s.ID] = true
	}
	done(len(found) == listed)
	return slices.Collect(maps.Keys(found)), nil
}
