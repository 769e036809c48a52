package base

import (
	"context"

	"github.com/modbox/modbox/client"
)

// First returns the first items of a list, at most limit, or all when it is 0, and whether there
// are more.
func First[T any](ctx context.Context, l *client.List[T], limit int) (items []T, more bool, err error) {
	if limit < 0 {
		return nil, false, UsageError("--limit must not be negative")
	}
	items = []T{}
	if limit > 0 {
		l.PageSize = min(limit+1, 1000) // the additional item shows whether there are more
	}
	for item, err := range l.All(ctx) {
		if err != nil {
			return nil, false, err
		}
		if limit > 0 && len(items) == limit {
			return items, true, nil
		}
		items = append(items, item)
	}
	return items, false, nil
}
