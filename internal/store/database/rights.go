package database

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// rightsChannel gets a notification with each change that the table rights_changes counts.
	rightsChannel = "modbox_rights"
	// rightsPause is the least time between two reports of changes: many changes must not keep caches empty.
	rightsPause = 200 * time.Millisecond
)

// WatchRights calls changed after changes that can take a right from a user: of tokens, sessions, members, users and SSH keys, by this
// process or another, such as an operator with a client of the database. It calls it also at first, and returns when ctx ends. It looks
// for changes at an interval. On PostgreSQL it has a connection of its own besides, on which notifications tell of changes at once;
// they may be missing, as behind a pooler.
func (d *DB) WatchRights(ctx context.Context, interval time.Duration, changed func(), log *slog.Logger) {
	heard := make(chan struct{}, 1)
	var hearing sync.WaitGroup
	defer hearing.Wait()
	if e, ok := d.engine.(*pgEngine); ok {
		hearing.Go(func() {
			e.hear(ctx, rightsChannel, func(string) {
				select {
				case heard <- struct{}{}:
				default: // the reader has not looked since the last
				}
			})
		})
	}
	poll := time.NewTicker(interval)
	defer poll.Stop()
	last, failing := int64(-1), false
	for {
		var n int64
		err := d.reader.QueryRowContext(ctx, "SELECT changes FROM rights_changes").Scan(&n)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			log.Warn("changes of rights by other processes are noticed late, because the database does not answer", "error", err)
		case err == nil && n != last:
			changed()
			last = n
			select {
			case <-time.After(rightsPause):
			case <-ctx.Done():
			}
		}
		failing = err != nil
		select {
		case <-heard:
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// TellRights counts a change of rights that no trigger of the database counts, for the other servers of several with the database.
func (d *DB) TellRights(ctx context.Context, tx *sql.Tx) error {
	if d.Ranges() == sandbox.AllRanges {
		return nil
	}
	_, err := tx.ExecContext(ctx, "UPDATE rights_changes SET changes = changes + 1")
	if err == nil {
		_, err = tx.ExecContext(ctx, "SELECT pg_notify($1, '')", rightsChannel)
	}
	return err
}

// hear calls heard with the text of each notification of a channel, and with "" when some may have been missed, until ctx ends.
func (e *pgEngine) hear(ctx context.Context, channel string, heard func(text string)) {
	for ctx.Err() == nil {
		_ = e.hearOnce(ctx, channel, heard) // the callers look for changes without it as well, and log what fails
		select {
		case <-ctx.Done():
		case <-time.After(followPause):
		}
	}
}

// hearOnce is hear until its connection is lost.
func (e *pgEngine) hearOnce(ctx context.Context, channel string, heard func(text string)) error {
	conn, err := listen(ctx, e.listener, channel)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is written
	for text := ""; ; {
		heard(text)
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		text = n.Payload
	}
}
