package output

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

// Remove removes the stored output of an execution, whose record was deleted, soon.
func (s *Service) Remove(e *sandbox.Execution) {
	if e.StoredBy == sandbox.NothingStored || !s.cfg.Store && e.StoredBy != s.cfg.Installation {
		return
	}
	defer wake(s.deleted)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range refs(e) {
		if ref.Bytes > 0 && len(s.removals) < removalsMax { // an empty stream has no objects
			s.removals = append(s.removals, ref.ID)
		}
	}
}

// waiting returns the number of streams that wait for their removal.
func (s *Service) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.removals)
}

// removeQueued removes the streams of Remove. They count as waiting until they are removed.
func (s *Service) removeQueued(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		ids := slices.Clone(s.removals[:min(len(s.removals), batch)])
		s.mu.Unlock()
		if len(ids) == 0 {
			return
		}
		if err := s.removeAll(ctx, ids); err != nil {
			s.failed(ctx, "stored output of deleted executions not removed", err)
			return
		}
		s.mu.Lock()
		s.removals = s.removals[len(ids):]
		s.mu.Unlock()
	}
}

// removeAll removes the objects of streams.
func (s *Service) removeAll(ctx context.Context, ids []sandbox.StreamID) error {
	var g errgroup.Group
	g.SetLimit(removers)
	for _, id := range ids {
		g.Go(func() error { return s.remove(ctx, id) })
	}
	return g.Wait()
}

// remove removes the objects of a stream that this installation has stored.
func (s *Service) remove(ctx context.Context, id sandbox.StreamID) error {
	objects, err := s.objects.Open(ctx, false)
	if err != nil {
		return err
	}
	return objects.DeleteParts(ctx, nameOf(s.cfg.Installation, id))
}

// Sweep removes the objects of this installation that were written before a time and are of no execution.
func (s *Service) Sweep(ctx context.Context, before time.Time) error {
	used, err := s.deps.Used(ctx)
	if err != nil {
		return err
	}
	objects, err := s.objects.Open(ctx, false)
	if err != nil && !used { // there may be no store yet
		return nil
	}
	if err != nil {
		return err
	}
	found := map[sandbox.StreamID][]string{} // keys
	if err := objects.List(ctx, folder(s.cfg.Installation), func(o object.Object) error {
		if id, ok := streamOf(o.Key); ok && o.At.Before(before) {
			found[id] = append(found[id], o.Key)
		}
		return nil
	}); err != nil {
		return err
	}
	owners, err := s.deps.Records.Owners(ctx) // after the list: what is stored later is not in it
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(removers)
	for id, keys := range found {
		if owners[id] != "" {
			continue
		}
		g.Go(func() error {
			if err := s.deps.Confirm(ctx); err != nil { // a successor may have a record of the stream
				return err
			}
			return objects.DeleteAll(ctx, keys)
		})
	}
	return g.Wait()
}
