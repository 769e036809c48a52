package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/store/storetest"
)

// soon is the patience where requests must fail: a loaded machine answers within half of it.
const soon = 10 * time.Second

// on returns the location of a database on any of several servers, whichever is the primary.
func on(patience time.Duration, clusters ...*storetest.Cluster) store.Location {
	var dirs []string
	for _, c := range clusters {
		dirs = append(dirs, c.Dir)
	}
	return store.Location{Postgres: database.Postgres{
		URL:            "postgres://modbox@/postgres?target_session_attrs=read-write&host=" + strings.Join(dirs, ","),
		MaxConnections: 5, ConnectTimeout: patience / 2, StatementTimeout: patience / 2, Patience: patience,
	}}
}

// direct returns the database of a server, also of a standby.
func direct(t *testing.T, c *storetest.Cluster) *sql.DB {
	t.Helper()
	return sqlOf(t, store.Location{Postgres: database.Postgres{URL: c.URL("postgres")}})
}

// recorder makes sandboxes, and keeps which were answered with success.
type recorder struct {
	*testing.T
	*store.Store
	ws    sandbox.WorkspaceID
	n     atomic.Int64
	made  sync.Map
	tasks sync.WaitGroup
}

func record(t *testing.T, at store.Location) *recorder {
	t.Helper()
	s, err := store.OpenAt(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // its database may be away
	r := &recorder{T: t, Store: s}
	if r.ws, _, err = s.Workspaces.EnsureDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *recorder) create() error {
	r.n.Add(1)
	c := creation(r.ws, string(sandbox.NewID()))
	c.Sandbox.Env = nil
	_, err := r.Sandboxes.CreateSandbox(r.Context(), c, quota.Admission{})
	if err == nil {
		r.made.Store(c.Sandbox.ID, true)
	}
	return err
}

func (r *recorder) read() error {
	if _, err := r.Sandboxes.SandboxByName(r.Context(), r.ws, "none"); sandbox.CodeOf(err) != sandbox.NotFound {
		return fmt.Errorf("a read: %w", err)
	}
	return nil
}

// each runs writes and reads at the same time, more than there are connections, and checks the result of each.
func (r *recorder) each(check func(error)) {
	for range 12 {
		r.tasks.Go(func() { check(r.create()) })
		r.tasks.Go(func() { check(r.read()) })
		r.tasks.Go(func() { check(r.read()) })
	}
}

func (r *recorder) works(err error) {
	if err != nil {
		r.Errorf("it does not go on: %v", err)
	}
}

// unavailable checks the error of a request while the database does not answer.
func (r *recorder) unavailable(err error) {
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != sandbox.Unavailable || e.RetryAfter == 0 {
		r.Errorf("%v, want code unavailable and a time to wait", err)
	}
}

// eventually repeats f until it works.
func (r *recorder) eventually(f func() error) {
	r.Helper()
	deadline := time.Now().Add(time.Minute)
	for err := f(); err != nil; err = f() {
		if time.Now().After(deadline) {
			r.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// check checks that the database has everything that was answered with success.
func (r *recorder) check() {
	r.Helper()
	list, err := r.Sandboxes.LiveSandboxes(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	found := map[sandbox.ID]bool{}
	for _, sb := range list {
		found[sb.ID] = true
	}
	n := 0
	r.made.Range(func(id, _ any) bool {
		if n++; !found[id.(sandbox.ID)] {
			r.Errorf("sandbox %v was recorded and is lost", id)
		}
		return true
	})
	if n == 0 {
		r.Error("no create succeeded")
	}
}

// While PostgreSQL does not answer, requests wait; after the time that they wait they fail with code unavailable, however many there
// are; and all goes on when it answers again.
func TestSilentPostgres(t *testing.T) {
	needPostgres(t)
	cluster := storetest.StartCluster(t)
	r := record(t, on(time.Minute, cluster))
	r.each(r.works)
	r.tasks.Wait()

	cluster.Signal(syscall.SIGSTOP)
	r.each(r.works)
	time.Sleep(500 * time.Millisecond)
	cluster.Signal(syscall.SIGCONT)
	r.tasks.Wait()
	r.check()
	if err := r.Close(); err != nil {
		t.Error(err)
	}

	r = record(t, on(soon, cluster))
	r.each(r.works)
	r.tasks.Wait()
	before := runtime.NumGoroutine()
	cluster.Signal(syscall.SIGSTOP)
	r.each(r.unavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	if err := r.Check(ctx); err == nil {
		t.Error("the database counts as healthy")
	}
	cancel()
	r.tasks.Wait()
	r.each(r.unavailable) // in a long outage
	r.tasks.Wait()
	if n := r.Reader().Stats().MaxOpenConnections; n != 4 || r.Reader().Stats().OpenConnections > n {
		t.Errorf("the pool of reads has %d connections, and may have %d, want 4", r.Reader().Stats().OpenConnections, n)
	}
	cluster.Signal(syscall.SIGCONT)
	r.eventually(func() error {
		var mu sync.Mutex
		errs := []error{r.Check(t.Context())}
		r.each(func(err error) {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
		r.tasks.Wait()
		return errors.Join(errs...)
	})
	r.check()
	r.eventually(func() error { // pgx ends lost connections in the background
		if n := runtime.NumGoroutine(); n > before+2*5 { // a connection has at most two
			return fmt.Errorf("%d goroutines, before %d", n, before)
		}
		return nil
	})
	r.eventually(func() error {
		var n int
		err := direct(t, cluster).QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'modbox %'").Scan(&n)
		if err == nil && n > 5 {
			err = fmt.Errorf("PostgreSQL has %d sessions, want at most 5", n)
		}
		return err
	})
}

// After the crash of the primary the server goes on with the promoted standby, and a former primary that runs again gets nothing.
func TestFailover(t *testing.T) {
	needPostgres(t)
	primary := storetest.StartCluster(t)
	standby := primary.Standby()
	synchronous(t, primary, "*")
	r := record(t, on(time.Minute, primary, standby))
	ctx, stop := context.WithCancel(t.Context())
	var reads atomic.Int64
	for range 3 {
		r.tasks.Go(func() {
			for ctx.Err() == nil {
				r.works(r.create())
			}
		})
		r.tasks.Go(func() {
			for ctx.Err() == nil {
				r.works(r.read())
				reads.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	primary.Signal(syscall.SIGKILL)
	crashed := r.n.Load()
	standby.Promote()
	r.eventually(func() error {
		if n := r.n.Load(); n < crashed+20 {
			return fmt.Errorf("%d creates began after the crash", n-crashed)
		}
		return nil
	})
	stop()
	r.tasks.Wait()
	r.check()
	t.Logf("%d creates, %d of them before the crash, and %d reads", r.n.Load(), crashed, reads.Load())

	primary.Start()
	synchronous(t, primary, "")
	if _, err := direct(t, standby).ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'modbox %'"); err != nil {
		t.Fatal(err)
	}
	r.each(r.works)
	r.tasks.Wait()
	r.check()
	at := direct(t, primary)
	r.eventually(func() error { // a connection that was refused for what the host lacks ends at some time
		var sessions int
		err := at.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'modbox %'").Scan(&sessions)
		if err == nil && sessions > 0 {
			err = fmt.Errorf("the former primary has %d sessions of the server", sessions)
		}
		return err
	})
}

// When writes go to another host, reads do not stay at the former primary, which still runs.
func TestReadsFollowWrites(t *testing.T) {
	needPostgres(t)
	primary := storetest.StartCluster(t)
	standby := primary.Standby()
	r := record(t, on(time.Minute, standby, primary))
	r.each(r.works)
	r.tasks.Wait()
	r.check()
	const generation = "SELECT generation FROM installation"
	var want int64
	if err := direct(t, primary).QueryRowContext(t.Context(), generation).Scan(&want); err != nil {
		t.Fatal(err)
	}
	r.eventually(func() error {
		var have int64
		err := direct(t, standby).QueryRowContext(t.Context(), generation).Scan(&have)
		if err == nil && have < want {
			err = fmt.Errorf("the standby has generation %d, want %d", have, want)
		}
		return err
	})
	standby.Promote()
	var ended int
	if err := direct(t, primary).QueryRowContext(t.Context(), "SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted) sessions").Scan(&ended); err != nil || ended != 1 {
		t.Fatalf("%d connections for writes ended, %v, want 1", ended, err)
	}
	for range 8 {
		r.works(r.create())
		r.check()
	}
	var made int
	if err := direct(t, primary).QueryRowContext(t.Context(), "SELECT count(*) FROM sandboxes").Scan(&made); err != nil || made != 12 {
		t.Fatalf("the former primary has %d sandboxes, %v, want the 12 of before", made, err)
	}
}

// synchronous sets which standbys the commits of a primary wait for.
func synchronous(t *testing.T, primary *storetest.Cluster, standbys string) {
	t.Helper()
	db := direct(t, primary)
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '" + standbys + "'", "SELECT pg_reload_conf()"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for have := "?"; have != standbys; {
		if err := db.QueryRowContext(t.Context(), "SHOW synchronous_standby_names").Scan(&have); err != nil {
			t.Fatal(err)
		}
	}
}

// A server does not go on with a promoted standby that lacks what it has recorded.
func TestFailoverToAnOlderStandby(t *testing.T) {
	needPostgres(t)
	primary := storetest.StartCluster(t)
	standby := primary.Standby()
	r := record(t, on(soon, primary, standby))
	r.works(r.create())
	r.eventually(func() error { // the standby has the tables
		_, err := direct(t, standby).ExecContext(t.Context(), "SELECT generation FROM installation")
		return err
	})
	standby.Stop("fast")
	r.works(r.create())
	primary.Signal(syscall.SIGKILL)
	standby.Start()
	standby.Promote()
	if err := r.read(); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("a read: %v, want code unavailable", err)
	}
	r.eventually(func() error {
		err := r.create()
		if err == nil {
			t.Fatal("a create is recorded in an older database")
		}
		if sandbox.CodeOf(err) == sandbox.Unavailable { // for as long as another host may come back
			return err
		}
		return nil
	})
	<-r.Taken()
	if err := r.TakenBy(); sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "standby") || !strings.Contains(err.Error(), "--accept-database") {
		t.Errorf("the server ends with %v, want what happened and what to do", err)
	}
}

// A server does not go on with a promoted standby that lacks what another server has recorded beside it.
func TestFailoverToAStandbyWithoutTheOthers(t *testing.T) {
	needPostgres(t)
	primary := storetest.StartCluster(t)
	standby := primary.Standby()
	at := on(soon, primary, standby)
	var reached atomic.Pointer[installation.Identity]
	reached.Store(&installation.Identity{})
	at.Postgres.Others = func() (installation.Identity, error) { return *reached.Load(), nil }
	first, err := owner(t, at, sandbox.AllRanges) // it makes the tables
	if err != nil {
		t.Fatal(err)
	}
	if err := first.GiveUp(t.Context(), upperHalf); err != nil {
		t.Fatal(err)
	}
	second, err := owner(t, at, upperHalf)
	if err != nil {
		t.Fatal(err)
	}
	db := makeWords(t, on(soon, primary))
	r := &recorder{T: t, Store: first}
	r.works(insertWord(t.Context(), first, "first"))
	r.eventually(func() error { // the standby has what the first has recorded
		var n int
		err := direct(t, standby).QueryRowContext(t.Context(), "SELECT count(*) FROM words").Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("the standby has no word")
		}
		return err
	})
	standby.Stop("fast")
	r.works(insertWord(t.Context(), second, "second"))
	id, err := second.Advance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reached.Store(&id)
	_ = db.Close()
	primary.Signal(syscall.SIGKILL)
	standby.Start()
	standby.Promote()
	r.eventually(func() error {
		err := insertWord(t.Context(), first, "late")
		if err == nil {
			t.Fatal("a write is recorded in a database that lacks the other server's")
		}
		if sandbox.CodeOf(err) == sandbox.Unavailable { // for as long as another host may come back
			return err
		}
		return nil
	})
	<-first.Taken()
	if err := first.TakenBy(); sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "--accept-database") {
		t.Errorf("the server ends with %v, want what happened and what to do", err)
	}
}

// A change is not answered with success before the synchronous standby has it.
func TestWritesWaitForTheStandby(t *testing.T) {
	needPostgres(t)
	primary := storetest.StartCluster(t)
	standby := primary.Standby()
	synchronous(t, primary, "*")
	r := record(t, on(soon, primary, standby))
	r.works(r.create())
	standby.Signal(syscall.SIGSTOP)
	r.unavailable(r.create())
	standby.Signal(syscall.SIGCONT)
	r.eventually(r.create)
	r.check()
	if _, err := direct(t, primary).ExecContext(t.Context(), "ALTER DATABASE postgres SET synchronous_commit = remote_write"); err != nil {
		t.Fatal(err)
	}
	beside, err := store.OpenExistingAt(t.Context(), on(time.Minute, primary))
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	if w := beside.Warnings(); len(w) != 1 || !strings.Contains(w[0], "synchronous_commit=remote_write") {
		t.Errorf("warnings: %q", w)
	}
}
