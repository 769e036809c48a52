package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"

	"modernc.org/sqlite"
)

// maxStatements bounds the statements that a connection keeps.
const maxStatements = 256

// openPool opens a pool of connections that keep their prepared statements. SQLite compiles the text of a
// statement, and of the triggers that it fires, each time that the statement is prepared, which costs more
// than most statements themselves.
func openPool(dsn string) (*sql.DB, error) {
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector{c}), nil
}

type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, ok := opened.(sqliteConn)
	if !ok {
		return nil, errors.Join(errors.New("the driver of SQLite lacks a method that the pool needs"), opened.Close())
	}
	return &statements{sqliteConn: inner, idle: map[string]statement{}}, nil
}

// sqliteConn has the methods of a connection that database/sql uses.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type statement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// statements is a connection with the prepared statements that no query uses now, by their text.
// database/sql uses a connection from one goroutine at a time.
type statements struct {
	sqliteConn
	idle map[string]statement
}

// ExecContext runs a statement without rows.
func (c *statements) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if !keeps(query) {
		return c.sqliteConn.ExecContext(ctx, query, args)
	}
	s, err := c.take(ctx, query)
	if err != nil {
		return nil, err
	}
	result, err := s.ExecContext(ctx, args)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return result, c.put(query, s)
}

// QueryContext runs a statement with rows.
func (c *statements) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if !keeps(query) {
		return c.sqliteConn.QueryContext(ctx, query, args)
	}
	s, err := c.take(ctx, query)
	if err != nil {
		return nil, err
	}
	r, err := s.QueryContext(ctx, args)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &rows{Rows: r, conn: c, query: query, statement: s}, nil
}

// Close closes the connection and its statements.
func (c *statements) Close() error {
	return errors.Join(c.closeIdle(), c.sqliteConn.Close())
}

// keeps reports whether it pays to keep the statement. It does not for a PRAGMA, which SQLite executes
// while it prepares the statement, and therefore prepares again for each run.
func keeps(query string) bool {
	word, _, _ := strings.Cut(strings.TrimLeft(query, " \t\n"), " ")
	switch word {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "SAVEPOINT", "RELEASE", "ROLLBACK":
		return true
	}
	return false
}

// take returns a statement that no query uses.
func (c *statements) take(ctx context.Context, query string) (statement, error) {
	if s, ok := c.idle[query]; ok {
		delete(c.idle, query)
		return s, nil
	}
	prepared, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s, ok := prepared.(statement)
	if !ok {
		return nil, errors.Join(errors.New("the driver of SQLite lacks a method that statements need"), prepared.Close())
	}
	return s, nil
}

// put keeps a statement for the next query with its text.
func (c *statements) put(query string, s statement) error {
	if _, ok := c.idle[query]; ok { // two ran at the same time
		return s.Close()
	}
	var err error
	if len(c.idle) >= maxStatements {
		err = c.closeIdle()
	}
	c.idle[query] = s
	return err
}

func (c *statements) closeIdle() error {
	var errs []error
	for _, s := range c.idle {
		errs = append(errs, s.Close())
	}
	clear(c.idle)
	return errors.Join(errs...)
}

// rows are the rows of a statement that its connection keeps.
type rows struct {
	driver.Rows
	conn      *statements
	query     string
	statement statement // nil after Close
}

// Close ends the use of the statement.
func (r *rows) Close() error {
	err := r.Rows.Close()
	s := r.statement
	if s == nil {
		return err
	}
	r.statement = nil
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return r.conn.put(r.query, s)
}
