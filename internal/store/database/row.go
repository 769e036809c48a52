package database

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Exists reports whether the query finds a row.
func Exists(ctx context.Context, q Querier, query string, args ...any) (bool, error) {
	var one int
	err := q.QueryRowContext(ctx, query, args...).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Changed returns the number of rows that a statement changed.
func Changed(r sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Collect returns all rows of a query.
func Collect[T any](ctx context.Context, q Querier, scan func(Scanner) (T, error), text string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var list []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

// Scanner is one row of a result.
type Scanner interface {
	// Scan copies the columns of the row into dest; see [sql.Row.Scan].
	Scan(dest ...any) error
}

// Column reads a query of one column.
func Column[T any](ctx context.Context, q Querier, query string, args ...any) ([]T, error) {
	list, err := Collect(ctx, q, func(row Scanner) (v T, err error) {
		err = row.Scan(&v)
		return v, err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return list, nil
}

// Number returns the stored form of a bool.
func Number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Querier is the part of a database or a transaction that reads use.
type Querier interface {
	// QueryContext runs a query that returns rows; see [sql.DB.QueryContext].
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	// QueryRowContext runs a query that returns at most one row; see [sql.DB.QueryRowContext].
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Nanos returns the stored form of a time; the zero time is 0.
func Nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// FromNanos reverses Nanos. The result is in UTC and has no monotonic reading.
func FromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// Hex returns the stored form of a hash.
func Hex(h [32]byte) string { return hex.EncodeToString(h[:]) }

// FromHex reverses Hex.
func FromHex(s string) (h [32]byte, err error) {
	if n, err := hex.Decode(h[:], []byte(s)); err != nil || n != len(h) {
		return h, errors.New("the hash is damaged")
	}
	return h, nil
}
