package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/modbox/modbox/internal/sandbox"
)

// SetEnv replaces the environment of a sandbox that has not ended.
//
// Errors: NotFound.
func (s *Sandboxes) SetEnv(ctx context.Context, id sandbox.ID, env map[string]string) error {
	text, err := s.sealEnv(env, string(id))
	if err != nil {
		return fmt.Errorf("set environment of sandbox %s: %w", id, err)
	}
	err = s.write(ctx, id, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE sandboxes SET env = $1 WHERE id = $2 AND "+isLive, text, id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return sandbox.Wrap(sandbox.NotFound, err, "the sandbox has ended")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set environment of sandbox %s: %w", id, err)
	}
	return nil
}
