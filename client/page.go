package client

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

// List is a list that the server answers in pages. Methods of services that return a List make no
// request; the methods of List do.
//
//	for sb, err := range c.Sandboxes.List(client.ListOptions{}).All(ctx) { … }
type List[T any] struct {
	// PageSize is the limit of each request of All and Collect, 1 to 1000 items; 0 is
	// the server's default, 100.
	PageSize int

	transport *transport
	path      string
	query     url.Values
}

// PageOptions select a page of a list; the zero value is the first page.
type PageOptions struct {
	Limit  int    // maximum number of items: 1 to 1000; 0 is the server's default
	Cursor string // NextCursor of the page before
}

// Page is a part of a list.
type Page[T any] struct {
	Items []T `json:"items"`
	// NextCursor selects the next page; "" on the last page.
	NextCursor string `json:"next_cursor,omitempty"`
}

// newList returns the list at path. It omits parameters that are "".
func newList[T any](t *transport, path string, query map[string]string) *List[T] {
	l := &List[T]{transport: t, path: path, query: url.Values{}}
	for name, value := range query {
		if value != "" {
			l.query.Set(name, value)
		}
	}
	return l
}

// Page returns a page of the list. Errors: Invalid, naming limit or cursor; the errors of the
// method that returned the list.
func (l *List[T]) Page(ctx context.Context, o PageOptions) (*Page[T], error) {
	query := maps.Clone(l.query)
	if o.Limit != 0 {
		query.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Cursor != "" {
		query.Set("cursor", o.Cursor)
	}
	return fetch[Page[T]](ctx, l.transport, request{method: http.MethodGet, path: l.path, query: query, repeat: true})
}

// All iterates over the items of all pages. It stops at the first error, which it yields.
func (l *List[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for o := (PageOptions{Limit: l.PageSize}); ; {
			page, err := l.Page(ctx, o)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if o.Cursor = page.NextCursor; o.Cursor == "" {
				return
			}
		}
	}
}

// Collect returns the items of all pages, never nil without an error.
func (l *List[T]) Collect(ctx context.Context) ([]T, error) {
	items := []T{}
	for item, err := range l.All(ctx) {
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// flag is a boolean parameter: "" when it is false.
func flag(on bool) string {
	if on {
		return "true"
	}
	return ""
}
