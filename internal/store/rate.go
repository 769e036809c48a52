package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// takeCreates takes n of the creates of a workspace in a minute, which several servers share; 0 a minute is no limit. If the transaction fails,
// they are not taken. Errors: QuotaExceeded.
func takeCreates(ctx context.Context, tx *sql.Tx, ws sandbox.WorkspaceID, n int, perMinute int64, now time.Time) error {
	if perMinute <= 0 {
		return nil
	}
	left, at := quota.NewRate(perMinute, now), int64(0)
	var before quota.Rate
	err := tx.QueryRowContext(ctx, "SELECT per_minute, tokens, at FROM create_rates WHERE workspace_id = $1", ws).Scan(&before.PerMinute, &before.Tokens, &at)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return err
	case err == nil && before.PerMinute == perMinute:
		before.At = database.FromNanos(at)
		left = before
	}
	if err := left.Take(n, now); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO create_rates (workspace_id, per_minute, tokens, at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (workspace_id) DO UPDATE SET per_minute = excluded.per_minute, tokens = excluded.tokens, at = excluded.at`,
		ws, left.PerMinute, left.Tokens, database.Nanos(left.At))
	return err
}
