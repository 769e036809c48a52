package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

const (
	snapshotColumns = `s.id, s.workspace_id, w.slug, s.name, s.tag, s.description, s.message, s.metadata, s.parent_id, s.sandbox_id,
		s.image, s.base_digest, s.digest, s.size_bytes, s.layer_bytes, s.file_count, s.public, s.env, s.content_hash,
		s.created_by, s.created_at, s.deleted_at`
	snapshotTables = " FROM snapshots s JOIN workspaces w ON w.id = s.workspace_id"
	// isReady repeats the condition of the indexes of snapshots word for word, so that SQLite uses them.
	isReady = "s.state = 'ready'"
)

// Snapshots are the snapshots.
type Snapshots struct {
	db *database.DB
	sealer
}

// BeginSnapshot records that a snapshot is being made, with its id and its future tag. The
// snapshot is invisible before [Snapshots.FinishSnapshot].
//
// Errors: QuotaExceeded if the workspace has most snapshots, including snapshots that are
// being made; if its snapshots take maxBytes together; or if its disk quota is used up.
func (s *Snapshots) BeginSnapshot(ctx context.Context, sn sandbox.Snapshot, most int, maxBytes int64, a quota.Admission) error {
	env, err := s.sealEnv(sn.Env, string(sn.ID))
	if err != nil {
		return fmt.Errorf("record snapshot %s: %w", sn.ID, err)
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var count int
		var size int64
		err := tx.QueryRowContext(ctx, "SELECT count(*) FROM snapshots WHERE workspace_id = $1 AND state <> 'deleted'", sn.Workspace).Scan(&count)
		if err == nil {
			err = tx.QueryRowContext(ctx, quotaSnapshots, sn.Workspace).Scan(&size)
		}
		switch {
		case err != nil:
			return err
		case count >= most:
			return sandbox.Errorf(sandbox.QuotaExceeded, "a workspace has at most %d snapshots; delete some", most)
		case size >= maxBytes:
			return sandbox.Errorf(sandbox.QuotaExceeded, "the snapshots of the workspace take %s, and may take %s together (snapshot.max_bytes); delete some", sandbox.ShowBytes(size), sandbox.ShowBytes(maxBytes))
		}
		if err := admitDisk(ctx, tx, sn.Workspace, 0, a); err != nil {
			return err
		}
		metadata, err := marshalMap(sn.Metadata)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO snapshots (id, workspace_id, state, name, tag, description, message, metadata, parent_id,
				sandbox_id, image, public, env, content_hash, created_by, created_at)
			VALUES ($1, $2, 'creating', $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
			sn.ID, sn.Workspace, sn.Name, sn.Tag, sn.Description, sn.Message, metadata, sn.Parent,
			sn.Sandbox, sn.Image, database.Number(sn.Public), env, sn.ContentHash, sn.CreatedBy, database.Nanos(sn.CreatedAt))
		return err
	})
	if err != nil {
		return fmt.Errorf("record snapshot %s: %w", sn.ID, err)
	}
	return nil
}

// FinishSnapshot records a complete snapshot. From then on it can be used, and the snapshot
// that had its tag has lost the tag. If the sandbox of ev still has a row, FinishSnapshot
// appends ev. Errors: NotFound; QuotaExceeded if the snapshots of the workspace would take more than maxBytes
// together, or if the snapshot exceeds the workspace's disk quota.
func (s *Snapshots) FinishSnapshot(ctx context.Context, id sandbox.SnapshotID, g sandbox.SnapshotResult, maxBytes int64, a quota.Admission, ev sandbox.Event) (sandbox.Snapshot, error) {
	var row snapshotRow
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		row, err = oneSnapshotRow(tx.QueryRowContext(ctx, "SELECT "+snapshotColumns+snapshotTables+" WHERE s.id = $1 AND s.state = 'creating'", id))
		if err != nil {
			return err
		}
		if err := takeTag(ctx, tx, &row.Snapshot, row.Tag); err != nil {
			return err
		}
		if err := admitSnapshot(ctx, tx, &row.Snapshot, g, maxBytes, a); err != nil {
			return err
		}
		if row, err = snapshotByID(ctx, tx, id); err != nil {
			return err
		}
		return insertIfKnown(ctx, tx, ev)
	})
	if err == nil {
		err = s.open(&row)
	}
	if err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("finish snapshot %s: %w", id, err)
	}
	return row.Snapshot, nil
}

