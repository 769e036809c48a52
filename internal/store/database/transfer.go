package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/modbox/modbox/internal/sandbox"
)

// Transferred is the number of rows that a transfer copied of a table.
type Transferred struct {
	Table string
	Rows  int64
}

// Transfer copies all rows of an SQLite database into this PostgreSQL database, in one transaction, with the installation. It
// changes nothing in the SQLite database, which no server may use meanwhile. Errors, with nothing copied: Conflict if
// this database has rows, also of a transfer before; Unsupported if the databases are of different versions.
func (d *DB) Transfer(ctx context.Context, from *DB) (_ []Transferred, err error) {
	e, ok := d.engine.(*pgEngine)
	if !ok {
		return nil, sandbox.Errorf(sandbox.Unsupported, "only a PostgreSQL database takes the rows of an SQLite database")
	}
	source, err := from.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Rollback() }() // it only reads
	tables, err := transferTables(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("read the SQLite database: %w", err)
	}
	conn, err := e.writer.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1), set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true)", int64(writeKey)); err != nil {
		return nil, err
	}
	if err := transferred(ctx, source, tx); err != nil {
		return nil, err
	}
	for _, t := range tables {
		if err := t.empty(ctx, tx); err != nil {
			return nil, err
		}
	}
	var done []Transferred
	for _, t := range tables {
		n, err := t.copy(ctx, source, conn, tx)
		if err != nil {
			return nil, fmt.Errorf("copy table %s: %w", t.name, err)
		}
		done = append(done, Transferred{t.name, n})
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return done, nil
}

// transferred returns an error if the databases are of one installation, after a transfer whose answer may have been lost.
func transferred(ctx context.Context, source, tx *sql.Tx) error {
	const query = "SELECT id FROM installation"
	var from, to string
	if err := errors.Join(source.QueryRowContext(ctx, query).Scan(&from), tx.QueryRowContext(ctx, query).Scan(&to)); err != nil {
		return err
	}
	if from == to {
		return sandbox.Errorf(sandbox.Conflict, "the PostgreSQL database already has the records of this installation: they were copied before; start the server")
	}
	return nil
}

// transferTable is a table with the columns that are copied.
type transferTable struct {
	name    string
	columns []string
	needs   []string // tables that its rows refer to
}

// transferTables returns the tables of an SQLite database, each after the tables that its rows refer to.
func transferTables(ctx context.Context, source Querier) ([]transferTable, error) {
	names, err := Column[string](ctx, source, `SELECT name FROM pragma_table_list
		WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite%' AND name <> 'goose_db_version' ORDER BY name`)
	if err != nil {
		return nil, err
	}
	var waiting, ordered []transferTable
	for _, name := range names {
		t := transferTable{name: name}
		// A generated column is hidden.
		if t.columns, err = Column[string](ctx, source, "SELECT name FROM pragma_table_xinfo($1) WHERE hidden = 0 ORDER BY cid", name); err != nil {
			return nil, err
		}
		if t.needs, err = Column[string](ctx, source, `SELECT DISTINCT "table" FROM pragma_foreign_key_list($1) WHERE "table" <> $1`, name); err != nil {
			return nil, err
		}
		if name == "spent_tokens" {
			t.columns = append(t.columns, "rowid")
		}
		waiting = append(waiting, t)
	}
	for len(waiting) > 0 {
		ready := func(t transferTable) bool {
			return !slices.ContainsFunc(t.needs, func(name string) bool {
				return !slices.ContainsFunc(ordered, func(o transferTable) bool { return o.name == name })
			})
		}
		i := slices.IndexFunc(waiting, ready)
		if i < 0 {
			return nil, errors.New("the tables refer to each other in a circle")
		}
		ordered = append(ordered, waiting[i])
		waiting = slices.Delete(waiting, i, i+1)
	}
	return ordered, nil
}

// empty returns an error if the table of the target has rows other than the rows of a new database, which it deletes.
func (t transferTable) empty(ctx context.Context, tx *sql.Tx) error {
	if slices.Contains([]string{"installation", "upgrades", "quota_use", "rights_changes"}, t.name) {
		_, err := tx.ExecContext(ctx, "DELETE FROM "+t.name)
		return err
	}
	has, err := Exists(ctx, tx, "SELECT 1 FROM "+t.name+" LIMIT 1")
	if err == nil && has {
		return sandbox.Errorf(sandbox.Conflict, "the PostgreSQL database is not empty: its table %s has rows; create a new database", t.name)
	}
	return err
}

// copy copies the rows, counts them in both databases, and goes on with the numbers of the rows.
func (t transferTable) copy(ctx context.Context, source *sql.Tx, conn *sql.Conn, tx *sql.Tx) (int64, error) {
	// The rows have what triggers wrote.
	if _, err := tx.ExecContext(ctx, "ALTER TABLE "+t.name+" DISABLE TRIGGER USER"); err != nil {
		return 0, err
	}
	rows, err := source.QueryContext(ctx, "SELECT "+strings.Join(t.columns, ", ")+" FROM "+t.name) //nolint:rowserrcheck // copiedRows asks for it
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	err = conn.Raw(func(c any) error {
		pg, ok := c.(*pgConn)
		if !ok {
			return errors.New("the connection is not one of PostgreSQL")
		}
		_, err := pg.Conn.Conn().CopyFrom(ctx, pgx.Identifier{t.name}, t.columns, &copiedRows{rows: rows, columns: len(t.columns)})
		return err
	})
	if err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, "ALTER TABLE "+t.name+" ENABLE TRIGGER USER"); err != nil {
		return 0, err
	}
	var want, have int64
	count := "SELECT count(*) FROM " + t.name
	if err := errors.Join(source.QueryRowContext(ctx, count).Scan(&want), tx.QueryRowContext(ctx, count).Scan(&have)); err != nil {
		return 0, err
	}
	if want != have {
		return 0, fmt.Errorf("%d rows arrived of %d", have, want)
	}
	return have, t.continueNumbers(ctx, source, tx)
}

// continueNumbers makes new rows continue after the numbers of all rows that there were.
func (t transferTable) continueNumbers(ctx context.Context, source, tx *sql.Tx) error {
	var column, last string
	switch t.name {
	case "events", "webhook_deliveries":
		column, last = "seq", "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '"+t.name+"'), 0)"
	case "spent_tokens":
		column, last = "rowid", "SELECT coalesce(max(rowid), 0) FROM spent_tokens"
	default:
		return nil
	}
	var n int64
	if err := source.QueryRowContext(ctx, last).Scan(&n); err != nil || n == 0 {
		return err
	}
	if _, err := tx.ExecContext(ctx, "SELECT setval(pg_get_serial_sequence($1, $2), $3)", t.name, column, n); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE sequences SET last = $2 WHERE name = $1", t.name, n) // of some tables alone
	return err
}

// copiedRows implements [pgx.CopyFromSource].
type copiedRows struct {
	rows    *sql.Rows
	columns int
}

// Next implements [pgx.CopyFromSource].
func (r *copiedRows) Next() bool { return r.rows.Next() }

// Err implements [pgx.CopyFromSource].
func (r *copiedRows) Err() error { return r.rows.Err() }

// Values implements [pgx.CopyFromSource].
func (r *copiedRows) Values() ([]any, error) {
	values, dest := make([]any, r.columns), make([]any, r.columns)
	for i := range values {
		dest[i] = &values[i]
	}
	return values, r.rows.Scan(dest...)
}
