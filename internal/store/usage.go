package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// Usage has the resource use of sandboxes and the times of their last use.
type Usage struct{ db *database.DB }

// NoteUsage records the usage of sandboxes so far. It ignores unknown sandboxes and values
// that are older than the recorded values.
func (s *Usage) NoteUsage(ctx context.Context, usage map[sandbox.ID]sandbox.Usage) error {
	if len(usage) == 0 {
		return nil
	}
	err := s.db.Note(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for id, u := range usage {
			if _, err := tx.ExecContext(ctx, `UPDATE sandboxes SET usage_at = $1, usage_running = $2, usage_cpu = $3, usage_memory = $4,
					usage_sent = $5, usage_received = $6, usage_box_cpu = $7 WHERE id = $8 AND usage_at <= $1`,
				database.Nanos(u.At), int64(u.Running), int64(u.CPU), u.MemoryByteSeconds, u.SentBytes, u.ReceivedBytes, int64(u.BoxCPU), id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record usage: %w", err)
	}
	return nil
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

// NoteActivity records when sandboxes were last used. Times only go forward.
func (s *Usage) NoteActivity(ctx context.Context, at map[sandbox.ID]time.Time) error {
	if len(at) == 0 {
		return nil
	}
	err := s.db.Note(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for id, t := range at {
			if _, err := tx.ExecContext(ctx, "UPDATE sandboxes SET last_activity_at = $1 WHERE id = $2 AND last_activity_at < $1",
				database.Nanos(t), id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record activity: %w", err)
	}
	return nil
}