// admitSnapshot records the result of a snapshot, unless that and what lies below and did not count before exceed maxBytes or the
// disk quota of the workspace.
func admitSnapshot(ctx context.Context, tx *sql.Tx, sn *sandbox.Snapshot, g sandbox.SnapshotResult, maxBytes int64, a quota.Admission) error {
	limits, err := effective(ctx, tx, sn.Workspace, a.Limits)
	if err != nil {
		return err
	}
	use, err := quotaUse(ctx, tx, sn.Workspace, true)
	if err != nil {
		return err
	}
	use.Disk.AddUnrecorded(a.Unrecorded)
	_, err = tx.ExecContext(ctx, `UPDATE snapshots SET state = 'ready', base_digest = $1, digest = $2, size_bytes = $3, layer_bytes = $4,
		file_count = $5, created_at = $6 WHERE id = $7`,
		g.BaseDigest, g.Digest, g.SizeBytes, g.LayerBytes, g.FileCount, database.Nanos(g.CreatedAt), sn.ID)
	if err != nil {
		return err
	}
	for _, b := range g.Below {
		_, err := tx.ExecContext(ctx, "INSERT INTO snapshot_below (snapshot_id, digest, size_bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", sn.ID, b.Digest, b.SizeBytes)
		if err != nil {
			return err
		}
	}
	var with int64
	if err := tx.QueryRowContext(ctx, quotaSnapshots, sn.Workspace).Scan(&with); err != nil {
		return err
	}
	add := with - use.Disk.Snapshots
	if with > maxBytes {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the snapshot adds %s, and the snapshots of the workspace would take %s, but may take %s together (snapshot.max_bytes); delete some",
			sandbox.ShowBytes(add), sandbox.ShowBytes(with), sandbox.ShowBytes(maxBytes))
	}
	return limits.AdmitsDisk(use.Disk, add)
}

// insertIfKnown appends an event if its sandbox has a row.
func insertIfKnown(ctx context.Context, tx *sql.Tx, ev sandbox.Event) error {
	if ev.Sandbox == "" {
		return nil
	}
	var known int
	err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sandboxes WHERE id = $1", ev.Sandbox).Scan(&known)
	if err != nil || known == 0 {
		return err
	}
	return insertEvent(ctx, tx, ev.Sandbox, ev)
}

// takeTag removes the tag of sn from the other snapshot of sn's name that has it.
func takeTag(ctx context.Context, tx *sql.Tx, sn *sandbox.Snapshot, tag string) error {
	if tag == "" {
		return nil
	}
	_, err := tx.ExecContext(ctx, "UPDATE snapshots SET tag = '' WHERE workspace_id = $1 AND name = $2 AND tag = $3 AND state = 'ready' AND id <> $4",
		sn.Workspace, sn.Name, tag, sn.ID)
	return err
}

// SnapshotsBegun returns the snapshots that are being made.
func (s *Snapshots) SnapshotsBegun(ctx context.Context) ([]sandbox.SnapshotID, error) {
	return database.Column[sandbox.SnapshotID](ctx, s.db.Reader(), "SELECT id FROM snapshots WHERE state = 'creating'")
}

// AbandonSnapshot deletes the record of a snapshot that is being made, and releases its root filesystem, "" for none.
// Idempotent.
func (s *Snapshots) AbandonSnapshot(ctx context.Context, id sandbox.SnapshotID, digest string) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM snapshots WHERE id = $1 AND state = 'creating'", id); err != nil || digest == "" {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO released (name, released_at) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE SET released_at = excluded.released_at`, digest, time.Now().Unix())
		return err
	})
	if err != nil {
		return fmt.Errorf("abandon snapshot %s: %w", id, err)
	}
	return nil
}

