package store

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

// Page sizes of lists.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// ListSandboxes returns a page of a workspace's sandboxes, newest first.
// Sandboxes made or ended between two pages neither shift nor repeat the others.
//
// Errors: Invalid, naming limit, cursor or state.
func (s *Store) ListSandboxes(ctx context.Context, ws sandbox.WorkspaceID, f sandbox.Filter) (sandbox.Page, error) {
	limit, err := pageSize(f.Limit)
	if err != nil {
		return sandbox.Page{}, err
	}
	var q query
	q.where("workspace_id = ", ws)
	if err := q.states(f.States); err != nil {
		return sandbox.Page{}, err
	}
	if f.Name != "" {
		q.where("name = ", f.Name)
	}
	if f.Snapshot != "" {
		q.where("snapshot_id = ", f.Snapshot)
	}
	for label, value := range f.Labels {
		q.and(fmt.Sprintf("EXISTS (SELECT 1 FROM sandbox_labels WHERE sandbox_id = sandboxes.id AND label = %s AND value = %s)",
			q.arg(label), q.arg(value)))
	}
	if f.Cursor != "" {
		c, err := parseCursor(f.Cursor)
		if err != nil {
			return sandbox.Page{}, err
		}
		q.and(fmt.Sprintf("(created_at, id) < (%s, %s)", q.arg(c.createdAt), q.arg(c.id)))
	}
	// One more than asked for tells whether there is a next page.
	sbs, err := s.querySandboxes(ctx, "SELECT "+sandboxColumns+" FROM sandboxes WHERE "+strings.Join(q.conditions, " AND ")+
		" ORDER BY created_at DESC, id DESC LIMIT "+strconv.Itoa(limit+1), q.args...)
	if err != nil {
		return sandbox.Page{}, err
	}
	page := sandbox.Page{Sandboxes: sbs}
	if len(sbs) > limit {
		page.Sandboxes = sbs[:limit]
		last := sbs[limit-1]
		page.Next = cursor{createdAt: nanos(last.CreatedAt), id: last.ID}.String()
	}
	return page, nil
}

// pageSize returns the number of entries that limit asks for.
func pageSize(limit int) (int, error) {
	switch {
	case limit == 0:
		return DefaultLimit, nil
	case limit < 0 || limit > MaxLimit:
		return 0, sandbox.InvalidField("limit", "must be 1 to %d", MaxLimit)
	}
	return limit, nil
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

// cursor is a position in the order of lists: everything after it is older, or
// as old with a smaller id.
type cursor struct {
	createdAt int64
	id        sandbox.ID
}

func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(c.createdAt, 36) + "." + string(c.id)))
}

func parseCursor(s string) (cursor, error) {
	bad := sandbox.InvalidField("cursor", "is not a cursor that a list answered")
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return cursor{}, bad
	}
	at, id, ok := strings.Cut(string(raw), ".")
	if !ok {
		return cursor{}, bad
	}
	createdAt, err := strconv.ParseInt(at, 36, 64)
	if err != nil {
		return cursor{}, bad
	}
	parsed, ok := sandbox.ParseID(id)
	if !ok {
		return cursor{}, bad
	}
	return cursor{createdAt: createdAt, id: parsed}, nil
}
