package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/modbox/modbox/internal/sandbox"
)

// AppendEvent appends an event that comes with no change of state. Events of
// sandboxes that are gone are refused.
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
	_, err = tx.ExecContext(ctx, "INSERT INTO events (sandbox_id, time, type, message, data) VALUES ($1, $2, $3, $4, $5)",
		id, nanos(ev.Time), ev.Type, ev.Message, data)
	return err
}

// Events returns a sandbox's events. In ascending order they begin with the
// first whose Seq is greater than after. In descending order they begin with the
// newest, or, when after is not 0, with the one before after.
//
// Errors: Invalid, naming limit.
func (s *Store) Events(ctx context.Context, id sandbox.ID, after int64, limit int, descending bool) ([]sandbox.Event, error) {
	limit, err := pageSize(limit)
	if err != nil {
		return nil, err
	}
	compare, order := "seq > $2", "ASC"
	if descending {
		compare, order = "($2 = 0 OR seq < $2)", "DESC"
	}
	rows, err := s.reader.QueryContext(ctx, "SELECT seq, sandbox_id, time, type, message, data FROM events WHERE sandbox_id = $1 AND "+
		compare+" ORDER BY seq "+order+" LIMIT "+strconv.Itoa(limit), id, after)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var events []sandbox.Event
	for rows.Next() {
		var ev sandbox.Event
		var at int64
		var data string
		if err := rows.Scan(&ev.Seq, &ev.Sandbox, &at, &ev.Type, &ev.Message, &data); err != nil {
			return nil, fmt.Errorf("read event: %w", err)
		}
		ev.Time = fromNanos(at)
		if ev.Data, err = unmarshalMap(data); err != nil {
			return nil, fmt.Errorf("data of event %d: %w", ev.Seq, err)
		}
		events = append(events, ev)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return events, nil
}
