package server

import (
	"archive/tar"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/store/storetest"
)

// serverVariable makes this program a server instead of a test: TestServerProcess.
const serverVariable = "MODBOX_TEST_SERVER"

// TestServerProcess is the server of other tests: a process that they can kill.
func TestServerProcess(t *testing.T) {
	if os.Getenv(serverVariable) == "" {
		t.Skip("it is the process of a server of other tests")
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if limit, err := time.ParseDuration(os.Getenv(limitVariable)); err == nil {
		workersLimit = limit
	}
	cfg, err := config.Load(config.Source{Environ: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(ctx, Options{Config: cfg, Version: "test", Logger: NewLogger(cfg.Log, os.Stderr)})
	if err == nil {
		err = s.Run(ctx)
	}
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
}

// replica is a process of a server with the role control.
type replica struct {
	t        *testing.T
	environ  []string
	url      string
	workers  string // the address for workers
	stateDir string
	cmd      *exec.Cmd
	log      *os.File
}

// freeAddress returns an address that a process can listen on, also again and again until the test ends.
func freeAddress(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", reservePort(t)) }

// newReplica returns a server that is not running yet.
func newReplica(t *testing.T, name, stateDir, databaseURL string) *replica {
	t.Helper()
	address := freeAddress(t)
	r := &replica{t: t, url: "http://" + address, workers: freeAddress(t), stateDir: stateDir}
	r.environ = append(os.Environ(), serverVariable+"=1", "MODBOX_ROLE=control", "MODBOX_STANDBY=true", "MODBOX_LISTEN="+address, "MODBOX_WORKER_LISTEN="+r.workers,
		"MODBOX_STATE_DIR="+stateDir, "MODBOX_DATABASE_URL="+databaseURL, "MODBOX_POOL_SIZE=0")
	var err error
	if r.log, err = os.Create(filepath.Join(t.TempDir(), name+".log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.end(syscall.SIGTERM)
		if text, err := os.ReadFile(r.log.Name()); err == nil && t.Failed() {
			t.Logf("the log of %s:\n%s", name, text[max(0, len(text)-20_000):])
		}
		_ = r.log.Close()
	})
	return r
}

func (r *replica) launch() {
	r.t.Helper()
	r.cmd = exec.Command(os.Args[0], "-test.run", "^TestServerProcess$")
	r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = r.environ, r.log, r.log
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// end ends the server with a signal and waits for it.
func (r *replica) end(signal os.Signal) {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Signal(signal)
	_ = r.cmd.Wait()
	r.cmd = nil
}

// status returns the status of a request, 0 for none.
func (r *replica) status(path string) int {
	resp, err := http.Get(r.url + path)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// active waits until the server is active.
func (r *replica) active() {
	r.t.Helper()
	r.until("it is active", func() bool { return r.role() == "active" && r.status("/readyz") == http.StatusOK })
}

// waits waits until the server is a standby.
func (r *replica) waits() {
	r.t.Helper()
	r.until("it is a standby", func() bool { return r.role() == "standby" })
}

func (r *replica) until(what string, f func() bool) {
	r.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !f(); time.Sleep(20 * time.Millisecond) { // polling another process
		if time.Now().After(end) {
			r.t.Fatalf("%s: not within 2 minutes: %s", r.url, what)
		}
	}
}

// client returns a client of the server, which does not try again.
func (r *replica) client() *client.Client {
	r.t.Helper()
	token, err := os.ReadFile(filepath.Join(r.stateDir, statedir.TokenFile))
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := client.New(r.url, strings.TrimSpace(string(token)), client.WithAttempts(1))
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// contextOf returns the files of a build.
func contextOf(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// storm creates sandboxes until stop, each at whichever server takes it, with the same idempotency key in each attempt.
type storm struct {
	clients []*client.Client
	answers bool // each request gets an answer
	stop    chan struct{}
	work    sync.WaitGroup
	// may has a value for each request; nil for any number.
	may chan struct{}

	mu    sync.Mutex
	made  map[string]string // guarded by mu; ids by the label of the request
	asked int               // guarded by mu; requests, answered or not
}

func begin(t *testing.T, answers bool, clients ...*client.Client) *storm {
	return (&storm{clients: clients, answers: answers}).begin(t)
}

func (s *storm) begin(t *testing.T) *storm {
	s.stop, s.made = make(chan struct{}), map[string]string{}
	may := s.may
	if may == nil {
		may = make(chan struct{})
		close(may)
	}
	for range 4 {
		s.work.Go(func() {
			for {
				select {
				case <-s.stop:
					return
				case <-may:
				}
				select {
				case <-s.stop:
					return
				default:
					s.create(t)
				}
			}
		})
	}
	return s
}

func (s *storm) create(t *testing.T) {
	s.mu.Lock()
	s.asked++
	label := fmt.Sprint("r", s.asked)
	s.mu.Unlock()
	o := client.CreateOptions{
		Image: "app:v1", Labels: map[string]string{"request": label}, IdempotencyKey: label, WaitUpTo: time.Minute,
		Resources: client.Resources{Memory: "64Mi", Disk: "64Mi"}, // within the quota
	}
	for end := time.Now().Add(2 * time.Minute); ; {
		for _, c := range s.clients {
			sb, err := c.Sandboxes.Create(t.Context(), o)
			if err == nil && sb.State == client.Failed { // the server was killed while it started
				o.IdempotencyKey += "+"
			} else if err == nil {
				s.mu.Lock()
				s.made[label] = sb.ID
				s.mu.Unlock()
				return
			} else if e := (*client.Error)(nil); errors.As(err, &e) && e.Code != client.Unavailable || e == nil && s.answers {
				t.Errorf("create: %v", err)
				return
			}
		}
		if time.Now().After(end) {
			t.Error("no server takes a create")
			return
		}
		time.Sleep(10 * time.Millisecond) // polling other processes
	}
}

// count returns how many sandboxes were made.
func (s *storm) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.made)
}

// end ends the storm, and checks that each request has made a single sandbox, with a single box, which is there.
func (s *storm) end(t *testing.T, c *client.Client, hosts ...*fake.Host) {
	t.Helper()
	close(s.stop)
	s.work.Wait()
	listed := map[string]string{}
	for sb, err := range c.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		label := sb.Labels["request"]
		if other, twice := listed[label]; twice {
			t.Errorf("request %s has made %s and %s", label, other, sb.ID)
		}
		listed[label] = sb.ID
		if sb.State != client.Running {
			t.Errorf("sandbox %s of request %s is %s: %+v", sb.ID, label, sb.State, sb.Cause)
		}
		if id := s.made[label]; id != sb.ID {
			t.Errorf("request %s was answered with %q, and has made %s", label, id, sb.ID)
		}
	}
	for label, id := range s.made {
		if listed[label] == "" {
			t.Errorf("sandbox %s of request %s is lost", id, label)
		}
	}
	boxes := 0
	for _, host := range hosts {
		list, err := fake.New(host).List(t.Context())
		if err != nil {
			t.Error(err)
		}
		boxes += len(list)
	}
	if boxes != len(listed) {
		t.Errorf("%d sandboxes have %d boxes", len(listed), boxes)
	}
	t.Logf("%d sandboxes", len(listed))
}

// TestStandbyOnPostgres checks that a standby takes over, with its sandboxes, when the active server is killed, stands still, or is ended, and that nothing that was
// answered is lost and nothing is made twice.
func TestStandbyOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	a, b := newReplica(t, "a", stateDir, url), newReplica(t, "b", stateDir, url)
	a.launch()
	host := runFakeWorker(t, stateDir, a.workers, b.workers)
	a.active()
	b.launch()
	b.waits()
	if _, err := b.client().Sandboxes.Get(t.Context(), "any"); !client.IsCode(err, client.NotFound) {
		t.Errorf("a request to the standby: %v", err)
	}
	if _, err := a.client().Images.Build(t.Context(), client.ImageBuildOptions{Tag: "app:v1"}, contextOf(t, map[string]string{"Dockerfile": "FROM scratch\nCOPY file /file\n", "file": "text"}), nil); err != nil {
		t.Fatal(err)
	}

	s := begin(t, false, a.client(), b.client())
	more := func(r *replica, n int) {
		t.Helper()
		before := s.count()
		r.until("sandboxes are made", func() bool { return s.count() >= before+n || t.Failed() })
	}
	more(a, 5)
	a.end(os.Kill)
	b.active()
	more(b, 5)

	a.launch()
	a.waits()
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	a.active()
	more(a, 5)
	_ = b.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
	if state, err := b.cmd.Process.Wait(); err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the server that stood still: %v, %v, want it ended by the kernel", state, err)
	}
	b.cmd = nil

	b.launch()
	b.waits()
	a.end(syscall.SIGTERM)
	b.active()
	more(b, 5)
	s.end(t, b.client(), host)
	for _, id := range s.made {
		if out, err := b.client().Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"/bin/echo", "here"}}); err != nil || string(out.Stdout) != "here\n" {
			t.Errorf("a sandbox after all: %+v, %v", out, err)
		}
		break
	}
}

