package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// The columns of lists, without variables: no list shows them, and to decrypt them takes most of its time.
var (
	listedSandboxColumns  = strings.Replace(sandboxColumns, " env,", " '{}',", 1)
	listedSnapshotColumns = strings.Replace(snapshotColumns, " s.env,", " '{}',", 1)
)

// ListSandboxes returns a page of a workspace's sandboxes, newest first, without their variables.
//
// Errors: Invalid, naming limit, cursor or state.
func (s *Store) ListSandboxes(ctx context.Context, ws sandbox.WorkspaceID, f sandbox.Filter) (page.Page[sandbox.Sandbox], error) {
	var q query
	q.where("workspace_id = ", ws)
	if err := q.states(f.States); err != nil {
		return page.Page[sandbox.Sandbox]{}, err
	}
	for condition, value := range map[string]string{"id >= ": f.IDPrefix, "id < ": f.IDEnd(), "name = ": f.Name, "snapshot_id = ": string(f.Snapshot)} {
		if value != "" {
			q.where(condition, value)
		}
	}
	for label, value := range f.Labels {
		q.and(fmt.Sprintf("EXISTS (SELECT 1 FROM sandbox_labels WHERE sandbox_id = sandboxes.id AND label = %s AND value = %s)",
			q.arg(label), q.arg(value)))
	}
	list := listing[sandbox.Sandbox]{
		order: "created_at desc", columns: []string{"created_at", "id"}, descending: true,
		key:  func(sb sandbox.Sandbox) []any { return []any{nanos(sb.CreatedAt), string(sb.ID)} },
		read: s.querySandboxes,
	}
	return list.page(ctx, page.Request{Limit: f.Limit, Cursor: f.Cursor}, "SELECT "+listedSandboxColumns+" FROM sandboxes", q)
}

// listing is a list whose pages are selected by the sort key of the last item of the
// page before. An index of its columns makes that fast.
type listing[T any] struct {
	order      string   // names the list's order in cursors
	columns    []string // the items are sorted by them; no two items have the same values
	descending bool
	key        func(T) []any // the values of columns: int64 or string
	read       func(ctx context.Context, query string, args ...any) ([]T, error)
	offset     int // items to skip
}

// page returns the page that r asks for of the rows that meet q's conditions. Errors:
// Invalid, naming limit or cursor.
func (l *listing[T]) page(ctx context.Context, r page.Request, selection string, q query) (page.Page[T], error) {
	size, err := r.Size()
	if err != nil {
		return page.Page[T]{}, err
	}
	compare, direction := " > ", ""
	if l.descending {
		compare, direction = " < ", " DESC"
	}
	after, err := l.after(r.Cursor)
	if err != nil {
		return page.Page[T]{}, err
	}
	if after != nil {
		holders := make([]string, len(after))
		for i, v := range after {
			holders[i] = q.arg(v)
		}
		q.and("(" + strings.Join(l.columns, ", ") + ")" + compare + "(" + strings.Join(holders, ", ") + ")")
	}
	if len(q.conditions) > 0 {
		selection += " WHERE " + strings.Join(q.conditions, " AND ")
	}
	// One more row than requested shows whether there is a next page.
	selection += " ORDER BY " + strings.Join(l.columns, direction+", ") + direction + " LIMIT " + strconv.Itoa(size+1)
	if l.offset > 0 {
		selection += " OFFSET " + strconv.Itoa(l.offset)
	}
	items, err := l.read(ctx, selection, q.args...)
	if err != nil {
		return page.Page[T]{}, err
	}
	return page.Cut(items, size, func(item T) string { return page.Cursor(l.order, l.key(item)...) }), nil
}

// collector reads the rows of a listing with scan.
func collector[T any](from querier, scan func(scanner) (T, error)) func(context.Context, string, ...any) ([]T, error) {
	return func(ctx context.Context, query string, args ...any) ([]T, error) {
		return collect(ctx, from, scan, query, args...)
	}
}

// after returns the values of the columns that a cursor holds; nil for the first page.
func (l *listing[T]) after(cursor string) ([]any, error) {
	var zero T
	values := l.key(zero)
	dest := make([]any, len(values))
	for i, v := range values {
		switch v.(type) {
		case int64:
			dest[i] = new(int64)
		default:
			dest[i] = new(string)
		}
	}
	further, err := page.Parse(cursor, l.order, dest...)
	if err != nil || !further {
		return nil, err
	}
	return dest, nil // database/sql follows pointers
}

// query collects the conditions of a SELECT and their arguments.
type query struct {
	conditions []string
	args       []any
}

// arg adds an argument and returns its placeholder.
func (q *query) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

func (q *query) and(condition string)     { q.conditions = append(q.conditions, condition) }
func (q *query) where(left string, v any) { q.and(left + q.arg(v)) }

// states adds the condition for the states of a filter.
func (q *query) states(states []sandbox.State) error {
	if len(states) == 0 {
		q.and(isLive)
		return nil
	}
	holders := make([]string, len(states))
	for i, state := range states {
		if !state.Valid() {
			return sandbox.InvalidField("state", "%q is not a state; the states are %v", string(state), sandbox.States)
		}
		holders[i] = q.arg(state)
	}
	q.and("state IN (" + strings.Join(holders, ", ") + ")")
	if !slices.ContainsFunc(states, sandbox.State.Ended) {
		q.and(isLive) // adds nothing but the use of its index
	}
	return nil
}
