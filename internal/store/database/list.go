package database

import (
	"context"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/page"
)

// Listing is a list whose pages are selected by the sort key of the last item of the
// page before. An index of its columns makes that fast.
type Listing[T any] struct {
	Order      string   // names the list's order in cursors
	Columns    []string // the items are sorted by them; no two items have the same values
	Descending bool
	Key        func(T) []any // the values of columns: int64 or string
	Read       func(ctx context.Context, query string, args ...any) ([]T, error)
	Offset     int // items to skip
}

// Page returns the page that r asks for of the rows that meet q's conditions. Errors:
// Invalid, naming limit or cursor.
func (l *Listing[T]) Page(ctx context.Context, r page.Request, selection string, q Query) (page.Page[T], error) {
	size, err := r.Size()
	if err != nil {
		return page.Page[T]{}, err
	}
	compare, direction := " > ", ""
	if l.Descending {
		compare, direction = " < ", " DESC"
	}
	after, err := l.after(r.Cursor)
	if err != nil {
		return page.Page[T]{}, err
	}
	if after != nil {
		placeholders := make([]string, len(after))
		for i, v := range after {
			placeholders[i] = q.Arg(v)
		}
		q.And("(" + strings.Join(l.Columns, ", ") + ")" + compare + "(" + strings.Join(placeholders, ", ") + ")")
	}
	if len(q.Conditions) > 0 {
		selection += " WHERE " + strings.Join(q.Conditions, " AND ")
	}
	// One more row than requested shows whether there is a next page.
	selection += " ORDER BY " + strings.Join(l.Columns, direction+", ") + direction + " LIMIT " + strconv.Itoa(size+1)
	if l.Offset > 0 {
		selection += " OFFSET " + strconv.Itoa(l.Offset)
	}
	items, err := l.Read(ctx, selection, q.Args...)
	if err != nil {
		return page.Page[T]{}, err
	}
	return page.Cut(items, size, func(item T) string { return page.Cursor(l.Order, l.Key(item)...) }), nil
}

// Collector reads the rows of a Listing with scan.
func Collector[T any](from Querier, scan func(Scanner) (T, error)) func(context.Context, string, ...any) ([]T, error) {
	return func(ctx context.Context, query string, args ...any) ([]T, error) {
		return Collect(ctx, from, scan, query, args...)
	}
}

// after returns the values of the columns that a cursor holds; nil for the first page.
func (l *Listing[T]) after(cursor string) ([]any, error) {
	var zero T
	values := l.Key(zero)
	dest := make([]any, len(values))
	for i, v := range values {
		switch v.(type) {
		case int64:
			dest[i] = new(int64)
		default:
			dest[i] = new(string)
		}
	}
	further, err := page.Parse(cursor, l.Order, dest...)
	if err != nil || !further {
		return nil, err
	}
	return dest, nil // database/sql follows pointers
}

// Query collects the conditions of a SELECT and their arguments.
type Query struct {
	Conditions []string
	Args       []any
}

// Arg adds an argument and returns its placeholder.
func (q *Query) Arg(v any) string {
	q.Args = append(q.Args, v)
	return "$" + strconv.Itoa(len(q.Args))
}

// And adds a condition.
func (q *Query) And(condition string) { q.Conditions = append(q.Conditions, condition) }

// Where adds a condition that ends with a value.
func (q *Query) Where(left string, v any) { q.And(left + q.Arg(v)) }

// In adds the condition that a column has one of the values. values must not be empty.
func In[T any](q *Query, column string, values []T) {
	placeholders := make([]string, len(values))
	for i, v := range values {
		placeholders[i] = q.Arg(v)
	}
	q.And(column + " IN (" + strings.Join(placeholders, ", ") + ")")
}
