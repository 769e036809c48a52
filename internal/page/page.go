// Package page cuts lists into pages, and encodes where the next page begins.
//
// A list has an order in which no two items are equal. A cursor holds the sort key of the last item
// of a page, and the next page begins with the first item after that key. Items that appear or
// disappear between two pages neither shift nor repeat the others.
package page

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Sizes of pages.
const (
	DefaultSize = 100
	MaxSize     = 1000
)

// Request asks for a page; the zero value asks for the first page.
type Request struct {
	// Limit is the maximum number of items, 1 to [MaxSize]; 0 means [DefaultSize].
	Limit int
	// Cursor is Next of the page before; "" for the first page.
	Cursor string
}

// Size returns the maximum number of items. Errors: Invalid, naming limit.
func (r Request) Size() (int, error) {
	switch {
	case r.Limit == 0:
		return DefaultSize, nil
	case r.Limit < 0 || r.Limit > MaxSize:
		return 0, sandbox.InvalidField("limit", "must be 1 to %d", MaxSize)
	}
	return r.Limit, nil
}

// Page is a part of a list.
type Page[T any] struct {
	Items []T
	// Next is the cursor of the next page; "" on the last page.
	Next string
}

// Cursor encodes the sort key of an item. order names the list's order: a cursor of
// one order is refused in another one. Keys are strings and integers.
func Cursor(order string, key ...any) string {
	b, err := json.Marshal(append([]any{order}, key...))
	if err != nil {
		panic(fmt.Sprintf("page: a key of order %s cannot be encoded: %v", order, err)) // keys are strings and integers
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// Parse decodes a cursor that [Cursor] made for the same order into the pointers key. It returns
// false for "", the cursor of the first page. Errors: Invalid, naming cursor.
func Parse(cursor, order string, key ...any) (bool, error) {
	if cursor == "" {
		return false, nil
	}
	bad := sandbox.InvalidField("cursor", "must be next_cursor of a page of the same list in the same order")
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return false, bad
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil || len(parts) != 1+len(key) {
		return false, bad
	}
	var name string
	for i, dest := range append([]any{&name}, key...) {
		if string(parts[i]) == "null" || json.Unmarshal(parts[i], dest) != nil {
			return false, bad
		}
	}
	if name != order {
		return false, bad
	}
	return true, nil
}

// Cut makes a page of at most size items. A list with more items has a next page, which begins
// after the last item of this page.
func Cut[T any](items []T, size int, cursor func(T) string) Page[T] {
	if len(items) <= size {
		return Page[T]{Items: items}
	}
	return Page[T]{Items: items[:size], Next: cursor(items[size-1])}
}

// Order is the order of a list in memory.
type Order[T any] struct {
	// Name names the list and its order.
	Name string
	// Key returns the key by which an item is sorted. No two items have the same key.
	Key func(T) string
	// Descending sorts the greatest key first.
	Descending bool
}

// Of sorts items, the whole list, and returns the requested page. Errors: Invalid, naming limit or
// cursor.
func Of[T any](r Request, items []T, o Order[T]) (Page[T], error) {
	size, err := r.Size()
	if err != nil {
		return Page[T]{}, err
	}
	compare := func(a, b string) int {
		if o.Descending {
			a, b = b, a
		}
		return strings.Compare(a, b)
	}
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b T) int { return compare(o.Key(a), o.Key(b)) })
	var after string
	further, err := Parse(r.Cursor, o.Name, &after)
	if err != nil {
		return Page[T]{}, err
	}
	if further {
		i := slices.IndexFunc(items, func(item T) bool { return compare(o.Key(item), after) > 0 })
		if i < 0 {
			i = len(items)
		}
		items = items[i:]
	}
	return Cut(items, size, func(item T) string { return Cursor(o.Name, o.Key(item)) }), nil
}

// ByTime returns a sort key for items with a time and an id.
func ByTime(at time.Time, id string) string { return fmt.Sprintf("%020d %s", at.UnixNano(), id) }
