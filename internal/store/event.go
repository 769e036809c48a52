package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// AppendEvent appends an event that is not part of a change of state. It refuses events of
// sandboxes that do not exist any more.
func (s *Store) AppendEvent(ctx context.Context, ev sandbox.Event) error {
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error { return insertEvent(ctx, tx, ev.Sandbox, ev) })
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
		VALUES ($1, (SELECT workspace_id FROM sandboxes WHERE id = $1), $2, $3, $4, $5)`, id, nanos(ev.Time), ev.Type, ev.Message, data)
	return err
}

// Events returns a page of a sandbox's events. Errors: Invalid, naming limit or cursor.
func (s *Store) Events(ctx context.Context, id sandbox.ID, f sandbox.EventFilter) (page.Page[sandbox.Event], error) {
	var q query
	q.where("sandbox_id = ", id)
	if f.AfterSeq > 0 {
		q.where("seq > ", f.AfterSeq)
	}
	list := listing[sandbox.Event]{
		order: "seq", columns: []string{"seq"}, descending: f.Descending,
		key:  func(ev sandbox.Event) []any { return []any{ev.Seq} },
		read: collector(s.reader, scanEvent),
	}
	if f.Descending {
		list.order = "seq desc"
	}
	return list.page(ctx, page.Request{Limit: f.Limit, Cursor: f.Cursor}, "SELECT seq, sandbox_id, (SELECT name FROM sandboxes WHERE id = sandbox_id), time, type, message, data FROM events", q)
}

func scanEvent(row scanner) (sandbox.Event, error) {
	var ev sandbox.Event
	var at int64
	var data string
	err := row.Scan(&ev.Seq, &ev.Sandbox, &ev.SandboxName, &at, &ev.Type, &ev.Message, &data)
	if err != nil {
		return sandbox.Event{}, fmt.Errorf("read event: %w", err)
	}
	ev.Time = fromNanos(at)
	if ev.Data, err = unmarshalMap(data); err != nil {
		return sandbox.Event{}, fmt.Errorf("data of event %d: %w", ev.Seq, err)
	}
	return ev, nil
}
