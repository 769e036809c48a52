package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Active is the server that has the lock of the database.
type Active struct {
	// Address is where other servers reach it; "" for none.
	Address string
	// Epoch tells it from servers before it, also at the same address.
	Epoch int64
}

// activeChannel gets a notification when the active server changes.
const activeChannel = "modbox_active"

// Announce records the active server, which is this server, and tells the servers that follow it.
func (d *DB) Announce(ctx context.Context, a Active) error {
	err := d.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE installation SET server_address = $1, server_epoch = $2", a.Address, a.Epoch)
		if _, ok := d.engine.(*pgEngine); ok && err == nil {
			_, err = tx.ExecContext(ctx, "SELECT pg_notify($1, '')", activeChannel)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("announce the active server: %w", err)
	}
	return nil
}

const (
	// followPoll is the interval at which a server that follows another looks for itself: a notification may be missing.
	followPoll = 5 * time.Second
	// followPause is the time between two attempts to connect.
	followPause = time.Second
)

// Follow calls report with the active server of a PostgreSQL database, again after each change, until ctx ends. While the database does not
// answer, it keeps the last report. A database without the tables, or of an earlier version, has no active server.
func Follow(ctx context.Context, p Postgres, report func(Active), log *slog.Logger) {
	for said := false; ctx.Err() == nil; {
		err := follow(ctx, p, func(a Active) {
			said = false
			report(a)
		})
		if !said && ctx.Err() == nil {
			log.Warn("changes of the active server are noticed late, because the database does not answer", "error", err)
		}
		said = true
		select {
		case <-ctx.Done():
		case <-time.After(followPause):
		}
	}
}

// follow is [Follow] until its connection is lost.
func follow(ctx context.Context, p Postgres, report func(Active)) error {
	config, err := p.config(processName(), pgconn.ValidateConnectTargetSessionAttrsPrimary, true)
	if err != nil {
		return err
	}
	conn, err := listen(ctx, config, activeChannel)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is written
	for last := (*Active)(nil); ; {
		a, err := readActive(ctx, conn, p.StatementTimeout+p.ConnectTimeout)
		if err != nil {
			return err
		}
		if last == nil || *last != a {
			report(a)
			last = &a
		}
		if err := awaitNotice(ctx, conn); err != nil {
			return err
		}
	}
}

// listen returns a new connection that gets the notifications of a channel.
func listen(ctx context.Context, config *pgx.ConnConfig, channel string) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return conn, nil
}

// readActive reads the row of the active server.
func readActive(ctx context.Context, conn *pgx.Conn, limit time.Duration) (a Active, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = conn.QueryRow(ctx, "SELECT server_address, server_epoch FROM installation").Scan(&a.Address, &a.Epoch)
	if errors.Is(err, pgx.ErrNoRows) || hasState(err, "42P01", "42703") { // there is no such table, or column
		return Active{}, nil
	}
	return a, err
}

// awaitNotice waits for a notification, at most as long as [followPoll].
func awaitNotice(ctx context.Context, conn *pgx.Conn) error {
	waiting, cancel := context.WithTimeout(ctx, followPoll)
	defer cancel()
	_, err := conn.WaitForNotification(waiting)
	if ctx.Err() == nil && waiting.Err() != nil && !conn.IsClosed() {
		return nil
	}
	return err
}
