package database

import (
	"context"
	"database/sql"
)

// engine has what differs between SQLite and PostgreSQL. All queries are the same.
type engine interface {
	// begin begins a transaction that writes. No other such transaction of any process runs until it ends.
	// A lazy transaction may commit without waiting for the disk.
	begin(ctx context.Context, lazy bool) (*transaction, error)
	// persist runs f, and repeats it when its failure rolled everything back and another attempt may succeed.
	persist(ctx context.Context, f func() error) error
	// passing reports whether err is such a failure.
	passing(err error) bool
	// committed reports whether the transaction id, whose commit failed with the error failed, is committed nevertheless. An
	// error means that it is not, or that nobody knows.
	committed(ctx context.Context, id string, failed error) error
	// explain gives an error of the database a code for callers, where it has one.
	explain(err error) error
	// isFull reports whether a write failed because the disk of this machine is full.
	isFull(err error) bool
	// reserveLog implements [DB.ReserveLog].
	reserveLog() error
	// copyTo implements [DB.CopyTo].
	copyTo(ctx context.Context, path string) error
	// vacuum implements [DB.Vacuum].
	vacuum(ctx context.Context, tables []string) error
	// bytes returns the size of the database.
	bytes() int64
}

// transaction is a transaction that writes.
type transaction struct {
	tx *sql.Tx
	// id names the transaction for engine.committed, when the connection is lost during the commit; "" in SQLite, where
	// that cannot happen.
	id string
	// end releases the connection, after a commit or to roll the transaction back.
	end func()
}
