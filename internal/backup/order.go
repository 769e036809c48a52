package backup

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

// skew is by how much clocks of machines and of a bucket may differ.
const skew = time.Hour

// entry is a complete backup in a bucket.
type entry struct {
	id string
	// made is the time in the id; the time when its object was written, if the id has a later one.
	made time.Time
	// ahead means that the clock of its machine was ahead of the bucket's, or that made is in the future.
	ahead bool
	// future means that made is in the future: there is no telling when it was made.
	future bool
}

// entries returns the complete backups, oldest first, and then backups of the future.
func (b *Bucket) entries(ctx context.Context) (list []entry, err error) {
	now := time.Now()
	err = b.objects.List(ctx, bucketPrefix, func(o object.Object) error {
		id := strings.TrimPrefix(o.Key, bucketPrefix)
		if !idPattern.MatchString(id) {
			return nil
		}
		e := entry{id: id, made: timeOf(id)}
		if e.made.After(o.At.Add(skew)) {
			e.made, e.ahead = o.At, true
		}
		e.future = e.made.After(now.Add(skew))
		e.ahead = e.ahead || e.future
		list = append(list, e)
		return nil
	})
	slices.SortFunc(list, func(a, b entry) int {
		switch {
		case a.future && !b.future:
			return 1
		case b.future && !a.future:
			return -1
		}
		return cmp.Or(a.made.Compare(b.made), strings.Compare(a.id, b.id))
	})
	return list, err
}

// timeOf returns the time in an id.
func timeOf(id string) time.Time {
	text, _, _ := strings.Cut(id, "-")
	at, err := time.Parse(bucketStamp, text)
	if err != nil { // of a day that does not exist: digits that no backup has
		return time.Time{}
	}
	return at
}

// warnAhead warns of the backups whose time is wrong.
func (b *Bucket) warnAhead(list []entry) {
	for _, e := range list {
		switch {
		case e.future:
			b.warn("the backup %s has a time in the future: it does not count as the newest, and prune neither counts nor removes it; check the clocks, and delete the object %s%s when you do not need it", e.id, bucketPrefix, e.id)
		case e.ahead:
			b.warn("the backup %s has a time in the future of the bucket: it counts as made at %s, when it was written", e.id, e.made.UTC().Format(time.RFC3339))
		}
	}
}

// IDs returns the ids of the complete backups, oldest first.
func (b *Bucket) IDs(ctx context.Context) ([]string, error) {
	list, err := b.entries(ctx)
	ids := make([]string, len(list))
	for i, e := range list {
		ids[i] = e.id
	}
	return ids, err
}

// newest returns the id of the newest backup: one of the future only when there is no other. Errors: NotFound.
func (b *Bucket) newest(ctx context.Context) (string, error) {
	list, err := b.entries(ctx)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", sandbox.Errorf(sandbox.NotFound, "the bucket %s has no backup", b.objects.URL())
	}
	b.warnAhead(list)
	if present := present(list); len(present) > 0 {
		list = present
	}
	return list[len(list)-1].id, nil
}

// present returns the backups that are not of the future, of a list in order.
func present(list []entry) []entry {
	if i := slices.IndexFunc(list, func(e entry) bool { return e.future }); i >= 0 {
		return list[:i]
	}
	return list
}

// Last returns when the newest backup was made, by the clock of its machine, and not after now; zero when there is none. Backups of the future
// do not count.
func (b *Bucket) Last(ctx context.Context) (last time.Time, err error) {
	list, err := b.entries(ctx)
	now := time.Now()
	for _, e := range present(list) {
		at := timeOf(e.id)
		if at.After(now.Add(skew)) {
			at = e.made
		}
		if at = earlier(at, now); at.After(last) {
			last = at
		}
	}
	return last, err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// List calls f with the complete backups, oldest first. It has one description in memory at a time. Errors: Invalid when a description is
// damaged, after the others.
func (b *Bucket) List(ctx context.Context, f func(*Stored) error) error {
	list, err := b.entries(ctx)
	if err != nil {
		return err
	}
	b.warnAhead(list)
	var bad error
	for _, e := range list {
		s, err := b.Get(ctx, e.id)
		switch sandbox.CodeOf(err) {
		case sandbox.NotFound: // removed meanwhile
			continue
		case sandbox.Invalid:
			bad = cmp.Or(bad, err)
			continue
		}
		if err == nil {
			err = f(&s)
		}
		if err != nil {
			return err
		}
	}
	return bad
}
