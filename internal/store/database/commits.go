package database

import (
	"context"
	"database/sql"
	"sync"
	"time"
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

// followCommits wakes the callers of [DB.Committed] after commits of other servers. It has a connection of its own, and wakes them at an
// interval besides, because a notification may be missing, as behind a pooler. Stop ends it.
func (d *DB) followCommits(e *pgEngine) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	heard := make(chan struct{}, 1)
	var work sync.WaitGroup
	work.Go(func() { e.hear(ctx, commitsChannel, e.name, heard) })
	work.Go(func() {
		poll := time.NewTicker(followPoll)
		defer poll.Stop()
		for {
			select {
			case <-heard:
			case <-poll.C:
			case <-ctx.Done():
				return
			}
			d.committed.Send()
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}
