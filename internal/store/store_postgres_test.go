package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/store/storetest"
)

// serverKey is the lock of servers of the package database.
const serverKey = 0x6d6f64626f780001

func needPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
}

// On both engines, creates at the same time never exceed the quota in sum, also from two processes.
func TestConcurrentCreatesHoldTheQuota(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modbox.db")
	stores := []*store.Store{reopen(t, path), reopen(t, path)}
	ws, _, err := stores[0].Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const most, attempts = 10, 60
	var made, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range attempts {
		wg.Go(func() {
			_, err := stores[i%2].Sandboxes.CreateSandbox(t.Context(), creation(ws, fmt.Sprint("s", i)), quota.Admission{Limits: quota.Limits{quota.LimitSandboxes: most}})
			switch {
			case err == nil:
				made.Add(1)
			case sandbox.CodeOf(err) == sandbox.QuotaExceeded:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if use, err := stores[0].Quotas.QuotaUse(t.Context(), ws); err != nil || made.Load() != most || use.Sandboxes != most || refused.Load() != attempts-most {
		t.Errorf("%d were made and %d refused, and %d are in the database, %v; want %d of %d", made.Load(), refused.Load(), use.Sandboxes, err, most, attempts)
	}
}

func TestPostgresBelongsToOneServer(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	first, err := store.OpenAt(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenAt(t.Context(), at); sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "another server uses the database: modbox ") || !strings.Contains(err.Error(), "process ") {
		t.Errorf("a second server: %v, want an error that names the first", err)
	}
	beside, err := store.OpenExistingAt(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	db := sqlOf(t, at)
	// Its session ends: the server takes the lock again, and its writes go on.
	end := "SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) sessions"
	var ended int
	if err := db.QueryRowContext(t.Context(), end).Scan(&ended); err != nil || ended != 1 {
		t.Fatalf("ended %d sessions, %v, want 1", ended, err)
	}
	if _, _, err := first.Workspaces.EnsureDefaults(t.Context()); err != nil {
		t.Errorf("a write after its session ended: %v", err)
	}
	if err := first.Confirm(t.Context()); err != nil {
		t.Errorf("Confirm() = %v although no other server has the database", err)
	}
	if _, _, err := beside.Workspaces.EnsureDefaults(t.Context()); err != nil {
		t.Errorf("a write of a command beside the server: %v", err)
	}
	// Another server takes the lock when the session ends: the first never writes again.
	other, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	locked := make(chan error, 1)
	go func() {
		_, err := other.ExecContext(t.Context(), "SELECT pg_advisory_lock($1)", int64(serverKey))
		locked <- err
	}()
	for waits := 0; waits == 0; { // for the lock
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.QueryRowContext(t.Context(), end).Scan(&ended); err != nil {
		t.Fatal(err)
	}
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	if _, _, err := first.Workspaces.EnsureDefaults(t.Context()); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("a write without the lock: %v, want code conflict", err)
	}
	if err := first.Confirm(t.Context()); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("Confirm() = %v without the lock, want code conflict", err)
	}
	select {
	case <-first.Taken():
		if err := first.TakenBy(); sandbox.CodeOf(err) != sandbox.Conflict {
			t.Errorf("taken by %v", err)
		}
	default:
		t.Error("the server does not know that another has its database")
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
}

func sqlOf(t *testing.T, at store.Location) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", at.Postgres.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// cutter passes connections on to a PostgreSQL server, and cuts them at a commit.
type cutter struct {
	cut  atomic.Int64 // 0: never; 1: when the server has committed, before its answer; 2: before the server sees it
	cuts atomic.Int64
	// lookups is the number of connections to cut that ask for the mark of a lost transaction.
	lookups atomic.Int64
	reads   atomic.Int64 // the number of connections to cut that count words
}

func (c *cutter) serve(l net.Listener, socket string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", socket)
		if err != nil {
			_ = client.Close()
			continue
		}
		go c.forward(client, server)
	}
}

func (c *cutter) forward(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	var silent atomic.Bool // the answer to a commit does not arrive
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := server.Read(buf)
			if err != nil || silent.Load() {
				_ = client.Close()
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if bytes.Contains(buf[:n], []byte("CAST(mark AS TEXT)")) && c.lookups.Add(-1) >= 0 {
			return
		}
		if bytes.Contains(buf[:n], []byte("count(DISTINCT word)")) && c.reads.Add(-1) >= 0 {
			return
		}
		if bytes.Contains(buf[:n], []byte("Q\x00\x00\x00\x0bcommit\x00")) {
			switch c.cut.Swap(0) {
			case 1:
				c.cuts.Add(1)
				silent.Store(true)
			case 2:
				c.cuts.Add(1)
				return
			}
		}
		if _, err := io.Copy(server, bytes.NewReader(buf[:n])); err != nil {
			return
		}
	}
}

// A write whose connection is lost at its commit has happened exactly once.
func TestCommitsOfLostConnections(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	u, err := url.Parse(at.Postgres.URL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	socket, dir := filepath.Join(q.Get("host"), ".s.PGSQL.5432"), t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var c cutter
	go c.serve(l, socket)
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	at.Postgres.URL = u.String()
	s, err := store.OpenAt(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE words (word TEXT NOT NULL)")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for i, cut := range []int64{1, 2, 1, 2, 0} {
		c.lookups.Store(int64(i)) // of the new connections
		c.cut.Store(cut)
		if err := s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO words VALUES ($1)", fmt.Sprint("word ", i))
			return err
		}); err != nil {
			t.Errorf("write %d: %v", i, err)
		}
		if n := c.lookups.Load(); cut != 0 && n != -1 {
			t.Errorf("write %d: %d connections to cut remain, want that the server asked once more", i, n+1)
		}
	}
	c.reads.Store(8) // a read goes on however many connections are lost
	var all, different int
	if err := s.Reader().QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT word) FROM words").Scan(&all, &different); err != nil || all != 5 || different != 5 || c.cuts.Load() != 4 {
		t.Errorf("after %d cuts there are %d words, %d of them different, %v; want 5 of 4 cuts", c.cuts.Load(), all, different, err)
	}
}

// Reads and writes wait for a database that restarts, or that crashed, and what was answered with success stays.
func TestRestartsOfPostgres(t *testing.T) {
	needPostgres(t)
	cluster := storetest.StartCluster(t)
	at := store.Location{Postgres: database.Postgres{URL: cluster.URL("postgres"), MaxConnections: 5, ConnectTimeout: 5 * time.Second, StatementTimeout: 20 * time.Second}}
	s, err := store.OpenAt(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if w := s.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %q", w)
	}
	ws, _, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var made sync.Map
	var reads atomic.Int64
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				c := creation(ws, fmt.Sprintf("s%d-%d", w, i))
				c.Sandbox.Env = nil
				if _, err := s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{}); err != nil {
					t.Errorf("a create: %v", err)
					return
				}
				made.Store(c.Sandbox.ID, true)
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Sandboxes.SandboxByName(t.Context(), ws, "none"); sandbox.CodeOf(err) != sandbox.NotFound {
					t.Errorf("a read: %v", err)
					return
				}
				reads.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	for _, mode := range []string{"fast", "immediate", "fast", "immediate"} {
		time.Sleep(300 * time.Millisecond)
		cluster.Stop(mode)
		time.Sleep(100 * time.Millisecond)
		cluster.Start()
	}
	time.Sleep(300 * time.Millisecond)
	stop()
	wg.Wait()
	list, err := s.Sandboxes.LiveSandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	made.Range(func(any, any) bool { n++; return true })
	for _, sb := range list {
		made.Delete(sb.ID)
	}
	made.Range(func(id, _ any) bool { t.Errorf("sandbox %v was recorded and is lost", id); return true })
	if len(list) != n || n == 0 {
		t.Errorf("%d creates succeeded, and the database has %d sandboxes", n, len(list))
	}
	t.Logf("%d creates and %d reads during 4 restarts", n, reads.Load())
}

