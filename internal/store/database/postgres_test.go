package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

// awayConnector is a database that cannot be reached.
type awayConnector struct{}

func (awayConnector) Connect(context.Context) (driver.Conn, error) {
	return nil, sandbox.Errorf(sandbox.Unavailable, "away")
}

func (awayConnector) Driver() driver.Driver { return nil }

// A commit whose result is not known must not run again.
func TestCommitOfUnknownResult(t *testing.T) {
	e := &pgEngine{writer: sql.OpenDB(awayConnector{})}
	defer e.writer.Close()
	runs := 0
	err := e.persist(t.Context(), func() error {
		runs++
		return e.committed(t.Context(), "1", &lostError{errors.New("cut")})
	})
	if sandbox.CodeOf(err) != sandbox.Unavailable || runs != 1 {
		t.Errorf("%d runs ended with %v, want one with code unavailable", runs, err)
	}
}
