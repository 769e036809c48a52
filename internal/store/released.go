package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/modbox/modbox/internal/store/database"
)

// releasedFor is the time for which the store remembers a digest that a row has released.
// The files are removed at once or by one of the next sweeps; after releasedFor they count
// as unknown.
const releasedFor = 6 * time.Hour

// DigestsReleased returns the root filesystems that rows released a short time ago, and the
// root filesystems of ended sandboxes and deleted snapshots. Other rows may still use some
// of them: see [Snapshots.DigestsInUse].
func (s *Snapshots) DigestsReleased(ctx context.Context) ([]string, error) {
	return database.Column[string](ctx, s.db.Reader(), "SELECT name FROM released WHERE name LIKE 'sha256:%'"+
		" UNION SELECT image_digest FROM sandboxes WHERE image_digest <> '' AND NOT ("+isLive+")"+
		" UNION SELECT digest FROM snapshots WHERE digest <> '' AND state = 'deleted'")
}

func purgeReleased(ctx context.Context, tx *sql.Tx, now time.Time) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM released WHERE released_at < $1", now.Add(-releasedFor).Unix())
	return err
}