// Snapshot returns a snapshot of any workspace, deleted or not. Errors: NotFound.
func (s *Snapshots) Snapshot(ctx context.Context, id sandbox.SnapshotID) (sandbox.Snapshot, error) {
	row, err := snapshotByID(ctx, s.db.Reader(), id)
	if err == nil {
		err = s.open(&row)
	}
	return row.Snapshot, err
}

func snapshotByID(ctx context.Context, q database.Querier, id sandbox.SnapshotID) (snapshotRow, error) {
	return oneSnapshotRow(q.QueryRowContext(ctx, "SELECT "+snapshotColumns+snapshotTables+" WHERE s.id = $1 AND s.state <> 'creating'", id))
}

// SnapshotByTag returns the snapshot with a name and a tag of a workspace, given by id or by
// slug. Errors: NotFound.
func (s *Snapshots) SnapshotByTag(ctx context.Context, ws sandbox.WorkspaceID, slug, name, tag string) (sandbox.Snapshot, error) {
	of, key := "s.workspace_id = $1", string(ws)
	if slug != "" {
		of, key = "w.slug = $1", slug
	}
	return s.oneSnapshot(s.db.Reader().QueryRowContext(ctx, "SELECT "+snapshotColumns+snapshotTables+
		" WHERE "+of+" AND s.name = $2 AND s.tag = $3 AND "+isReady+" ORDER BY s.created_at LIMIT 1", key, name, tag))
}

// SnapshotByContent returns the newest snapshot of a workspace that was built from the
// content. Errors: NotFound.
func (s *Snapshots) SnapshotByContent(ctx context.Context, ws sandbox.WorkspaceID, hash string) (sandbox.Snapshot, error) {
	return s.oneSnapshot(s.db.Reader().QueryRowContext(ctx, "SELECT "+snapshotColumns+snapshotTables+
		" WHERE s.workspace_id = $1 AND s.content_hash = $2 AND s.content_hash <> '' AND "+isReady+" ORDER BY s.created_at DESC LIMIT 1", ws, hash))
}

// LastSnapshotOf returns the newest snapshot taken of a sandbox, deleted or not. Errors: NotFound.
func (s *Snapshots) LastSnapshotOf(ctx context.Context, id sandbox.ID) (sandbox.Snapshot, error) {
	return s.oneSnapshot(s.db.Reader().QueryRowContext(ctx, "SELECT "+snapshotColumns+snapshotTables+
		" WHERE s.sandbox_id = $1 AND s.sandbox_id <> '' AND s.state <> 'creating' ORDER BY s.created_at DESC, s.id DESC LIMIT 1", id))
}

// snapshotSort is a column that snapshots can be sorted by, and its value.
type snapshotSort struct {
	column string
	value  func(*sandbox.Snapshot) any
}

var snapshotSorts = map[sandbox.SnapshotSort]snapshotSort{
	"":                  {"s.created_at", func(sn *sandbox.Snapshot) any { return database.Nanos(sn.CreatedAt) }},
	sandbox.SortCreated: {"s.created_at", func(sn *sandbox.Snapshot) any { return database.Nanos(sn.CreatedAt) }},
	sandbox.SortName:    {"s.name", func(sn *sandbox.Snapshot) any { return sn.Name }},
	sandbox.SortSize:    {"s.size_bytes", func(sn *sandbox.Snapshot) any { return sn.SizeBytes }},
	sandbox.SortFiles:   {"s.file_count", func(sn *sandbox.Snapshot) any { return sn.FileCount }},
}