// TestLostDatabaseOnPostgres checks that a server with standbys ends when its database is away for too long.
func TestLostDatabaseOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	cluster := storetest.StartCluster(t)
	at := store.Location{Postgres: database.Postgres{URL: cluster.URL("postgres"), MaxConnections: 2, ConnectTimeout: time.Second, StatementTimeout: time.Minute, Patience: time.Second}}
	st, err := store.OpenAt(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	p := parts{store: st, lost: make(chan error, 1)}
	cu := cleanup.Make(func() {})
	defer cu.Clean()
	patient := parts{store: st, lost: make(chan error, 1)}
	patient.watchDatabase(t.Context(), 0, slog.New(slog.DiscardHandler), &cu) // a server without standbys
	p.watchDatabase(t.Context(), time.Millisecond, slog.New(slog.DiscardHandler), &cu)
	cluster.Signal(syscall.SIGSTOP) // it accepts connections, and does not answer
	defer cluster.Signal(syscall.SIGCONT)
	select {
	case err := <-p.lost:
		t.Log(err)
	case <-time.After(2 * time.Minute):
		t.Error("the server goes on without its database")
	}
	select {
	case err := <-patient.lost:
		t.Errorf("a server without standbys ends: %v", err)
	default:
	}
}

// TestStandbyWaitsOnPostgres checks that a standby waits for the session of another server, and for a database that is away, and what it does when
// it is active.
func TestStandbyWaitsOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	cluster, stateDir := storetest.StartCluster(t), t.TempDir()
	r := newReplica(t, "r", stateDir, cluster.URL("postgres"))
	runFakeWorker(t, stateDir, r.workers)
	db, err := sql.Open("pgx", cluster.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	session, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const serverKey = 0x6d6f64626f780001 // of the package database
	if _, err := session.ExecContext(t.Context(), "SELECT pg_advisory_lock($1)", int64(serverKey)); err != nil {
		t.Fatal(err)
	}
	r.launch()
	logged := func(text string) func() bool {
		return func() bool {
			log, _ := os.ReadFile(r.log.Name())
			return strings.Contains(string(log), text)
		}
	}
	r.until("it waits for the session", logged("waiting until no other server uses the database"))
	r.waits()
	if err := errors.Join(session.Close(), db.Close()); err != nil { // and with it the lock
		t.Fatal(err)
	}
	r.active()
	r.end(syscall.SIGTERM)

	cluster.Stop("fast")
	r.launch()
	r.until("it waits for the database", logged("waiting until the database answers"))
	r.waits()
	cluster.Start()
	r.active()
	again, err := sql.Open("pgx", cluster.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	r.until("it listens to changes of rights", func() bool {
		var n int
		err := again.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN modbox_rights'").Scan(&n)
		return err == nil && n == 1
	})
}

// TestAfterOthers checks that a standby waits while the session of a lost server has the lock of the database, and that another server does not.
func TestAfterOthers(t *testing.T) {
	n := 0
	taken := errors.New("other")
	open := func() (int, error) {
		if n++; n < 3 {
			return 0, sandbox.Wrap(sandbox.Conflict, database.ErrTaken, "another server uses the database")
		}
		return n, taken
	}
	if got, err := afterOthers(t.Context(), config.Config{Standby: true}, slog.New(slog.DiscardHandler), open); got != 3 || !errors.Is(err, taken) {
		t.Errorf("a standby got %d, %v", got, err)
	}
	n = 0
	if _, err := afterOthers(t.Context(), config.Config{}, slog.New(slog.DiscardHandler), open); n != 1 || sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("another server: %v after %d attempts", err, n)
	}
}
