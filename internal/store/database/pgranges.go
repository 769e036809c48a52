package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/modbox/modbox/internal/sandbox"
)

// rangeKey is the key of the advisory lock of the first range of shards; the keys of the others follow.
const rangeKey = 0x6d6f64626f780100

// rangeKeys returns the keys of the locks of ranges.
func rangeKeys(r sandbox.Ranges) (keys []int64) {
	for n := range sandbox.RangeCount {
		if r.HasRange(n) {
			keys = append(keys, int64(rangeKey+n))
		}
	}
	return keys
}

// rangeOwner has the ranges of shards that a server owns. The session of the server that writes has their locks. A session that was lost may
// have left them to another server, which has raised their epochs.
type rangeOwner struct {
	mu     sync.Mutex                   // of changes
	owner  *sandbox.Ownership           // changed under mu
	epochs [sandbox.RangeCount]rangeRow // of the owned ranges, the zero value before they were claimed; guarded by mu
}

// rangeRow is the row of a range.
type rangeRow struct {
	epoch int64
	owner string
	taken int64 // when the owner has taken it, in [Nanos]
}

func (o *rangeOwner) ranges() sandbox.Ranges { return o.owner.Ranges() }

// add notes that this server owns ranges.
func (o *rangeOwner) add(r sandbox.Ranges, rows [sandbox.RangeCount]rangeRow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.owner.Set(o.ranges() | r)
	for n := range sandbox.RangeCount {
		if r.HasRange(n) {
			o.epochs[n] = rows[n]
		}
	}
}

// remove notes that this server does not own ranges any more.
func (o *rangeOwner) remove(r sandbox.Ranges) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.owner.Set(o.ranges() &^ r)
}

// passed returns the row of a range that is not as this server has written it, of rows from the database, and the row that it has written.
func (o *rangeOwner) passed(rows [sandbox.RangeCount]rangeRow) (found, written rangeRow, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n := range sandbox.RangeCount {
		if o.ranges().HasRange(n) && o.epochs[n] != (rangeRow{}) && o.epochs[n] != rows[n] {
			return rows[n], o.epochs[n], true
		}
	}
	return rangeRow{}, rangeRow{}, false
}

func (o *rangeOwner) claimed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.ranges()
	return r != 0 && o.epochs[r.First()] != rangeRow{}
}

// belong says why another server cannot have what this server has.
func (o *rangeOwner) belong() string {
	if r := o.ranges(); r != sandbox.AllRanges {
		return "the ranges " + r.Digits() + " of shards belong to one server"
	}
	return "a database belongs to one server"
}

// tryLock takes the locks of this server for a session, all or none. The key of the server is shared by owners of ranges; a server of a version
// without ranges takes it alone.
func (e *pgEngine) tryLock(ctx context.Context, conn *pgx.Conn) (got bool, err error) {
	// One after the other until a lock is missing: two servers that start together do not each get a part.
	const lockAll = `WITH RECURSIVE wanted AS (SELECT key, n FROM unnest($2::bigint[]) WITH ORDINALITY w(key, n)),
		locked(n, got) AS (
			SELECT 0::bigint, pg_try_advisory_lock_shared($1)
			UNION ALL
			SELECT w.n, pg_try_advisory_lock(w.key) FROM locked l JOIN wanted w ON w.n = l.n + 1 WHERE l.got
		) SELECT bool_and(got) FROM locked`
	if err := conn.QueryRow(ctx, lockAll, int64(serverKey), rangeKeys(e.ranges.ranges())).Scan(&got); err != nil || got {
		return got, err
	}
	_, err = conn.Exec(ctx, "SELECT pg_advisory_unlock_all()") // the session is new
	return false, err
}

// checkEpochs returns an error if another server has owned a range of this server since this server has claimed it. The session
// has the locks, so there is no other owner meanwhile.
func (e *pgEngine) checkEpochs(ctx context.Context, conn *pgx.Conn) error {
	if !e.ranges.claimed() {
		return nil
	}
	answer, err := conn.Query(ctx, "SELECT number, epoch, owner, taken_at FROM shard_ranges")
	if err != nil {
		return err
	}
	var rows [sandbox.RangeCount]rangeRow
	var n int
	var row rangeRow
	_, err = pgx.ForEachRow(answer, []any{&n, &row.epoch, &row.owner, &row.taken}, func() error {
		rows[n] = row
		return nil
	})
	if err != nil {
		return err
	}
	found, written, differs := e.ranges.passed(rows)
	switch {
	case !differs:
		return nil
	case found.epoch < written.epoch: // and whether others have used it since is not known
		return sandbox.Wrap(sandbox.Conflict, ErrTaken, "the database lacks the start of this server, of %s: it is a standby that was promoted before it had received everything, or an older copy; start again",
			time.Unix(0, written.taken).UTC().Format(time.RFC3339))
	}
	return sandbox.Wrap(sandbox.Conflict, ErrTaken, "another server has used the database: %s, from %s on; %s",
		withoutEnd(found.owner), time.Unix(0, found.taken).UTC().Format(time.RFC3339), e.ranges.belong())
}

