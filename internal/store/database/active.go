package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/modbox/modbox/internal/sandbox"
)

// Active is a server that has locks of the database.
type Active struct {
	// Ranges are the ranges of shards that the server owns.
	Ranges sandbox.Ranges
	// Address is where other servers reach it; "" for none.
	Address string
	// Epoch tells it from servers before it, also at the same address.
	Epoch int64
}

// activeChannel gets a notification when an active server changes.
const activeChannel = "modbox_active"

// Announce records this server, which owns the ranges of a, and tells the servers that follow the active servers.
func (d *DB) Announce(ctx context.Context, a Active) error {
	_, postgres := d.engine.(*pgEngine)
	err := d.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if a.Ranges.HasRange(0) { // for standbys of earlier versions
			if _, err := tx.ExecContext(ctx, "UPDATE installation SET server_address = $1, server_epoch = $2", a.Address, a.Epoch); err != nil {
				return err
			}
		}
		if !postgres { // a file has no other servers
			return nil
		}
		_, err := tx.ExecContext(ctx, "UPDATE shard_ranges SET address = $1, server_epoch = $2 WHERE (1::bigint << number) & $3 <> 0", a.Address, a.Epoch, int64(a.Ranges))
		if err == nil {
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

// Follow calls report with the active servers of a PostgreSQL database in the order of their first ranges, again after each change, until ctx
// ends. Ranges of no server in the list have none at this moment. While the database does not answer, the last report stays. A database without
// the tables has no active server.
func Follow(ctx context.Context, p Postgres, report func([]Active), log *slog.Logger) {
	for said := false; ctx.Err() == nil; {
		err := follow(ctx, p, func(a []Active) {
			said = false
			report(a)
		})
		if !said && ctx.Err() == nil {
			log.Warn("changes of the active servers are noticed late, because the database does not answer", "error", err)
		}
		said = true
		select {
		case <-ctx.Done():
		case <-time.After(followPause):
		}
	}
}

// follow is [Follow] until its connection is lost.
func follow(ctx context.Context, p Postgres, report func([]Active)) error {
	config, err := p.config(processName(), pgconn.ValidateConnectTargetSessionAttrsPrimary, true)
	if err != nil {
		return err
	}
	conn, err := listen(ctx, config, activeChannel)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is written
	var last []Active
	for reported := false; ; {
		a, err := readActive(ctx, conn, p.StatementTimeout+p.ConnectTimeout)
		if err != nil {
			return err
		}
		if !reported || !slices.Equal(last, a) {
			report(a)
			last, reported = a, true
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

// readActive reads the rows of the active servers.
func readActive(ctx context.Context, conn *pgx.Conn, limit time.Duration) (list []Active, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// A server of an earlier version does not know the columns, or the table, and has all shards.
	list, err = scanActive(ctx, conn, `SELECT 1 << number, coalesce(to_jsonb(r)->>'address', server_address), coalesce((to_jsonb(r)->>'server_epoch')::bigint, i.server_epoch)
		FROM shard_ranges r, installation i ORDER BY number`)
	if hasState(err, "42P01", "42703") {
		list, err = scanActive(ctx, conn, fmt.Sprintf("SELECT %d, server_address, server_epoch FROM installation", sandbox.AllRanges))
	}
	if hasState(err, "42P01", "42703") { // there is no such table, or column
		return nil, nil
	}
	return list, err
}

// scanActive runs a query for ranges with the addresses and epochs of their servers, and returns the servers.
func scanActive(ctx context.Context, conn *pgx.Conn, query string) (list []Active, err error) {
	answer, err := conn.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	var a Active
	_, err = pgx.ForEachRow(answer, []any{&a.Ranges, &a.Address, &a.Epoch}, func() error {
		if a.Address == "" {
			return nil
		}
		i := slices.IndexFunc(list, func(known Active) bool { return known.Address == a.Address && known.Epoch == a.Epoch })
		if i < 0 {
			list = append(list, a)
		} else {
			list[i].Ranges |= a.Ranges
		}
		return nil
	})
	return list, err
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
