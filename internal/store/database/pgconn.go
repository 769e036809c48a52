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
	"github.com/jackc/pgx/v5"
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

const connectionLost = "the connection to the database was lost; try again"

// coded gives the answers of PostgreSQL that concern a request a code.
func coded(err error) error {
	switch {
	case hasState(err, "57014"):
		return sandbox.Wrap(sandbox.Unavailable, err, "the database took too long; try again")
	case hasState(err, "22021", "22P05"):
		return sandbox.Wrap(sandbox.Invalid, err, "a text has a NUL character, or is not UTF-8, which the database cannot store")
	}
	return err
}

// pgConnector makes connections, and waits for a database that cannot be reached.
type pgConnector struct {
	config   *pgx.ConnConfig
	patience time.Duration
	reads    bool                                   // the connections are for reads alone
	lock     func(context.Context, *pgx.Conn) error // makes a new connection the server's; nil for none
}

// Driver implements [driver.Connector].
func (c *pgConnector) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

// Connect implements [driver.Connector]. Errors: Conflict if another server uses the database; Unavailable.
func (c *pgConnector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	var conn *pgConn
	var last error
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		var err error
		if conn, err = c.connect(ctx); err != nil && (last == nil || ctx.Err() == nil) {
			last = err
		}
		if err != nil && (sandbox.CodeOf(err) == sandbox.Conflict || refused(err)) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, retry.Pauses(50*time.Millisecond, time.Second), retry.Forever())
	switch {
	case conn != nil:
		return conn, nil
	case sandbox.CodeOf(last) == sandbox.Conflict:
		return nil, last
	case last == nil:
		last = ctx.Err()
	}
	return nil, sandbox.Wrap(sandbox.Unavailable, last, "the database cannot be used at this moment")
}

// connect attempts a connection once.
func (c *pgConnector) connect(ctx context.Context) (*pgConn, error) {
	opened, err := stdlib.GetConnector(*c.config).Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, ok := opened.(*stdlib.Conn)
	if !ok {
		return nil, errors.Join(errors.New("the driver of PostgreSQL lacks a method that the pool needs"), opened.Close())
	}
	if c.lock != nil {
		if err := c.lock(ctx, inner.Conn()); err != nil {
			_ = inner.Close()
			return nil, err
		}
	}
	return &pgConn{Conn: inner, connector: c, reads: c.reads}, nil
}

// refused reports whether it is of no use to connect again: the password is wrong, or there is no such database.
func refused(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code[:2] == "28" || e.Code == "3D000" || e.Code == "42501")
}

// pgConn is a connection. It takes the values that SQLite takes, and says when it is lost.
type pgConn struct {
	*stdlib.Conn
	connector *pgConnector
	reads     bool
	unusual   bool // the database behind it only permits reads
	inTx      bool // a transaction runs, so a statement cannot run again on another connection
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
	r, err := c.Conn.ExecContext(ctx, query, args)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
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
	}, retry.Pauses(10*time.Millisecond, time.Second), backoff.WithMaxElapsedTime(reconnectTime))
	if errors.Is(err, driver.ErrBadConn) {
		err = sandbox.Errorf(sandbox.Unavailable, connectionLost) // without its cause, which would make the pool run it again
	}
	return r, err
}

func (c *pgConn) query(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	r, err := c.Conn.QueryContext(ctx, query, args)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	return &pgRows{Rows: r, conn: c, ctx: ctx}, nil
}

// renew replaces the connection, which is lost.
func (c *pgConn) renew(ctx context.Context) error {
	fresh, err := c.connector.Connect(ctx)
	if err != nil {
		return err
	}
	_ = c.Conn.Close()
	c.Conn = fresh.(*pgConn).Conn
	return nil
}

// pgRows are the rows of a statement.
type pgRows struct {
	driver.Rows
	conn *pgConn
	ctx  context.Context // of the statement
}

// Next implements [driver.Rows].
func (r *pgRows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if failed := r.conn.failed(r.ctx, err); !errors.Is(failed, driver.ErrBadConn) {
		return failed
	}
	return sandbox.Wrap(sandbox.Unavailable, err, connectionLost) // rows were read, so it cannot run again
}

// BeginTx begins a transaction; on a lost connection, the pool uses another.
func (c *pgConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.BeginTx(ctx, opts)
	if err != nil {
		if err = c.failed(ctx, err); isLost(err) {
			err = driver.ErrBadConn
		}
		return nil, err
	}
	c.inTx = true
	return pgTx{tx, c}, nil
}

// IsValid implements [driver.Validator].
func (c *pgConn) IsValid() bool { return !c.unusual && !c.Conn.Conn().IsClosed() }

// failed gives err a code, or makes it an error about a lost connection if it is one. A read outside of a transaction may run
// again on another connection.
func (c *pgConn) failed(ctx context.Context, err error) error {
	if !c.reads && hasState(err, "25006") { // of a replica, after the primary has changed
		c.unusual = true
		return &lostError{err}
	}
	switch {
	case ctx.Err() != nil:
		return err
	case !c.Conn.Conn().IsClosed():
		return coded(err)
	case c.reads && c.inTx:
		return sandbox.Wrap(sandbox.Unavailable, err, connectionLost)
	case c.reads:
		return driver.ErrBadConn
	}
	return &lostError{err}
}

type pgTx struct {
	driver.Tx
	conn *pgConn
}

// Commit implements [driver.Tx].
func (t pgTx) Commit() error {
	t.conn.inTx = false
	err := t.Tx.Commit()
	if err != nil && t.conn.Conn.Conn().IsClosed() {
		return &lostError{err}
	}
	return err
}

// Rollback implements [driver.Tx].
func (t pgTx) Rollback() error {
	t.conn.inTx = false
	return t.Tx.Rollback()
}
