package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

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
	e := &pgEngine{writer: sql.OpenDB(awayConnector{}), patience: 50 * time.Millisecond}
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

// In a long outage requests fail at once, without an attempt to connect for each.
func TestLongOutage(t *testing.T) {
	config, err := Postgres{URL: "postgres://user@host/database"}.config("test", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	config.LookupFunc = func(context.Context, string) ([]string, error) {
		t.Error("an attempt to connect")
		return nil, errors.New("away")
	}
	c := &pgConnector{config: config, patience: time.Hour}
	c.outage.failed(time.Now().Add(-2*time.Hour), errors.New("refused"))
	if _, err := c.Connect(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable || c.outage.refuses(3*time.Hour) != nil {
		t.Errorf("Connect after two hours: %v, want code unavailable, and no refusal for who is patient", err)
	}
	c.outage.end()
	if c.outage.refuses(time.Nanosecond) != nil || c.outage.lasts(time.Nanosecond) {
		t.Error("the outage has not ended")
	}
}
