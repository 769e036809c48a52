package webhookrows

import (
	"context"
	"database/sql"
	"strings"

	"github.com/modbox/modbox/internal/store/database"
)

// The queries of each look of the dispatcher.
const (
	WaitingQuery = waitingQuery
	DueQuery     = dueQuery
)

// Exec runs a statement.
func Exec(ctx context.Context, db *database.DB, text string, args ...any) error {
	return New(db).db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, text, args...)
		return err
	})
}

// Plan explains a query.
func Plan(ctx context.Context, db *database.DB, query string, args ...any) (string, error) {
	list, err := database.Collect(ctx, New(db).db.Reader(), func(row database.Scanner) (detail string, err error) {
		var id, parent, unused int
		err = row.Scan(&id, &parent, &unused, &detail)
		return detail, err
	}, "EXPLAIN QUERY PLAN "+query, args...)
	return strings.Join(list, "; "), err
}

// Count runs a query that returns a number.
func Count(ctx context.Context, db *database.DB, query string, args ...any) (n int, err error) {
	err = New(db).db.Reader().QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}
