package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// The columns of lists, without variables: no list shows them, and to decrypt them takes most of its time.
var (
	listedSandboxColumns  = strings.Replace(sandboxColumns, " env,", " '{}',", 1)
	listedSnapshotColumns = strings.Replace(snapshotColumns, " s.env,", " '{}',", 1)
)

// ListSandboxes returns a page of a workspace's sandboxes, newest first, without their variables.
//
// Errors: Invalid, naming limit, cursor or state.
func (s *Sandboxes) ListSandboxes(ctx context.Context, ws sandbox.WorkspaceID, f sandbox.Filter) (page.Page[sandbox.Sandbox], error) {
	var q database.Query
	q.Where("workspace_id = ", ws)
	if err := states(&q, f.States); err != nil {
		return page.Page[sandbox.Sandbox]{}, err
	}
	for _, c := range []struct{ condition, value string }{{"id >= ", f.IDPrefix}, {"id < ", f.IDEnd()}, {"name = ", f.Name}, {"snapshot_id = ", string(f.Snapshot)}} {
		if c.value != "" { // always in this order: connections keep a bounded number of statements
			q.Where(c.condition, c.value)
		}
	}
	for label, value := range f.Labels {
		q.And(fmt.Sprintf("EXISTS (SELECT 1 FROM sandbox_labels WHERE sandbox_id = sandboxes.id AND label = %s AND value = %s)",
			q.Arg(label), q.Arg(value)))
	}
	list := database.Listing[sandbox.Sandbox]{
		Order: "created_at desc", Columns: []string{"created_at", "id"}, Descending: true,
		Key:  func(sb sandbox.Sandbox) []any { return []any{database.Nanos(sb.CreatedAt), string(sb.ID)} },
		Read: s.querySandboxes,
	}
	return list.Page(ctx, page.Request{Limit: f.Limit, Cursor: f.Cursor}, "SELECT "+listedSandboxColumns+" FROM sandboxes", q)
}

// states adds the condition for the states of a filter.
func states(q *database.Query, states []sandbox.State) error {
	if len(states) == 0 {
		q.And(isLive)
		return nil
	}
	placeholders := make([]string, len(states))
	for i, state := range states {
		if !state.Valid() {
			return sandbox.InvalidField("state", "%q is not a state; the states are %v", string(state), sandbox.States)
		}
		placeholders[i] = q.Arg(state)
	}
	q.And("state IN (" + strings.Join(placeholders, ", ") + ")")
	if !slices.ContainsFunc(states, sandbox.State.Ended) {
		q.And(isLive) // adds nothing but the use of its index
	}
	return nil
}
