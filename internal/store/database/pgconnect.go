package database

import (
	"context"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

// pgConnector makes connections, and waits for a database that cannot be reached.
type pgConnector struct {
	config   *pgx.ConnConfig
	patience time.Duration
	reads    bool          // the connections are for reads alone
	answer   time.Duration // bounds a read, if the database does not bound it because it does not answer
	server   *pgEngine     // whose lock each new connection takes; nil for none
	// connected is whether there was a connection: before, a host that refuses for good ends the start, and the others may be
	// addresses of the same name.
	connected atomic.Bool
	outage    outage
	host      *writerHost // of the connections for reads and for writes together
}

// writerHost notes that the host of writes may have changed.
type writerHost struct {
	connected atomic.Bool  // there is a new connection for writes, which has committed nothing yet
	changes   atomic.Int64 // the connections for writes that have committed something
}

// committed notes that a transaction is on the disk. A former primary is behind from then on, and no new connection is to it.
func (h *writerHost) committed() {
	if h.connected.Swap(false) {
		h.changes.Add(1)
	}
}

// Driver implements [driver.Connector].
func (c *pgConnector) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

// Connect implements [driver.Connector]. Once the database has been away for longer than the patience of the connector, it
// waits no more. Errors: Conflict if another server uses the database, or if it lacks what this server has recorded; Unavailable.
func (c *pgConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.outage.refuses(c.patience); err != nil {
		return nil, c.away(err)
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	var conn *pgConn
	var last error
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		begin := time.Now()
		var err error
		if conn, err = c.connect(ctx); err == nil {
			c.connected.Store(true)
			c.outage.end()
			return struct{}{}, nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if caller.Err() == nil {
			c.outage.failed(begin, last)
		}
		if sandbox.CodeOf(err) == sandbox.Conflict || c.refused(err) || c.outage.lasts(c.patience) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, retry.Pauses(50*time.Millisecond, time.Second), retry.Forever())
	var behind *behindError
	switch {
	case conn != nil:
		return conn, nil
	case sandbox.CodeOf(last) == sandbox.Conflict:
		return nil, last
	case c.server != nil && errors.As(last, &behind) && c.outage.lasts(c.patience): // no other host came back
		err := lacking(behind)
		c.server.giveUp(err)
		return nil, err
	case last == nil:
		last = ctx.Err()
	}
	return nil, c.away(last)
}

// connect attempts a connection once.
func (c *pgConnector) connect(ctx context.Context) (*pgConn, error) {
	changes := c.host.changes.Load()
	opened, err := stdlib.GetConnector(*c.config).Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, ok := opened.(*stdlib.Conn)
	if !ok {
		return nil, errors.Join(errors.New("the driver of PostgreSQL lacks a method that the pool needs"), opened.Close())
	}
	if c.server != nil {
		if err := c.server.lock(ctx, inner.Conn()); err != nil {
			_ = inner.Close()
			return nil, err
		}
	}
	if !c.reads {
		c.host.connected.Store(true)
	}
	return &pgConn{Conn: inner, connector: c, reads: c.reads, changes: changes}, nil
}

// awayRetry is the Retry-After of requests that fail because the database cannot be used.
const awayRetry = 2 * time.Second

// away returns the error of a database to which there is no connection.
func (c *pgConnector) away(err error) error {
	if advice := c.adviceOn(err); advice != "" {
		err = fmt.Errorf("%w; %s", err, advice)
	}
	return unavailable(err, "the database cannot be used at this moment")
}

func unavailable(err error, text string) error {
	e := sandbox.Wrap(sandbox.Unavailable, err, "%s; try again", text)
	e.RetryAfter = awayRetry
	return e
}

// outage is a time in which a database cannot be reached.
type outage struct {
	begun atomic.Bool // whether since is set
	mu    sync.Mutex
	since time.Time // guarded by mu
	tried time.Time // the end of the last attempt to connect; zero for none; guarded by mu
	err   error     // of that attempt; guarded by mu
}

// probePause is the time between two attempts to connect in a long outage.
const probePause = time.Second

// begin notes that the database has not answered since a time.
func (o *outage) begin(since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.begun.Swap(true) {
		o.since = since
	}
}

// failed notes a failed attempt to connect that began at a time.
func (o *outage) failed(begin time.Time, err error) {
	o.begin(begin)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tried, o.err = time.Now(), err
}

// end notes that the database answers.
func (o *outage) end() {
	if !o.begun.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun.Store(false)
	o.since, o.tried, o.err = time.Time{}, time.Time{}, nil
}

// lasts reports whether the outage has lasted for d.
func (o *outage) lasts(d time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.begun.Load() && time.Since(o.since) >= d
}

// refuses returns the error of the last attempt to connect if the outage has lasted for d and the attempt is recent: of many
// requests at the same time a few attempt to connect, and the others do not wait for them.
func (o *outage) refuses(d time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.begun.Load() || time.Since(o.since) < d || time.Since(o.tried) >= probePause {
		return nil
	}
	return o.err
}

// behindError says that a database lacks changes that the server has recorded and answered with success.
type behindError struct {
	installation.Identity
	reached installation.Identity
}

func (e *behindError) Error() string {
	state := fmt.Sprintf("of installation %s and generation %d", e.ID, e.Generation)
	if e.ID == "" {
		state = "without tables of Modbox"
	}
	return fmt.Sprintf("the database is %s, and this server has recorded generation %d of installation %s: it is a standby that was promoted before it had received everything, a former primary, or another database. "+
		"Make the database that has everything the only primary of database.url and start again; or, to go on with this one, start once with `modbox server --accept-database` (docs/operate/postgresql.md)",
		state, e.reached.Generation, e.reached.ID)
}

// lacking returns the error of databases that are all behind.
func lacking(behind *behindError) error {
	return sandbox.Wrap(sandbox.Conflict, behind, "the database lacks what this server has recorded in it")
}

// validate refuses a host that is no primary, and a primary that lacks what the server has recorded: then pgx tries the next host.
func (d *DB) validate(ctx context.Context, conn *pgconn.PgConn) error {
	if err := pgconn.ValidateConnectTargetSessionAttrsPrimary(ctx, conn); err != nil {
		return err
	}
	reached, err := d.mustHave()
	if reached == nil || err != nil {
		return err
	}
	found := &behindError{reached: *reached}
	answers, err := conn.Exec(ctx, "SELECT id, generation FROM installation").ReadAll()
	switch {
	case hasState(err, "42P01"): // there is no such table
		return found
	case err != nil:
		return err
	case len(answers) == 1 && len(answers[0].Rows) == 1:
		row := answers[0].Rows[0]
		found.ID = string(row[0])
		if _, err := fmt.Sscan(string(row[1]), &found.Generation); err != nil {
			return err
		}
	}
	if found.ID != reached.ID || found.Generation < reached.Generation {
		return found
	}
	return nil
}

// mustHave returns the state that a database must have; nil for any. It is asked before the database is, which other servers change.
func (d *DB) mustHave() (*installation.Identity, error) {
	reached := d.reached.Load()
	if d.others == nil {
		return reached, nil
	}
	others, err := d.others()
	if err != nil {
		return nil, err
	}
	if others.ID != "" && (reached == nil || others.ID == reached.ID && others.Generation > reached.Generation) {
		reached = &others
	}
	return reached, nil
}

// refused reports whether it is of no use to connect again: all hosts refuse, or at the start one. At the start a database that
// is behind counts as a refusal, if no other host can become a better one.
func (c *pgConnector) refused(err error) bool {
	starts := !c.connected.Load()
	if starts && c.adviceOn(err) != "" {
		return true
	}
	hosts := []error{err}
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		hosts = several.Unwrap()
	}
	return !slices.ContainsFunc(hosts, func(err error) bool {
		var behind *behindError
		return c.adviceOn(err) == "" && !(starts && errors.As(err, &behind))
	})
}

// adviceOn returns what an operator can do about a failed attempt to connect that fails the next time as well; "" for others.
func (c *pgConnector) adviceOn(err error) string {
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return ""
	case hasState(err, "28P01"):
		return "the password is wrong or missing: set database.password_file or the variable MODBOX_DATABASE_PASSWORD"
	case hasState(err, "28000"):
		return "PostgreSQL does not let this user in: look at its pg_hba.conf; if it demands a certificate of the client, add sslcert and sslkey to database.url"
	case hasState(err, "3D000"):
		return "create the database, or correct its name in database.url"
	case hasState(err, "42501"):
		return "let the user connect: GRANT CONNECT ON DATABASE"
	case errors.As(err, &name):
		return "the certificate of PostgreSQL is for other host names: use a name that is in the certificate in database.url, or give PostgreSQL a certificate with this name"
	case errors.As(err, &authority):
		return "this machine does not trust the authority of PostgreSQL's certificate: name the file with the authority's certificate in database.url, as sslrootcert"
	case errors.As(err, &invalid):
		return "renew the certificate of PostgreSQL"
	case c.needsTLS() && strings.Contains(err.Error(), "server refused TLS connection"):
		return "PostgreSQL does not offer TLS: set ssl = on there, with a certificate; or, if nobody else can reach the network in between, set sslmode=disable in database.url"
	}
	return ""
}

// needsTLS reports whether no attempt to connect is without TLS.
func (c *pgConnector) needsTLS() bool {
	return c.config.TLSConfig != nil && !slices.ContainsFunc(c.config.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.TLSConfig == nil })
}
