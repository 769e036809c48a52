package database

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// commitsChannel gets a notification with each transaction of a server that owns a part of the shards. Its text is the name of the server.
const commitsChannel = "modbox_commits"

// lockWritesAndTell is lockWrites for a transaction whose commit the servers of the other parts hear of. It is the same number of statements.
// The notifications of several transactions cost no more than these, which wait for each other anyway.
func lockWritesAndTell(ctx context.Context, tx *sql.Tx, synchronous, name string) error {
	_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1), set_config('synchronous_commit', $2, true), pg_notify($3, $4)",
		int64(writeKey), synchronous, commitsChannel, name)
	return err
}

// releasedPrefix begins the text of a notification on the same channel that a transaction of the server which follows has released something of a quota.
const releasedPrefix = "released "

// TellReleased tells the servers of the other parts of the shards, when the transaction is committed, that it has released something of a quota.
func (d *DB) TellReleased(ctx context.Context, tx *sql.Tx) error {
	e, ok := d.engine.(*pgEngine)
	if !ok || d.Ranges() == sandbox.AllRanges {
		return nil
	}
	_, err := tx.ExecContext(ctx, "SELECT pg_notify($1, $2)", commitsChannel, releasedPrefix+e.name)
	return err
}

// ReleasedElsewhere returns a channel that is closed after a server of another part of the shards has called TellReleased, or may have.
func (d *DB) ReleasedElsewhere() <-chan struct{} { return d.released.Wait() }

// followCommits wakes the callers of [DB.Committed] and [DB.ReleasedElsewhere] after commits of other servers. It has a connection of its own, and
// wakes the callers of Committed at an interval besides, because a notification may be missing, as behind a pooler. Stop ends it.
func (d *DB) followCommits(e *pgEngine) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		e.hear(ctx, commitsChannel, func(text string) {
			name, released := strings.CutPrefix(text, releasedPrefix)
			if name == e.name {
				return
			}
			if released || text == "" {
				d.released.Send()
			}
			d.committed.Send()
		})
	})
	work.Go(func() {
		poll := time.NewTicker(followPoll)
		defer poll.Stop()
		for {
			select {
			case <-poll.C:
				d.committed.Send()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}
