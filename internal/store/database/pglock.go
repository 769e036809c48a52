package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/modbox/modbox/internal/sandbox"
)

// lockGrace is the time that a server waits for the sessions of a server that was killed.
const lockGrace = 5 * time.Second

// ErrTaken is wrapped by errors which say that another server has the database.
var ErrTaken = errors.New("another server has the lock of the database")

// lock makes conn, the only connection of this server that writes, its lock on its ranges of the database: while the session of conn
// lives, no other server has these ranges. Without the session there is neither the lock nor a transaction.
// Errors: Conflict if another server has the lock, or has had it since this server has claimed the ranges.
func (e *pgEngine) lock(ctx context.Context, conn *pgx.Conn) error {
	select {
	case <-e.taken: // for good: what the server still wants to write as it ends must not wait
		return e.takenErr
	default:
	}
	deadline := time.Now().Add(lockGrace)
	for {
		got, err := e.tryLock(ctx, conn)
		if err != nil {
			return err
		}
		if got {
			if err = e.checkEpochs(ctx, conn); errors.Is(err, ErrTaken) {
				e.giveUp(err)
			}
			return err
		}
		h, err := findHolder(ctx, conn, e.ranges.ranges())
		if err != nil {
			return err
		}
		switch {
		case h.name == e.name: // a session of this server whose connection was lost
			if _, err := conn.Exec(ctx, "SELECT pg_terminate_backend($1)", h.session); err != nil {
				return err
			}
		case time.Now().After(deadline) && h.session != 0:
			err := sandbox.Wrap(sandbox.Conflict, ErrTaken, "another server uses the database: %s; %s", h, e.ranges.belong())
			e.giveUp(err)
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// giveUp notes that another server has the database.
func (e *pgEngine) giveUp(err error) {
	select {
	case <-e.taken:
	default: // there is one connection for writes, so one call at a time
		e.takenErr = err
		close(e.taken)
	}
}

// holder is a session that has a lock of another server.
type holder struct {
	session int32 // 0 for none
	name    string
	address string
	since   time.Time
}

func (h holder) String() string {
	return fmt.Sprintf("%s, connected from %s since %s", withoutEnd(h.name), h.address, h.since.UTC().Format(time.RFC3339))
}

// withoutEnd returns the name of a process without its random end.
func withoutEnd(name string) string {
	if i := strings.LastIndexByte(name, ' '); i > 0 {
		name = name[:i]
	}
	return name
}

// findHolder returns a session that keeps a server from the locks of ranges.
func findHolder(ctx context.Context, conn *pgx.Conn, r sandbox.Ranges) (h holder, err error) {
	err = conn.QueryRow(ctx, `SELECT a.pid, coalesce(a.application_name, ''), coalesce(host(a.client_addr), 'the machine of the database'), coalesce(a.backend_start, now())
		FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
			AND (l.classid::bigint << 32 | l.objid::bigint = ANY($2) OR l.classid::bigint << 32 | l.objid::bigint = $1 AND l.mode = 'ExclusiveLock')
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1`,
		int64(serverKey), rangeKeys(r)).Scan(&h.session, &h.name, &h.address, &h.since)
	if errors.Is(err, pgx.ErrNoRows) { // it has ended meanwhile
		return holder{}, nil
	}
	return h, err
}

// Taken returns a channel that is closed when another server has taken the database over; it is nil for SQLite.
func (d *DB) Taken() <-chan struct{} {
	if e, ok := d.engine.(*pgEngine); ok {
		return e.taken
	}
	return nil
}

// Confirm returns nil if no other server has taken the database over. It waits for the database, but not for its disk.
//
// Errors: as of [DB.Note]; [ErrTaken].
func (d *DB) Confirm(ctx context.Context) error {
	return d.Note(ctx, func(context.Context, *sql.Tx) error { return nil }) // the session with the lock writes, or nobody
}

// TakenBy returns the error that names the other server, after the channel of Taken was closed.
func (d *DB) TakenBy() error {
	if e, ok := d.engine.(*pgEngine); ok {
		return e.takenErr
	}
	return nil
}

// Warnings returns what an operator should know about the settings of the database.
func (d *DB) Warnings() []string {
	if e, ok := d.engine.(*pgEngine); ok {
		return e.warnings
	}
	return nil
}
