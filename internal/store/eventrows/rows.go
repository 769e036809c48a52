// Package eventrows reads the events of whole workspaces from the database. It has the SQL; package
// internal/eventstream has the rules.
package eventrows

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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
	err = r.db.Reader().QueryRowContext(ctx, "SELECT seq FROM sqlite_sequence WHERE name = 'events'").Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the newest event: %w", err)
	}
	return seq, nil
}

// New implements [eventstream.Store].
func (r Rows) New(ctx context.Context, after int64) (_ []sandbox.WorkspaceID, head int64, err error) {
	rows, err := r.db.Reader().QueryContext(ctx, "SELECT workspace_id, max(seq) FROM events NOT INDEXED WHERE seq > $1 GROUP BY workspace_id", after)
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

// The orders of the list, for its cursors.
const (
	ascending  = "workspace events"
	descending = "workspace events desc"
)

// List implements [eventstream.Store].
func (r Rows) List(ctx context.Context, ws sandbox.WorkspaceID, f sandbox.EventFilter) (page.Page[sandbox.Event], error) {
	size, err := page.Request{Limit: f.Limit}.Size()
	if err != nil {
		return page.Page[sandbox.Event]{}, err
	}
	order, direction, compare := ascending, "", " > "
	if f.Descending {
		order, direction, compare = descending, " DESC", " < "
	}
	var q query
	if f.Sandbox == "" {
		q.where("workspace_id = ", ws)
	} else { // the plus makes SQLite use the index of the sandbox
		q.where("+workspace_id = ", ws)
	}
	q.filter(f)
	var last int64
	further, err := page.Parse(f.Cursor, order, &last)
	if err != nil {
		return page.Page[sandbox.Event]{}, err
	}
	if further {
		q.where("seq"+compare, last)
	}
	// One more row than requested shows whether there is a next page.
	text := `SELECT seq, sandbox_id, (SELECT name FROM sandboxes WHERE id = sandbox_id), time, type, message, data FROM events
		WHERE ` + strings.Join(q.conditions, " AND ") + " ORDER BY seq" + direction + " LIMIT " + strconv.Itoa(size+1)
	items, err := r.read(ctx, text, q.args)
	if err != nil {
		return page.Page[sandbox.Event]{}, fmt.Errorf("list events of workspace %s: %w", ws, err)
	}
	return page.Cut(items, size, func(ev sandbox.Event) string { return page.Cursor(order, ev.Seq) }), nil
}

func (r Rows) read(ctx context.Context, text string, args []any) ([]sandbox.Event, error) {
	rows, err := r.db.Reader().QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var list []sandbox.Event
	for rows.Next() {
		var ev sandbox.Event
		var at int64
		var data string
		if err := rows.Scan(&ev.Seq, &ev.Sandbox, &ev.SandboxName, &at, &ev.Type, &ev.Message, &data); err != nil {
			return nil, err
		}
		ev.Time = time.Unix(0, at).UTC()
		if err := json.Unmarshal([]byte(data), &ev.Data); err != nil {
			return nil, fmt.Errorf("data of event %d: %w", ev.Seq, err)
		}
		list = append(list, ev)
	}
	return list, rows.Err()
}

// query collects the conditions of a SELECT and their arguments.
type query struct {
	conditions []string
	args       []any
}

func (q *query) where(left string, v any) { q.conditions = append(q.conditions, left+q.arg(v)) }

func (q *query) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

func (q *query) filter(f sandbox.EventFilter) {
	if f.Sandbox != "" {
		q.where("sandbox_id = ", f.Sandbox)
	}
	if f.AfterSeq > 0 {
		q.where("seq > ", f.AfterSeq)
	}
	if !f.Since.IsZero() {
		q.where("time >= ", f.Since.UnixNano())
	}
	if !f.Until.IsZero() {
		q.where("time < ", f.Until.UnixNano())
	}
	if len(f.Types) > 0 {
		holders := make([]string, len(f.Types))
		for i, t := range f.Types {
			holders[i] = q.arg(t)
		}
		q.conditions = append(q.conditions, "type IN ("+strings.Join(holders, ", ")+")")
	}
}
