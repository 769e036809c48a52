package database

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/migrations"
)

const (
	// reconnectTime is the default of [Postgres.Patience].
	reconnectTime = 30 * time.Second
	// oldestPostgres is the oldest version that a server accepts, as server_version_num.
	oldestPostgres = 14_00_00
	// markAge is the age after which the mark of a process cannot be asked for any more.
	markAge = 24 * time.Hour
)

// Postgres names a PostgreSQL database and bounds its use.
type Postgres struct {
	URL      string // postgres://USER@HOST/DATABASE?sslmode=…
	Password string // "" for the password in URL, or none
	// MaxConnections bounds the connections of this process; at least 2.
	MaxConnections   int
	ConnectTimeout   time.Duration // of one attempt
	StatementTimeout time.Duration // of one statement
	// Reached is the state that the database had when it was used last: hosts of the URL whose database is behind it are not
	// used. Zero for any state.
	Reached installation.Identity
	// Others returns the state that any server of the installation has reached, for one of several servers on the database: it is asked
	// before each new connection is used. nil for a server that is alone.
	Others func() (installation.Identity, error)
	// Ranges are the ranges of shards that the server owns at first; none for all.
	Ranges sandbox.Ranges
	// Patience bounds the time that reads and writes wait for a database that cannot be reached, such as during its
	// restart; 0 for half a minute.
	Patience time.Duration
}

// config returns the settings of the connections of a process with a name, which need a host that validate accepts. Errors
// have no password.
func (p Postgres) config(name string, validate pgconn.ValidateConnectFunc, reads bool) (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(p.URL)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	if p.Password != "" {
		c.Password = p.Password
	}
	c.ConnectTimeout = p.ConnectTimeout
	c.ValidateConnect = validate
	for name, value := range map[string]string{
		"application_name":  name,
		"statement_timeout": strconv.FormatInt(p.StatementTimeout.Milliseconds(), 10),
		// PostgreSQL ends the session of a process that it cannot reach, and with it the locks.
		"idle_in_transaction_session_timeout": "60000",
		"tcp_keepalives_idle":                 "5", "tcp_keepalives_interval": "3", "tcp_keepalives_count": "3",
		"tcp_user_timeout": "15000", // while PostgreSQL sends, keepalives find nothing
	} {
		c.RuntimeParams[name] = value
	}
	if reads {
		c.RuntimeParams["default_transaction_read_only"] = "on"
	}
	return c, nil
}

// OpenPostgres opens a PostgreSQL database for a server, and creates or updates its tables. It waits for a
// database that cannot be reached. The database belongs to the server until Close: a
// second OpenPostgres fails. Errors, with nothing changed: Unsupported if a newer program has changed the
// database, or if PostgreSQL is too old; Conflict if another server uses it, or if no host has a database that has
// reached p.Reached; Unavailable.
func OpenPostgres(ctx context.Context, p Postgres) (*DB, error) {
	return openPostgres(ctx, p, true)
}

// OpenExistingPostgres opens the PostgreSQL database of a server that may be running. It does not change its
// tables. Errors: NotFound if no server has used the database; Unsupported if its version is not the version
// of this program; Conflict if no host has a database that has reached p.Reached; Unavailable.
func OpenExistingPostgres(ctx context.Context, p Postgres) (*DB, error) {
	return openPostgres(ctx, p, false)
}

func openPostgres(ctx context.Context, p Postgres, serves bool) (_ *DB, err error) {
	name := processName()
	patience := cmp.Or(p.Patience, reconnectTime)
	e := &pgEngine{name: name, patience: patience, taken: make(chan struct{}), serves: serves}
	d := &DB{metrics: newCommitMetrics(), engine: e, owner: sandbox.Own(cmp.Or(p.Ranges, sandbox.AllRanges)), timeout: patience, lastSequence: "SELECT last FROM sequences WHERE name = $1"}
	e.ranges.owner, d.others = d.owner, p.Others
	if p.Reached != (installation.Identity{}) {
		d.reached.Store(&p.Reached)
	}
	defer func() {
		var behind *behindError
		if errors.As(err, &behind) {
			err = lacking(behind)
		}
		if err != nil {
			_ = d.Close()
		}
	}()
	write, err := p.config(name, d.validate, false)
	if err != nil {
		return nil, err
	}
	read, err := p.config(name, d.validate, true)
	if err != nil {
		return nil, err
	}
	e.listener = read
	if !serves {
		patience = p.ConnectTimeout
	}
	writer := &pgConnector{config: write, patience: patience, host: &d.host}
	if serves {
		writer.server = e
	}
	d.writer = sql.OpenDB(writer)
	d.writer.SetMaxOpenConns(1)
	e.writer = d.writer
	d.reader = sql.OpenDB(&pgConnector{config: read, patience: patience, reads: true, answer: p.StatementTimeout + p.ConnectTimeout, host: &d.host})
	readers := max(1, p.MaxConnections-1)
	d.reader.SetMaxOpenConns(readers)
	d.reader.SetMaxIdleConns(readers)
	e.reader = d.reader
	if err := e.inspect(ctx); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := preparePostgres(ctx, write, serves, d.Ranges() == sandbox.AllRanges); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if serves {
		_, err := d.writer.ExecContext(ctx, "DELETE FROM writers WHERE begun_at < $1", Nanos(time.Now().Add(-markAge)))
		if err == nil {
			err = e.claim(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("open database: %w", err)
		}
		if d.Ranges() != sandbox.AllRanges {
			d.unfollow = d.followCommits(e)
		}
	}
	return d, nil
}

// ErrOlder is wrapped by errors which say that a database has the tables of an earlier version.
var ErrOlder = errors.New("the database has the tables of an earlier version")

// processName returns a name that no other process has, and that tells an operator which process it is.
func processName() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("modbox %.24s process %d %08x", host, os.Getpid(), uint32(time.Now().UnixNano()))
}

