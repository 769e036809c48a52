// Package eventrows reads the events of whole workspaces from the database. It has the SQL; package
// internal/eventstream has the rules.
package eventrows

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modbox/modbox/internal/eventstream"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// Rows are the events in a database. They are safe for concurrent use.
type Rows struct{ db *database.DB }

var _ eventstream.Store = Rows{}

// New returns the events in a database.
func New(db *database.DB) Rows { return Rows{db} }

// Committed implements [eventstream.Store].
func (r Rows) Committed() <-chan struct{} { return r.db.Committed() }

// Head implements [eventstream.Store].
func (r Rows) Head(ctx context.Context) (seq int64, err error) {
	// The sequence is the greatest seq ever, also of events that were deleted.
	if seq, err = r.db.LastSequence(ctx, "events"); err != nil {
		return 0, fmt.Errorf("read the newest event: %w", err)
	}
	return seq, nil
}

// New implements [eventstream.Store].
func (r Rows) New(ctx context.Context, after int64) (_ []sandbox.WorkspaceID, head int64, err error) {
	rows, err := r.db.Reader().QueryContext(ctx, "SELECT max(workspace_id), max(seq) FROM events WHERE seq > $1 GROUP BY workspace_id || ''", after)
	if err != nil {
		return nil, 0, fmt.Errorf("read the workspaces of new events: %w", err)
	}
	defer func() { _ = rows.Close() }()
	head = after
	var list []sandbox.WorkspaceID
	for rows.Next() {
		var ws sandbox.WorkspaceID
		var seq int64
		if err := rows.Scan(&ws, &seq); err != nil {
			return nil, 0, fmt.Errorf("read the workspaces of new events: %w", err)
		}
		list, head = append(list, ws), max(head, seq)
	}
	if err := rows.Err(); err != nil {
		return nil, 0, fmt.Errorf("read the workspaces of new events: %w", err)
	}
	return list, head, nil
}

// List implements [eventstream.Store].
func (r Rows) List(ctx context.Context, ws sandbox.WorkspaceID, f sandbox.EventFilter) (page.Page[sandbox.Event], error) {
	var q database.Query
	if f.Sandbox == "" {
		q.Where("workspace_id = ", ws)
	} else { // an expression, so that SQLite uses the index of the sandbox
		q.Where("workspace_id || '' = ", ws)
	}
	filter(&q, f)
	list := database.Listing[sandbox.Event]{
		Order: "workspace events", Columns: []string{"seq"}, Descending: f.Descending,
		Key:  func(ev sandbox.Event) []any { return []any{ev.Seq} },
		Read: database.Collector(r.db.Reader(), scan),
	}
	if f.Descending {
		list.Order = "workspace events desc"
	}
	p, err := list.Page(ctx, page.Request{Limit: f.Limit, Cursor: f.Cursor}, "SELECT seq, sandbox_id, (SELECT name FROM sandboxes WHERE id = sandbox_id), time, type, message, data FROM events", q)
	if err != nil {
		return p, fmt.Errorf("list events of workspace %s: %w", ws, err)
	}
	return p, nil
}

func scan(row database.Scanner) (sandbox.Event, error) {
	var ev sandbox.Event
	var at int64
	var data string
	if err := row.Scan(&ev.Seq, &ev.Sandbox, &ev.SandboxName, &at, &ev.Type, &ev.Message, &data); err != nil {
		return ev, err
	}
	ev.Time = database.FromNanos(at)
	if err := json.Unmarshal([]byte(data), &ev.Data); err != nil {
		return ev, fmt.Errorf("data of event %d: %w", ev.Seq, err)
	}
	return ev, nil
}

// filter adds the conditions of f but the workspace.
func filter(q *database.Query, f sandbox.EventFilter) {
	if f.Sandbox != "" {
		q.Where("sandbox_id = ", f.Sandbox)
	}
	if f.AfterSeq > 0 {
		q.Where("seq > ", f.AfterSeq)
	}
	if !f.Since.IsZero() {
		q.Where("time >= ", database.Nanos(f.Since))
	}
	if !f.Until.IsZero() {
		q.Where("time < ", database.Nanos(f.Until))
	}
	if len(f.Types) > 0 {
		database.In(q, "type", f.Types)
	}
}
