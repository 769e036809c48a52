package recipe

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

// LoadAll reads the recipes in the directories of a file system; a recipe may be based on another.
// It returns the default image's recipe first, then the others by reference. Errors: as of
// [LoadRecipe].
func LoadAll(recipes fs.FS) (list []*Recipe, err error) {
	entries, err := fs.ReadDir(recipes, ".")
	if err != nil {
		return nil, err
	}
	for len(entries) > 0 { // a recipe comes after its base
		var later []fs.DirEntry
		var missing error
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			dir, err := fs.Sub(recipes, e.Name())
			if err != nil {
				return nil, err
			}
			r, err := Load(dir, list...)
			switch {
			case err == nil:
				list = append(list, r)
				continue
			case sandbox.CodeOf(err) != sandbox.NotFound:
				return nil, fmt.Errorf("recipe %s: %w", e.Name(), err)
			}
			missing = fmt.Errorf("recipe %s: %w", e.Name(), err)
			later = append(later, e)
		}
		if len(later) == len(entries) {
			return nil, missing
		}
		entries = later
	}
	slices.SortStableFunc(list, func(a, b *Recipe) int {
		if a.spec.Default != b.spec.Default {
			if a.spec.Default {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Ref(), b.Ref())
	})
	return list, nil
}