func TestErrorsOfPostgres(t *testing.T) {
	needPostgres(t)
	s, ws := openStore(t)
	c := creation(ws, "nul")
	c.Sandbox.Description = "a\x00b"
	if _, err := s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{}); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a text with NUL: %v, want code invalid", err)
	}
	if _, err := s.Sandboxes.SandboxByName(t.Context(), ws, "a\x00b"); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a read with NUL: %v, want code invalid", err)
	}
	for _, u := range []string{"postgres://u:hunter2@127.0.0.1:1/d", "postgres://u:hunter2@127.0.0.1:port/d", "postgres://u:hunter2@/d?host=/nowhere&sslmode=odd"} {
		p := database.Postgres{URL: u, Password: "hunter3", MaxConnections: 2, ConnectTimeout: time.Second}
		_, err := database.OpenExistingPostgres(t.Context(), p)
		if err == nil || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v, want an error without the password", u, err)
		}
	}
	for _, c := range []struct {
		write func(context.Context, func(context.Context, *sql.Tx) error) error
		want  string
	}{{s.Write, "on"}, {s.Note, "off"}, {s.Write, "on"}} {
		var got string
		if err := c.write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, "SHOW synchronous_commit").Scan(&got)
		}); err != nil || got != c.want {
			t.Errorf("synchronous_commit is %q, %v, want %s", got, err, c.want)
		}
	}
	if err := s.CopyTo(t.Context(), filepath.Join(t.TempDir(), "copy")); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("CopyTo: %v, want code unsupported", err)
	}
	if err := errors.Join(s.ReserveLog(), s.Vacuum(t.Context(), "sandboxes"), s.Check(t.Context())); err != nil {
		t.Error(err)
	}
}
