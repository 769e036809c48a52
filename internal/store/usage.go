package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// Usage has the resource use of sandboxes and the times of their last use.
type Usage struct{ db *database.DB }

// noteBatch bounds the sandboxes that a transaction notes something of, and with it the wait of requests.
const noteBatch = 256

// NoteUsage records the usage of sandboxes so far. It ignores unknown sandboxes and values
// that are older than the recorded values.
func (s *Usage) NoteUsage(ctx context.Context, usage map[sandbox.ID]sandbox.Usage) error {
	var rows [][]any
	for id, u := range usage {
		rows = append(rows, []any{string(id), database.Nanos(u.At), int64(u.Running), int64(u.CPU), u.MemoryByteSeconds, u.SentBytes, u.ReceivedBytes, int64(u.BoxCPU)})
	}
	if err := s.note(ctx, []string{"usage_at", "usage_running", "usage_cpu", "usage_memory", "usage_sent", "usage_received", "usage_box_cpu"}, "sandboxes.usage_at <= noted.usage_at", rows); err != nil {
		return fmt.Errorf("record usage: %w", err)
	}
	return nil
}

// note sets columns of sandboxes that meet a condition. Each row is an ID with the integers for the columns.
func (s *Usage) note(ctx context.Context, columns []string, condition string, rows [][]any) error {
	var set []string
	for _, c := range columns {
		set = append(set, c+" = noted."+c)
	}
	for rows := range slices.Chunk(rows, noteBatch) {
		var q database.Query
		var values []string
		for _, row := range padded(rows) {
			value := "(CAST(" + q.Arg(row[0]) + " AS TEXT)"
			for _, n := range row[1:] {
				value += ", CAST(" + q.Arg(n) + " AS BIGINT)"
			}
			values = append(values, value+")")
		}
		// A statement for many sandboxes, because each waits for the answer of the database.
		text := "WITH noted (id, " + strings.Join(columns, ", ") + ") AS (VALUES " + strings.Join(values, ", ") + ") UPDATE sandboxes SET " +
			strings.Join(set, ", ") + " FROM noted WHERE sandboxes.id = noted.id AND " + condition
		err := s.db.Note(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, text, q.Args...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// padded repeats the last row until there are 1, 4, 16, 64 or 256 of them, so that few statements differ: connections keep a bounded number
// of prepared statements.
func padded(rows [][]any) [][]any {
	size := 1
	for size < len(rows) {
		size *= 4
	}
	return slices.Concat(rows, slices.Repeat(rows[len(rows)-1:], size-len(rows)))
}

// Usage returns the recorded usage of a sandbox. Errors: NotFound.
func (s *Usage) Usage(ctx context.Context, id sandbox.ID) (sandbox.Usage, error) {
	var u sandbox.Usage
	var at int64
	err := s.db.Reader().QueryRowContext(ctx, `SELECT usage_at, usage_running, usage_cpu, usage_memory, usage_sent, usage_received, usage_box_cpu
		FROM sandboxes WHERE id = $1`, id).Scan(&at, &u.Running, &u.CPU, &u.MemoryByteSeconds, &u.SentBytes, &u.ReceivedBytes, &u.BoxCPU)
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Usage{}, sandbox.Errorf(sandbox.NotFound, "there is no such sandbox")
	}
	if err != nil {
		return sandbox.Usage{}, fmt.Errorf("read usage of sandbox %s: %w", id, err)
	}
	u.At = database.FromNanos(at)
	return u, nil
}

// Elsewhere returns the recorded usage of the running sandboxes of a workspace that are not in the shards of the server.
func (s *Usage) Elsewhere(ctx context.Context, ws sandbox.WorkspaceID) (map[sandbox.ID]sandbox.Usage, error) {
	all := map[sandbox.ID]sandbox.Usage{}
	_, err := database.Collect(ctx, s.db.Reader(), func(row database.Scanner) (none struct{}, err error) {
		var id sandbox.ID
		var u sandbox.Usage
		var at int64
		err = row.Scan(&id, &at, &u.Running, &u.CPU, &u.MemoryByteSeconds, &u.SentBytes, &u.ReceivedBytes, &u.BoxCPU)
		if u.At = database.FromNanos(at); !s.db.Ranges().Has(id) {
			all[id] = u
		}
		return none, err
	}, `SELECT id, usage_at, usage_running, usage_cpu, usage_memory, usage_sent, usage_received, usage_box_cpu
		FROM sandboxes WHERE workspace_id = $1 AND state = 'running' AND `+isLive, ws)
	if err != nil {
		return nil, fmt.Errorf("read usage of the sandboxes of workspace %s: %w", ws, err)
	}
	return all, nil
}

// NoteActivity records when sandboxes were last used. Times only go forward.
func (s *Usage) NoteActivity(ctx context.Context, at map[sandbox.ID]time.Time) error {
	var rows [][]any
	for id, t := range at {
		rows = append(rows, []any{string(id), database.Nanos(t)})
	}
	if err := s.note(ctx, []string{"last_activity_at"}, "sandboxes.last_activity_at < noted.last_activity_at", rows); err != nil {
		return fmt.Errorf("record activity: %w", err)
	}
	return nil
}