// Snapshots returns a page of a workspace's snapshots, or, if ws is "", of the public
// snapshots of all workspaces. Errors: Invalid, naming limit, cursor, offset or sort.
func (s *Snapshots) Snapshots(ctx context.Context, ws sandbox.WorkspaceID, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error) {
	if f.Offset < 0 {
		return sandbox.SnapshotPage{}, sandbox.InvalidField("offset", "must not be negative")
	}
	sort, ok := snapshotSorts[f.Sort]
	if !ok {
		return sandbox.SnapshotPage{}, sandbox.InvalidField("sort", "must be %s, %s, %s or %s", sandbox.SortCreated, sandbox.SortName, sandbox.SortSize, sandbox.SortFiles)
	}
	var q database.Query
	q.And(isReady)
	if ws == "" {
		q.And("s.public = 1")
	} else {
		q.Where("s.workspace_id = ", ws)
	}
	for _, c := range []struct{ column, value string }{{"s.sandbox_id", string(f.Sandbox)}, {"s.name", f.Name}, {"s.tag", f.Tag}} {
		if c.value != "" {
			q.Where(c.column+" = ", c.value)
		}
	}
	var total int
	if f.Count {
		if err := s.db.Reader().QueryRowContext(ctx, "SELECT count(*)"+snapshotTables+" WHERE "+strings.Join(q.Conditions, " AND "), q.Args...).Scan(&total); err != nil {
			return sandbox.SnapshotPage{}, fmt.Errorf("count snapshots: %w", err)
		}
	}
	list := database.Listing[sandbox.Snapshot]{
		Order: sort.column + " desc", Columns: []string{sort.column, "s.id"}, Descending: !f.Ascending, Offset: f.Offset,
		Key:  func(sn sandbox.Snapshot) []any { return []any{sort.value(&sn), string(sn.ID)} },
		Read: s.querySnapshots,
	}
	if f.Ascending {
		list.Order = sort.column
	}
	p, err := list.Page(ctx, page.Request{Limit: f.Limit, Cursor: f.Cursor}, "SELECT "+listedSnapshotColumns+snapshotTables, q)
	if err != nil {
		return sandbox.SnapshotPage{}, err
	}
	return sandbox.SnapshotPage{Snapshots: p.Items, Next: p.Next, Total: total}, nil
}

// TagSnapshot sets the tag of a complete snapshot and removes it from the other snapshot of
// the same name that had it; "" removes the snapshot's tag. Errors: NotFound.
func (s *Snapshots) TagSnapshot(ctx context.Context, id sandbox.SnapshotID, tag string, ev sandbox.Event) (sandbox.Snapshot, error) {
	var row snapshotRow
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if row, err = snapshotByID(ctx, tx, id); err != nil {
			return err
		}
		if !row.DeletedAt.IsZero() {
			return noSnapshot()
		}
		if err := takeTag(ctx, tx, &row.Snapshot, tag); err != nil {
			return err
		}
		row.Tag = tag
		if _, err := tx.ExecContext(ctx, "UPDATE snapshots SET tag = $1 WHERE id = $2", tag, id); err != nil {
			return err
		}
		return insertIfKnown(ctx, tx, ev)
	})
	if err == nil {
		err = s.open(&row)
	}
	if err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("tag snapshot %s: %w", id, err)
	}
	return row.Snapshot, nil
}

// DeleteSnapshot marks a snapshot as deleted and appends ev to the sandbox that it was taken
// of. A deleted snapshot cannot be used; it stays in lineages, without its environment.
// Idempotent.
func (s *Snapshots) DeleteSnapshot(ctx context.Context, id sandbox.SnapshotID, ev sandbox.Event) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE snapshots SET state = 'deleted', deleted_at = $1, tag = '', env = '{}' WHERE id = $2 AND state = 'ready'",
			database.Nanos(ev.Time), id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		return insertIfKnown(ctx, tx, ev)
	})
	if err != nil {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	return nil
}

