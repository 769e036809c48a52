package server

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/store/migrations"
	"github.com/modbox/modbox/internal/store/storetest"
)

// newPart returns a server that works on one of n parts of the sandboxes, and is not running yet.
func newPart(t *testing.T, n, name, stateDir, databaseURL string) *replica {
	t.Helper()
	r := newReplica(t, name, stateDir, databaseURL)
	r.environ = append(r.environ, "MODBOX_REPLICA_ACTIVE="+n)
	return r
}

// ranges returns the digits of the ranges that GET /readyz of an active server says; "" for none.
func (r *replica) ranges() string {
	resp, err := http.Get(r.url + "/readyz")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var answer struct {
		ShardRanges string `json:"shard_ranges"`
	}
	if json.NewDecoder(resp.Body).Decode(&answer) != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return answer.ShardRanges
}

// worksOn waits until the server is active with ranges.
func (r *replica) worksOn(digits string) {
	r.t.Helper()
	r.until("it works on "+digits, func() bool { return r.ranges() == digits })
}

// create makes a sandbox, which must be in the ranges of the server.
func (r *replica) create() (id string) {
	r.t.Helper()
	sb, err := r.client().Sandboxes.Create(r.t.Context(), client.CreateOptions{Image: "app:v1", WaitUpTo: time.Minute, Resources: client.Resources{Memory: "64Mi", Disk: "64Mi"}})
	if err != nil || sb.State != client.Running {
		r.t.Fatalf("create: %+v, %v", sb, err)
	}
	digit := sandbox.ID(sb.ID).Shard().Range()
	for _, part := range sandbox.Parts(2) {
		if part.Digits() == r.ranges() && !part.HasRange(digit) {
			r.t.Errorf("the server of %s has made %s", part.Digits(), sb.ID)
		}
	}
	return sb.ID
}

// echoes checks that a sandbox runs commands.
func (r *replica) echoes(id string) {
	r.t.Helper()
	if out, err := r.client().Sandboxes.Exec(r.t.Context(), id, client.Command{Argv: []string{"/bin/echo", "here"}}); err != nil || string(out.Stdout) != "here\n" {
		r.t.Errorf("sandbox %s at %s: %+v, %v", id, r.url, out, err)
	}
}

// TestPartsOnPostgres checks that two servers work at the same time, each on a part of the sandboxes, and that a third takes over the part of
// a server that was killed or has ended.
func TestPartsOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	a, b, c := newPart(t, "2", "a", stateDir, url), newPart(t, "2", "b", stateDir, url), newPart(t, "2", "c", stateDir, url)
	const lower, upper = "01234567", "89abcdef"
	a.launch() // together, with a database that has no tables
	b.launch()
	for _, r := range []*replica{a, b} {
		r.until("it waits for its first worker", func() bool { return strings.Contains(r.logged(), "waiting for the workers") })
	}
	runFakeWorker(t, stateDir, a.workers, c.workers)
	startNamedWorker(t, "b", t.TempDir(), stateDir, b.workers)
	a.until("two servers are active", func() bool { return a.ranges()+b.ranges() == lower+upper || b.ranges()+a.ranges() == lower+upper })
	first, second := a, b
	if b.ranges() == lower {
		first, second = b, a
	}
	c.launch()
	c.waits()
	buildApp(t, first.client())
	one, two := first.create(), second.create()
	first.echoes(one)
	second.echoes(two)

	freed := a.ranges()
	ofA, ofB := one, two
	if first == b {
		ofA, ofB = two, one
	}
	a.end(os.Kill)
	c.worksOn(freed)
	c.echoes(ofA)
	b.echoes(ofB)
	c.echoes(c.create())
	a.launch()
	a.waits()
	c.end(syscall.SIGTERM)
	a.worksOn(freed)
	a.echoes(ofA)
	a.echoes(a.create())
	b.echoes(ofB)
}