// preparePostgres brings the tables to the newest version, or checks that they have it. A server that is not alone does not change them.
func preparePostgres(ctx context.Context, c *pgx.ConnConfig, migrate, alone bool) (err error) {
	c = c.Copy()
	c.RuntimeParams["statement_timeout"] = "0"
	db := stdlib.OpenDB(*c)
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if !migrate {
		var tables int
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM pg_class WHERE oid = to_regclass('installation')").Scan(&tables); err != nil {
			return err
		}
		if tables == 0 {
			return sandbox.Errorf(sandbox.NotFound, "the database has no tables of Modbox: no server has used it")
		}
	}
	m, err := postgresMigrator(db)
	if err != nil {
		return err
	}
	have, want, err := m.GetVersions(ctx)
	switch {
	case err != nil:
		return err
	case have > want:
		return sandbox.Errorf(sandbox.Unsupported, "a newer modbox has used the database: it is of version %d, and this program knows versions up to %d. Start the newer program again, or restore a copy that pg_dump made before the upgrade", have, want)
	case have == want:
		return nil
	case !migrate:
		return sandbox.Wrap(sandbox.Unsupported, ErrOlder, "the database is of version %d and this program of version %d; use the program that the server runs", have, want)
	case !alone:
		return sandbox.Wrap(sandbox.Unsupported, ErrOlder, "the database is of version %d and this program of version %d, and other servers may use it; start again, which updates it when they have ended", have, want)
	}
	if _, err := m.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// postgresMigrator returns the migrations for a PostgreSQL database; closing it would close db.
func postgresMigrator(db *sql.DB) (*goose.Provider, error) {
	files, err := migrations.Postgres()
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files)
}

// pgEngine is PostgreSQL.
type pgEngine struct {
	writer   *sql.DB // one connection; a server's has the locks of the server
	reader   *sql.DB
	serves   bool          // it is of a server
	ranges   rangeOwner    // of the server
	name     string        // of this process
	patience time.Duration // with a database that cannot be reached
	// durable is the value of synchronous_commit for writes.
	durable  string
	warnings []string
	listener *pgx.ConnConfig // of connections that get notifications
	last     int64           // the mark of the last transaction; used by the leader of a batch alone
	takenErr error           // final when taken is closed
	taken    chan struct{}
}

// inspect checks the settings of the database.
func (e *pgEngine) inspect(ctx context.Context) error {
	var version int
	var encoding, fsync, pages, standbys string
	if err := e.writer.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), current_setting('fsync'),
		current_setting('full_page_writes'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names')`).
		Scan(&version, &encoding, &fsync, &pages, &e.durable, &standbys); err != nil {
		return err
	}
	if version < oldestPostgres {
		return sandbox.Errorf(sandbox.Unsupported, "PostgreSQL %d is too old; it must be %d or newer", version/10000, oldestPostgres/10000)
	}
	if encoding != "UTF8" {
		return sandbox.Errorf(sandbox.Unsupported, "the encoding of the database is %s; create it with ENCODING 'UTF8'", encoding)
	}
	if fsync != "on" || pages != "on" {
		e.warnings = append(e.warnings, fmt.Sprintf("PostgreSQL runs with fsync=%s and full_page_writes=%s: a loss of power can damage the database and undo what was answered with success; set both to on", fsync, pages))
	}
	if standbys != "" && e.durable != "on" && e.durable != "remote_apply" {
		e.warnings = append(e.warnings, fmt.Sprintf("PostgreSQL has synchronous standbys, but synchronous_commit=%s does not wait for their disks: a failover can undo what was answered with success; set it to on", e.durable))
	}
	if e.durable == "off" {
		e.durable = "on" // for our writes; the setting of other users stays
	}
	return nil
}

// Keys of advisory locks, which PostgreSQL keeps for each database.
const (
	serverKey = 0x6d6f64626f780001 // "modbox", 1
	writeKey  = 0x6d6f64626f780002
)