// purgeSnapshots deletes the rows of at most limit snapshots that were deleted before a time
// and that no lineage needs, and returns their number.
func purgeSnapshots(ctx context.Context, tx *sql.Tx, before time.Time, limit int) (int64, error) {
	res, err := tx.ExecContext(ctx, `DELETE FROM snapshots WHERE id IN (SELECT id FROM snapshots
		WHERE state = 'deleted' AND deleted_at < $1 AND id NOT IN (SELECT parent_id FROM snapshots)
			AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE snapshot_id <> '' AND snapshot_id = snapshots.id)
		LIMIT $2)`, database.Nanos(before), limit)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Lineage returns a snapshot and at most limit-1 of its ancestors, including deleted
// snapshots, the newest first.
func (s *Snapshots) Lineage(ctx context.Context, id sandbox.SnapshotID, limit int) ([]sandbox.Snapshot, error) {
	return s.querySnapshots(ctx, `WITH RECURSIVE chain (id, depth) AS (
			SELECT id, 0 FROM snapshots WHERE id = $1 UNION ALL SELECT p.parent_id, chain.depth + 1 FROM chain JOIN snapshots p ON p.id = chain.id
			WHERE p.parent_id <> '' AND chain.depth + 1 < $2)
		SELECT `+snapshotColumns+" FROM chain JOIN snapshots s ON s.id = chain.id JOIN workspaces w ON w.id = s.workspace_id ORDER BY chain.depth", id, limit)
}

// DigestsInUse returns the root filesystems that live sandboxes, their checkpoints and snapshots need.
func (s *Snapshots) DigestsInUse(ctx context.Context) ([]string, error) {
	return database.Column[string](ctx, s.db.Reader(), "SELECT image_digest FROM sandboxes WHERE image_digest <> '' AND "+isLive+
		" UNION SELECT digest FROM snapshots WHERE digest <> '' AND state = 'ready'"+
		" UNION SELECT image_digest FROM checkpoints WHERE image_digest <> ''"+
		" UNION SELECT image_digest FROM automatic_copies WHERE image_digest <> ''")
}

func (s *Snapshots) querySnapshots(ctx context.Context, query string, args ...any) ([]sandbox.Snapshot, error) {
	list, err := database.Collect(ctx, s.db.Reader(), s.scanSnapshot, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	return list, nil
}

func noSnapshot() error { return sandbox.Errorf(sandbox.NotFound, "there is no such snapshot") }

// oneSnapshot reads the only row of a query.
func (s *Snapshots) oneSnapshot(row *sql.Row) (sandbox.Snapshot, error) {
	sn, err := oneSnapshotRow(row)
	if err == nil {
		err = s.open(&sn)
	}
	return sn.Snapshot, err
}

func oneSnapshotRow(row *sql.Row) (snapshotRow, error) {
	sn, err := scanSnapshotRow(row)
	if errors.Is(err, sql.ErrNoRows) {
		return snapshotRow{}, noSnapshot()
	}
	if err != nil {
		return snapshotRow{}, fmt.Errorf("read snapshot: %w", err)
	}
	return sn, nil
}

// scanSnapshot reads snapshotColumns and decrypts the variables, so it is not for transactions.
func (s *Snapshots) scanSnapshot(row database.Scanner) (sandbox.Snapshot, error) {
	sn, err := scanSnapshotRow(row)
	if err == nil {
		err = s.open(&sn)
	}
	return sn.Snapshot, err
}

// snapshotRow is a snapshot whose variables are still encrypted.
type snapshotRow struct {
	sandbox.Snapshot
	env string
}

// open decrypts the variables of a row. Errors: Unavailable if the key is missing.
func (s *Snapshots) open(row *snapshotRow) (err error) {
	row.Env, err = s.unsealEnv(row.env, string(row.ID))
	return err
}

// scanSnapshotRow reads snapshotColumns.
func scanSnapshotRow(row database.Scanner) (sn snapshotRow, err error) {
	var metadata string
	var public, created, deleted int64
	err = row.Scan(&sn.ID, &sn.Workspace, &sn.WorkspaceSlug, &sn.Name, &sn.Tag, &sn.Description, &sn.Message, &metadata, &sn.Parent, &sn.Sandbox,
		&sn.Image, &sn.BaseDigest, &sn.Digest, &sn.SizeBytes, &sn.LayerBytes, &sn.FileCount, &public, &sn.env, &sn.ContentHash,
		&sn.CreatedBy, &created, &deleted)
	if err != nil {
		return snapshotRow{}, err
	}
	if sn.Metadata, err = unmarshalMap(metadata); err != nil {
		return snapshotRow{}, fmt.Errorf("metadata of snapshot %s: %w", sn.ID, err)
	}
	sn.Public, sn.CreatedAt, sn.DeletedAt = public != 0, database.FromNanos(created), database.FromNanos(deleted)
	return sn, nil
}
