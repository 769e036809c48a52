package backup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/archive"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

// Pruned is the result of [Bucket.Prune].
type Pruned struct {
	Backups []string // the ids of the removed backups
	object.Collected
}

// Prune removes all but the newest keep backups, and then the data that no backup and no archived sandbox uses and that is older than the grace period.
// A keep of 0 or less removes no backup, and backups of the future stay beside the others. Errors: Unavailable while a backup, a restore, a
// verification or another prune is in progress, whose data must stay: the backups are removed all the same; Invalid when the description of a
// backup is damaged, and then no data is removed.
func (b *Bucket) Prune(ctx context.Context, keep int, grace time.Duration) (p Pruned, err error) {
	list, err := b.entries(ctx)
	if err != nil {
		return p, err
	}
	b.warnAhead(list)
	if keep > 0 {
		present := present(list)
		for _, e := range present[:max(0, len(present)-keep)] {
			if err := b.objects.Delete(ctx, bucketPrefix+e.id); err != nil {
				return p, err
			}
			p.Backups = append(p.Backups, e.id)
		}
	}
	p.Collected, err = b.objects.Collect(ctx, grace, func(ctx context.Context) (map[object.Name]bool, error) {
		used, err := b.used(ctx, list)
		if err == nil {
			err = archive.Reach(ctx, b.objects, used)
		}
		if err != nil {
			return nil, fmt.Errorf("no data is removed, because it is unknown which data a backup or an archived sandbox needs; delete its object if it is of no use: %w", err)
		}
		return used, nil
	})
	return p, err
}

// used returns the names of the blobs of all backups. list has the backups that were listed before: a list that lacks one does not
// make its blobs unused.
func (b *Bucket) used(ctx context.Context, list []entry) (map[object.Name]bool, error) {
	ids, err := b.IDs(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		ids = append(ids, e.id)
	}
	slices.Sort(ids)
	used := map[object.Name]bool{}
	for _, id := range slices.Compact(ids) { // one description in memory at a time
		s, err := b.Get(ctx, id)
		if sandbox.CodeOf(err) == sandbox.NotFound { // removed
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, f := range s.Files {
			for _, n := range f.Blobs {
				used[n] = true
			}
		}
	}
	return used, nil
}