func (e *pgEngine) begin(ctx context.Context, lazy bool) (*transaction, error) {
	tx, err := e.writer.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	t := &transaction{tx: tx, end: func() { _ = tx.Rollback() }} // does nothing after a commit
	synchronous := e.durable
	if lazy {
		synchronous = "off"
	}
	e.last++
	t.id = strconv.FormatInt(e.last, 10)
	// The next statement sees what the transactions before have committed.
	if e.ranges.ranges() == sandbox.AllRanges {
		err = lockWrites(ctx, tx, synchronous)
	} else {
		err = lockWritesAndTell(ctx, tx, synchronous, e.name)
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `INSERT INTO writers (name, mark, begun_at) VALUES ($1, $2, $3)
			ON CONFLICT (name) DO UPDATE SET mark = excluded.mark, begun_at = excluded.begun_at`, e.name, e.last, Nanos(time.Now()))
	}
	if err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

// lockWrites waits for the other transactions that write, and sets how this one waits for the disks.
func lockWrites(ctx context.Context, tx *sql.Tx, synchronous string) error {
	_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1), set_config('synchronous_commit', $2, true)", int64(writeKey), synchronous)
	return err
}

func (e *pgEngine) persist(ctx context.Context, f func() error) error {
	var last error
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		if last = f(); last == nil || e.passing(last) {
			return struct{}{}, last
		}
		return struct{}{}, backoff.Permanent(last)
	}, retry.Pauses(10*time.Millisecond, time.Second), backoff.WithMaxElapsedTime(e.patience))
	return last
}

func (e *pgEngine) passing(err error) bool {
	return isLost(err) || hasState(err, "40001", "40P01") // serialization failure, deadlock
}

func (e *pgEngine) committed(ctx context.Context, id string, failed error) error {
	if !isLost(failed) {
		return failed
	}
	// The context of the transaction may have ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.patience)
	defer cancel()
	mark, err := backoff.Retry(ctx, func() (string, error) {
		mark, err := e.lastMark(ctx)
		if err != nil && !e.passing(err) && sandbox.CodeOf(err) != sandbox.Unavailable {
			err = backoff.Permanent(err)
		}
		return mark, err
	}, retry.Pauses(10*time.Millisecond, time.Second), backoff.WithMaxElapsedTime(e.patience))
	switch {
	case err == nil && mark == id:
		return nil
	case err == nil || errors.Is(err, sql.ErrNoRows):
		return &lostError{failed}
	}
	// Without its cause, which would be an error that passes: the transaction must not run again.
	unknown := sandbox.Wrap(sandbox.Unavailable, errors.New(errors.Join(failed, err).Error()), "the connection to the database was lost during a commit, and it is not known whether the change is there")
	unknown.RetryAfter = awayRetry
	return unknown
}

// lastMark returns the mark of the last transaction of this process that is committed. Its own commit waits for the disks,
// so that transaction is on them.
func (e *pgEngine) lastMark(ctx context.Context) (mark string, err error) {
	tx, err := e.writer.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	// With this lock, the transaction is not running any more.
	if err := lockWrites(ctx, tx, e.durable); err != nil {
		return "", err
	}
	if err := tx.QueryRowContext(ctx, "UPDATE writers SET mark = mark WHERE name = $1 RETURNING CAST(mark AS TEXT)", e.name).Scan(&mark); err != nil {
		return "", err
	}
	return mark, tx.Commit()
}

func (e *pgEngine) explain(err error) error {
	var known *sandbox.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case isLost(err):
		return unavailable(err, connectionLost)
	case hasState(err, "53100"):
		return sandbox.Wrap(sandbox.Unavailable, errors.Join(sandbox.ErrNoSpace, err), "the disk of the database is full; ask an administrator")
	}
	return coded(err)
}

func (e *pgEngine) isFull(error) bool { return false } // its disk is not ours

func (e *pgEngine) reserveLog() error { return nil }

func (e *pgEngine) copyTo(context.Context, string) error {
	return sandbox.Errorf(sandbox.Unsupported, "the database is PostgreSQL, which pg_dump copies; docs/operate/postgresql.md describes backups")
}

func (e *pgEngine) vacuum(ctx context.Context, tables []string) (err error) {
	conn, err := e.writer.Conn(ctx)
	if err != nil {
		return fmt.Errorf("take clear text out of the database: %w", err)
	}
	defer func() { _ = conn.Close() }() // returns it to the pool
	for _, statement := range []string{"SET statement_timeout = 0", "VACUUM (FULL) " + strings.Join(tables, ", "), "RESET statement_timeout"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // a new connection has the timeout
			return fmt.Errorf("take clear text out of the database: %w", err)
		}
	}
	return nil
}

func (e *pgEngine) bytes() (n int64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = e.reader.QueryRowContext(ctx, "SELECT pg_database_size(current_database())").Scan(&n) // 0 when it cannot be reached
	return n
}