// raiseEpochs makes a server the owner of ranges whose locks its session has, in a transaction.
func raiseEpochs(ctx context.Context, tx *sql.Tx, r sandbox.Ranges, owner string) (rows [sandbox.RangeCount]rangeRow, err error) {
	type numbered struct {
		n int
		rangeRow
	}
	raised, err := Collect(ctx, tx, func(row Scanner) (r numbered, err error) {
		err = row.Scan(&r.n, &r.epoch, &r.owner, &r.taken)
		return r, err
	}, "UPDATE shard_ranges SET epoch = epoch + 1, owner = $1, taken_at = $2, address = '', server_epoch = 0 WHERE (1::bigint << number) & $3 <> 0 RETURNING number, epoch, owner, taken_at",
		owner, Nanos(time.Now()), int64(r))
	if err == nil && len(raised) != len(rangeKeys(r)) {
		err = fmt.Errorf("the table shard_ranges has %d of %d ranges", len(raised), len(rangeKeys(r)))
	}
	for _, row := range raised {
		rows[row.n] = row.rangeRow
	}
	return rows, err
}

// claim makes this server the owner of the ranges whose locks it has taken at its start.
func (e *pgEngine) claim(ctx context.Context) error {
	conn, err := e.writer.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // returns it to the pool
	return e.claimIn(ctx, conn, e.ranges.ranges())
}

// claimIn makes this server the owner of ranges whose locks a session has. If it fails, the session must end: its transaction may be committed.
func (e *pgEngine) claimIn(ctx context.Context, conn *sql.Conn, r sandbox.Ranges) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := lockWrites(ctx, tx, e.durable); err != nil {
		return err
	}
	rows, err := raiseEpochs(ctx, tx, r, e.name)
	if err == nil {
		err = tx.Commit()
	}
	if err == nil {
		e.ranges.add(r, rows) // before another connection is made
	}
	return err
}

// Owner returns the ranges of shards that this server owns, which change; all ranges for a command beside a server.
func (d *DB) Owner() *sandbox.Ownership { return d.owner }

// Ranges returns the ranges of now.
func (d *DB) Ranges() sandbox.Ranges { return d.owner.Ranges() }

// Gain makes this server the owner of more ranges of shards, all or none. Errors: Unsupported for SQLite; Conflict, with [ErrTaken], if
// another server owns one of them; Unavailable.
func (d *DB) Gain(ctx context.Context, r sandbox.Ranges) error {
	err := d.withSession(ctx, func(e *pgEngine, conn *sql.Conn) error {
		if r &^= e.ranges.ranges(); r == 0 {
			return nil
		}
		for _, key := range rangeKeys(r) {
			var got bool
			if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", key).Scan(&got); err != nil {
				return err
			}
			if !got {
				return sandbox.Wrap(sandbox.Conflict, ErrTaken, "another server owns range %d of the shards", key-rangeKey)
			}
		}
		return e.claimIn(ctx, conn, r)
	})
	if err != nil {
		return fmt.Errorf("gain shards: %w", d.engine.explain(err))
	}
	return nil
}

// GiveUp gives ranges of shards to other servers. A write that runs ends before; later writes find in their transactions that the ranges
// are gone ([DB.Ranges]). Errors: Unsupported for SQLite; Invalid for all ranges that the server owns: then it must end; Unavailable, and the
// ranges are given up.
func (d *DB) GiveUp(ctx context.Context, r sandbox.Ranges) error {
	err := d.withSession(ctx, func(e *pgEngine, conn *sql.Conn) error {
		owned := e.ranges.ranges()
		if r &= owned; r == owned {
			return sandbox.Errorf(sandbox.Invalid, "a server that gives up all its shards must end")
		}
		e.ranges.remove(r)
		for _, key := range rangeKeys(r) {
			if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("give up shards: %w", d.engine.explain(err))
	}
	return nil
}

// withSession calls f with the session that writes, while no transaction of this server runs. After an error the session ends, and with
// it locks that f has taken; the next write has a new session, with the locks of the ranges that the server owns.
func (d *DB) withSession(ctx context.Context, f func(*pgEngine, *sql.Conn) error) error {
	e, ok := d.engine.(*pgEngine)
	if !ok || !e.serves {
		return sandbox.Errorf(sandbox.Unsupported, "the shards of this database have one owner")
	}
	conn, err := e.writer.Conn(ctx)
	if err != nil {
		return err
	}
	if err = f(e, conn); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		return err
	}
	return conn.Close() // returns it to the pool
}
