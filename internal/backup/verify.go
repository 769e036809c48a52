package backup

import (
	"context"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

// Damage is an object of a bucket that is missing or damaged.
type Damage struct {
	// Backups are the ids of the backups that need it.
	Backups []string
	Err     error
}

// verification has what was found out about the blobs of backups.
type verification struct {
	read    map[object.Name]bool
	damaged map[object.Name]*Damage
}

// Verify reads everything of a backup, or of all when id is "", and compares it with its digests. It returns the number of the backups whose
// description is whole. Damage is not an error. Errors: Unavailable while a prune is in progress.
//
// In memory are the names of all blobs, each once, and one description.
func (b *Bucket) Verify(ctx context.Context, id string) (n int, damage []Damage, err error) {
	check, release, err := b.hold(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer release()
	ids := []string{id}
	if id == "" {
		if ids, err = b.IDs(ctx); err != nil {
			return 0, nil, err
		}
	}
	v := verification{map[object.Name]bool{}, map[object.Name]*Damage{}}
	for _, one := range ids {
		s, err := b.Get(ctx, one)
		switch code := sandbox.CodeOf(err); {
		case code == sandbox.NotFound && id == "": // removed meanwhile
			continue
		case code == sandbox.Invalid && idPattern.MatchString(one):
			damage = append(damage, Damage{Backups: []string{one}, Err: err})
			continue
		case err == nil:
			err = v.backup(ctx, b.objects, &s)
		}
		if err != nil {
			return n, nil, err
		}
		n++
	}
	if len(v.damaged) > 0 { // or they were removed, because the hold lapsed
		if err := check(); err != nil {
			return n, nil, err
		}
	}
	for _, d := range v.damaged {
		damage = append(damage, *d)
	}
	slices.SortFunc(damage, func(a, b Damage) int { return strings.Compare(a.Err.Error(), b.Err.Error()) })
	return n, damage, nil
}

// backup reads the blobs of a backup that were not read before.
func (v *verification) backup(ctx context.Context, objects *object.Store, s *Stored) error {
	var names []object.Name
	for _, f := range s.Files {
		for _, n := range f.Blobs {
			if !v.read[n] {
				v.read[n] = true
				names = append(names, n)
			}
		}
	}
	if err := objects.Verify(ctx, names, func(n object.Name, err error) { v.damaged[n] = &Damage{Err: err} }); err != nil {
		return err
	}
	for _, f := range s.Files {
		for _, n := range f.Blobs {
			if d := v.damaged[n]; d != nil && !slices.Contains(d.Backups, s.ID) {
				d.Backups = append(d.Backups, s.ID)
			}
		}
	}
	return nil
}
