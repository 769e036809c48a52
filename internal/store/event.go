package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// AppendEvent appends an event that is not part of a change of state. It refuses events of
// sandboxes that do not exist any more.
func (s *Sandboxes) AppendEvent(ctx context.Context, ev sandbox.Event) error {
	err := s.write(ctx, ev.Sandbox, func(ctx context.Context, tx *sql.Tx) error { return insertEvent(ctx, tx, ev.Sandbox, ev) })
	if err != nil {
		return fmt.Errorf("append event of sandbox %s: %w", ev.Sandbox, err)
	}
	return nil
}

func insertEvent(ctx context.Context, tx *sql.Tx, id sandbox.ID, ev sandbox.Event) error {
	data, err := marshalMap(ev.Data)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO events (sandbox_id, workspace_id, time, type, message, data)
		VALUES ($1, (SELECT workspace_id FROM sandboxes WHERE id = $1), $2, $3, $4, $5)`, id, database.Nanos(ev.Time), ev.Type, ev.Message, data)
	return err
}

// Events returns a page of a sandbox's events. Errors: Invalid, naming limit or cursor.
func (s *Sandboxes) Events(ctx context.Context, id sandbox.ID, f sandbox.EventFilter) (page.Page[sandbox.Event], error) {
	var q database.Query
	q.Where("sandbox_id = ", id)
	if len(f.Types) > 0 {
		database.In(&q, "type", f.Types)
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
	list := database.Listing[sandbox.Event]{
		Order: "seq", Columns: []string{"seq"}, Descending: f.Descending,
		Key:  func(ev sandbox.Event) []any { return []any{ev.Seq} },
		Read: database.Collector(s.db.Reader(), scanEvent),
	}
	if f.Descending {
		list.Order = "seq desc"
	}
	return list.Page(ctx, page.Request{Limit: f.Limit, Cursor: f.Cursor}, "SELECT seq, sandbox_id, (SELECT name FROM sandboxes WHERE id = sandbox_id), time, type, message, data FROM events", q)
}

func scanEvent(row database.Scanner) (sandbox.Event, error) {
	var ev sandbox.Event
	var at int64
	var data string
	err := row.Scan(&ev.Seq, &ev.Sandbox, &ev.SandboxName, &at, &ev.Type, &ev.Message, &data)
	if err != nil {
		return sandbox.Event{}, fmt.Errorf("read event: %w", err)
	}
	ev.Time = database.FromNanos(at)
	if ev.Data, err = unmarshalMap(data); err != nil {
		return sandbox.Event{}, fmt.Errorf("data of event %d: %w", ev.Seq, err)
	}
	return ev, nil
}
