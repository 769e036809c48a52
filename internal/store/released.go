package store

import (
	"context"
	"database/sql"
	"time"
)

// releasedFor is how long a name that a row gave up is remembered. Its files are removed
// at once, or by one of the next sweeps; after that they count as unknown.
const releasedFor = 6 * time.Hour

// DigestsReleased returns the root filesystems that rows had and gave up a short time ago,
// and those of sandboxes that have ended and of deleted snapshots. Some of them may be in
// use all the same: see [Store.DigestsInUse].
func (s *Store) DigestsReleased(ctx context.Context) ([]string, error) {
	return column[string](ctx, s.reader, "SELECT name FROM released WHERE name LIKE 'sha256:%'"+
		" UNION SELECT image_digest FROM sandboxes WHERE image_digest <> '' AND NOT ("+isLive+")"+
		" UNION SELECT digest FROM snapshots WHERE digest <> '' AND state = 'deleted'")
}

func purgeReleased(ctx context.Context, tx *sql.Tx, now time.Time) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM released WHERE released_at < $1", now.Add(-releasedFor).Unix())
	return err
}
