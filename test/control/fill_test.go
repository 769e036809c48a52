package control_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/store/storetest"
)

// A copy has an id, a label and a name of its own, and ended earlier than what it is a copy of, 10 seconds for each number.
var copied = map[string]string{
	"id":         "'0193b1f0-0000-7000-8000-' || " + digits,
	"host_label": "'copy' || " + digits,
	"name":       "'copy-' || " + digits,
	"sandbox_id": "'0193b1f0-0000-7000-8000-' || " + digits,
	"created_at": "o.created_at - n.i * 10000000000",
	"updated_at": "o.updated_at - n.i * 10000000000",
	"started_at": "o.started_at - n.i * 10000000000",
	"ended_at":   "o.ended_at - n.i * 10000000000",
	"time":       "o.time - n.i * 10000000000",
}

const (
	digits = "substr(CAST(1000000000000 + n.i AS TEXT), 2)"
	// numbers are the numbers from the first argument to the second.
	numbers = "WITH RECURSIVE n (i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2) "
	// fillBatch is the number of sandboxes that a transaction adds. Each event changes the row of the table sequences.
	fillBatch = 250
)

// fill adds n ended sandboxes with their labels and events to the database: copies of a sandbox that the server made and ended.
func (s *server) fill(n int) {
	s.T.Helper()
	id, err := s.create()
	if err == nil {
		_, err = s.call(http.MethodDelete, "/v1/sandboxes/"+id, "")
	}
	for first := 1; err == nil && first <= n; first += fillBatch {
		last := min(n, first+fillBatch-1)
		err = s.Store.Write(s.T.Context(), func(ctx context.Context, tx *sql.Tx) error {
			for _, of := range []struct{ table, key string }{{"sandboxes", "id"}, {"sandbox_labels", "sandbox_id"}, {"events", "sandbox_id"}} {
				if err := copyRows(ctx, tx, of.table, of.key, id, first, last); err != nil {
					return fmt.Errorf("copy rows of %s: %w", of.table, err)
				}
			}
			return nil
		})
	}
	if err != nil {
		s.T.Fatal(err)
	}
	s.settle()
}

// copyRows copies the rows of a sandbox for each of the numbers.
func copyRows(ctx context.Context, tx *sql.Tx, table, key, id string, first, last int) error {
	rows, err := tx.QueryContext(ctx, "SELECT * FROM "+table+" LIMIT 0") //nolint:rowserrcheck // there are no rows
	if err != nil {
		return err
	}
	columns, err := rows.Columns()
	if err := rows.Close(); err != nil { //nolint:sqlclosecheck // before the next statement
		return err
	}
	if err != nil {
		return err
	}
	var into, from []string
	for _, c := range columns {
		if c == "seq" {
			continue
		}
		into = append(into, c)
		if value, ok := copied[c]; ok {
			from = append(from, value)
		} else {
			from = append(from, "o."+c)
		}
	}
	_, err = tx.ExecContext(ctx, numbers+"INSERT INTO "+table+" ("+strings.Join(into, ", ")+") SELECT "+strings.Join(from, ", ")+
		" FROM "+table+" o, n WHERE o."+key+" = $3", first, last, id)
	return err
}

// settle does what PostgreSQL does by itself within a minute.
func (s *server) settle() {
	s.T.Helper()
	if !storetest.Postgres() {
		return
	}
	if err := s.Store.Write(s.T.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "ANALYZE")
		return err
	}); err != nil {
		s.T.Fatal(err)
	}
}