// TestPartsInAStormOnPostgres checks that nothing that was answered is lost, and nothing is made twice, while one server after another is killed, ended
// or stands still under creates to all of them.
func TestPartsInAStormOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	var servers []*replica
	var clients []*client.Client
	var addresses []string
	for _, name := range []string{"a", "b", "c"} {
		r := newPart(t, "2", name, stateDir, url)
		servers, addresses = append(servers, r), append(addresses, r.workers)
		r.launch()
	}
	first, _ := startNamedWorker(t, "one", t.TempDir(), stateDir, addresses...)
	second, _ := startNamedWorker(t, "two", t.TempDir(), stateDir, addresses...)
	active := func() (list []*replica) {
		for _, r := range servers {
			if r.ranges() != "" {
				list = append(list, r)
			}
		}
		return list
	}
	settled := func() {
		t.Helper()
		servers[0].until("two servers are active, and a standby waits", func() bool {
			waiting := 0
			for _, r := range servers {
				if r.role() == "standby" && r.status("/readyz") == http.StatusOK {
					waiting++
				}
			}
			return len(active()) == 2 && waiting == 1
		})
	}
	settled()
	for _, r := range servers {
		clients = append(clients, r.client())
	}
	buildApp(t, clients[0])
	const each = 40 // creates, within the quota
	s := (&storm{clients: clients, may: make(chan struct{}, each)}).begin(t)
	for round, signal := range []os.Signal{os.Kill, syscall.SIGTERM, os.Kill, syscall.SIGSTOP, os.Kill, syscall.SIGTERM} {
		before := s.count()
		made := func(n int) {
			t.Helper()
			servers[0].until(fmt.Sprintf("round %d: %d sandboxes are made", round, n), func() bool { return s.count() >= before+n || t.Failed() })
		}
		for range each {
			s.may <- struct{}{}
		}
		made(each / 4)
		r := active()[round%2]
		if signal == syscall.SIGSTOP {
			_ = r.cmd.Process.Signal(signal)
			made(each) // the kernel has ended it
		}
		r.end(signal)
		made(each)
		r.launch()
		settled()
	}
	s.end(t, clients[0], first, second)
	for label, id := range s.made {
		for _, c := range clients {
			if out, err := c.Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"/bin/echo", "here"}}); err != nil || string(out.Stdout) != "here\n" {
				t.Errorf("sandbox %s of request %s after all: %+v, %v", id, label, out, err)
			}
		}
	}
	for _, r := range servers { // while they have workers, for which the end of a server waits
		r.end(syscall.SIGTERM)
	}
}

// TestOlderTablesOnPostgres checks that one of several servers updates the tables of an earlier version, once the servers of that version have ended.
func TestOlderTablesOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	st, err := store.OpenAt(t.Context(), store.Location{Postgres: database.Postgres{URL: url, MaxConnections: 2, ConnectTimeout: time.Minute, StatementTimeout: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	files, err := migrations.Postgres()
	if err != nil {
		t.Fatal(err)
	}
	migrator, err := goose.NewProvider(goose.DialectPostgres, db, files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	earlier, _, err := statedir.AwaitPart(t.Context(), stateDir, stateDir, sandbox.Parts(2))
	if err != nil {
		t.Fatal(err)
	}
	a, b := newPart(t, "2", "a", stateDir, url), newPart(t, "2", "b", stateDir, url)
	for _, r := range []*replica{a, b} {
		r.launch()
		r.until("it waits for the server of the earlier version", func() bool { return strings.Contains(r.logged(), "to make or update the tables") })
		r.waits()
	}
	if older, err := migrator.HasPending(t.Context()); err != nil || !older {
		t.Errorf("the tables are updated while a server of the earlier version works: %v", err)
	}
	earlier.Release()
	runFakeWorker(t, stateDir, a.workers, b.workers)
	startNamedWorker(t, "b", t.TempDir(), stateDir, b.workers, a.workers)
	a.until("both are active", func() bool { return a.role() == "active" && b.role() == "active" && a.ranges() != b.ranges() })
	if older, err := migrator.HasPending(t.Context()); err != nil || older {
		t.Errorf("the tables are not updated: %v", err)
	}
}

// TestPartsAcceptNoDatabase checks that a server which is not alone accepts no database that does not fit.
func TestPartsAcceptNoDatabase(t *testing.T) {
	cfg := config.Default()
	cfg.StateDir = t.TempDir()
	cfg.RunDir, cfg.Replica.Active = cfg.StateDir, 2
	_, err := Start(t.Context(), Options{Config: cfg, AcceptDatabase: true, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "MODBOX_REPLICA_ACTIVE=1") {
		t.Errorf("Start() = %v, want what to do", err)
	}
}
