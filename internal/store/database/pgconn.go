package database

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

// lostError says that the connection to PostgreSQL is lost, and with it the transaction.
type lostError struct{ err error }

func (e *lostError) Error() string { return "connection lost: " + e.err.Error() }

func (e *lostError) Unwrap() error { return e.err }

func isLost(err error) bool {
	var lost *lostError
	return errors.As(err, &lost) || errors.Is(err, driver.ErrBadConn)
}

// hasState reports whether PostgreSQL answered with one of the SQLSTATEs.
func hasState(err error, states ...string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && slices.Contains(states, e.Code)
}

const (
	connectionLost = "the connection to the database was lost"
	noAnswer       = "the database does not answer"
)

// coded gives the answers of PostgreSQL that concern a request a code.
func coded(err error) error {
	switch {
	case hasState(err, "57014"):
		return unavailable(err, "the database took too long")
	case hasState(err, "22021", "22P05"):
		return sandbox.Wrap(sandbox.Invalid, err, "a text has a NUL character, or is not UTF-8, which the database cannot store")
	}
	return err
}

// pgConn is a connection. It takes the values that SQLite takes, and says when it is lost.
type pgConn struct {
	*stdlib.Conn
	connector *pgConnector
	reads     bool
	unusual   bool  // the database behind it only permits reads
	changes   int64 // of the host of writes, when the connection was made
	inTx      bool  // a transaction runs, so a statement cannot run again on another connection
}

// CheckNamedValue gives a value the form that the columns have; a bool is a number.
func (c *pgConn) CheckNamedValue(v *driver.NamedValue) (err error) {
	if v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value); err != nil {
		return fmt.Errorf("argument %d: %w", v.Ordinal, err)
	}
	if b, ok := v.Value.(bool); ok {
		v.Value = int64(Number(b))
	}
	return nil
}

// ExecContext runs a statement without rows.
func (c *pgConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	begin := time.Now()
	r, err := c.Conn.ExecContext(ctx, query, args)
	if err != nil {
		return nil, c.failed(ctx, begin, err)
	}
	c.connector.outage.end()
	return r, nil
}

// QueryContext runs a statement with rows. A read outside of a transaction whose connection is lost runs again on new connections:
// the pool would run it three times at most, perhaps on connections that were lost with this one.
func (c *pgConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	r, err := c.query(ctx, query, args)
	if !errors.Is(err, driver.ErrBadConn) {
		return r, err
	}
	r, err = backoff.Retry(ctx, func() (driver.Rows, error) {
		if err := c.renew(ctx); err != nil {
			return nil, backoff.Permanent(err)
		}
		r, err := c.query(ctx, query, args)
		if err != nil && !errors.Is(err, driver.ErrBadConn) {
			err = backoff.Permanent(err)
		}
		return r, err
	}, retry.Pauses(10*time.Millisecond, time.Second), backoff.WithMaxElapsedTime(c.connector.patience))
	if errors.Is(err, driver.ErrBadConn) {
		err = unavailable(nil, connectionLost) // without its cause, which would make the pool run it again
	}
	return r, err
}

func (c *pgConn) query(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	begin := time.Now()
	ctx, cancel := c.bounded(ctx)
	r, err := c.Conn.QueryContext(ctx, query, args)
	if err != nil {
		defer cancel()
		return nil, c.failed(ctx, begin, err)
	}
	c.connector.outage.end()
	return &pgRows{Rows: r, conn: c, ctx: ctx, begin: begin, cancel: cancel}, nil
}

// bounded gives a read a deadline, because the database cannot end a statement while it does not answer. Transactions that
// write have a deadline.
func (c *pgConn) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if !c.reads {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.connector.answer)
}

// renew replaces the connection, which is lost.
func (c *pgConn) renew(ctx context.Context) error {
	fresh, err := c.connector.Connect(ctx)
	if err != nil {
		return err
	}
	_ = c.Conn.Close()
	c.Conn, c.changes = fresh.(*pgConn).Conn, fresh.(*pgConn).changes
	return nil
}

// pgRows are the rows of a statement.
type pgRows struct {
	driver.Rows
	conn   *pgConn
	ctx    context.Context // of the statement
	begin  time.Time
	cancel context.CancelFunc
}

// Next implements [driver.Rows].
func (r *pgRows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if failed := r.conn.failed(r.ctx, r.begin, err); !errors.Is(failed, driver.ErrBadConn) {
		return failed
	}
	return unavailable(err, connectionLost) // rows were read, so it cannot run again
}

// Close implements [driver.Rows].
func (r *pgRows) Close() error {
	defer r.cancel()
	return r.Rows.Close()
}

// BeginTx begins a transaction; on a lost connection, the pool uses another.
func (c *pgConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	begin := time.Now()
	ctx, cancel := c.bounded(ctx)
	tx, err := c.Conn.BeginTx(ctx, opts)
	if err != nil {
		defer cancel()
		if err = c.failed(ctx, begin, err); isLost(err) {
			err = driver.ErrBadConn
		}
		return nil, err
	}
	c.inTx = true
	return pgTx{tx, c, cancel}, nil
}

// ResetSession implements [driver.SessionResetter], before each use but the first. A connection for reads may be to a host that
// was the primary before.
func (c *pgConn) ResetSession(ctx context.Context) error {
	if c.reads && c.changes != c.connector.host.changes.Load() {
		_ = c.Conn.Conn().PgConn().Conn().Close() // the host may not answer when the session ends
		return driver.ErrBadConn
	}
	return c.Conn.ResetSession(ctx)
}

// IsValid implements [driver.Validator].
func (c *pgConn) IsValid() bool { return !c.unusual && !c.Conn.Conn().IsClosed() }

// failed gives err, of a call that began at a time, a code, or makes it an error about a lost connection if it is one. A read
// outside of a transaction may run again on another connection.
func (c *pgConn) failed(ctx context.Context, begin time.Time, err error) error {
	if !c.reads && hasState(err, "25006") { // of a replica, after the primary has changed
		c.unusual = true
		return &lostError{err}
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		c.connector.outage.begin(begin)
		return unavailable(err, noAnswer)
	case ctx.Err() != nil:
		return err
	case !c.Conn.Conn().IsClosed():
		return coded(err)
	case c.reads && c.inTx:
		return unavailable(err, connectionLost)
	case c.reads:
		return driver.ErrBadConn
	}
	return &lostError{err}
}

type pgTx struct {
	driver.Tx
	conn   *pgConn
	cancel context.CancelFunc
}

// Commit implements [driver.Tx].
func (t pgTx) Commit() error {
	defer t.cancel()
	t.conn.inTx = false
	err := t.Tx.Commit()
	if err != nil && t.conn.Conn.Conn().IsClosed() {
		return &lostError{err}
	}
	return err
}

// Rollback implements [driver.Tx].
func (t pgTx) Rollback() error {
	defer t.cancel()
	t.conn.inTx = false
	return t.Tx.Rollback()
}
