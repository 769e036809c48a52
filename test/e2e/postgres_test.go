package e2e

import (
	"database/sql"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/store/storetest"
	"github.com/modbox/modbox/test/testserver"
)

// TestServerOnPostgres kills the server and restarts its database, which loses nothing; the next server adopts the sandboxes.
func TestServerOnPostgres(t *testing.T) {
	cluster := storetest.StartCluster(t)
	url := cluster.URL("postgres")
	t.Setenv("MODBOX_DATABASE_URL", url) // not a flag: other commands of the test need it, too
	s := testserver.StartSmall(t)
	running := s.MustCreate(client.CreateOptions{Name: "running"})
	if r := s.Bash(running.ID, "echo one > /tmp/file; cat /tmp/file", time.Minute); string(r.Stdout) != "one\n" {
		t.Fatalf("exec: %+v", r)
	}
	paused := s.MustCreate(client.CreateOptions{Name: "paused"})
	if r := s.Bash(paused.ID, "echo two > /tmp/file", time.Minute); r.ExitCode != 0 {
		t.Fatalf("exec: %+v", r)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), paused.ID); err != nil {
		t.Fatal(err)
	}

	// The database crashes and comes back; a request made meanwhile succeeds.
	cluster.Stop("immediate")
	made := make(chan error, 1)
	go func() {
		_, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Name: "meanwhile", WaitUpTo: 3 * time.Minute}) // until it runs
		made <- err
	}()
	time.Sleep(time.Second)
	cluster.Start()
	if err := <-made; err != nil {
		t.Errorf("a create while the database was away: %v", err)
	}

	// The database stands still: /readyz says so, the sandbox goes on, and a request waits.
	if r := s.Bash(running.ID, "nohup sh -c 'while sleep 0.1; do date +%s >> /tmp/seconds; done' >/dev/null 2>&1 &", time.Minute); r.ExitCode != 0 {
		t.Fatalf("exec: %+v", r)
	}
	begin := time.Now().Unix()
	cluster.Signal(syscall.SIGSTOP)
	go func() {
		_, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Name: "waits", WaitUpTo: 3 * time.Minute})
		made <- err
	}()
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/healthz": http.StatusOK} {
		resp, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("GET %s while the database stands still = %s, want %d", path, resp.Status, want)
		}
	}
	end := time.Now().Unix()
	cluster.Signal(syscall.SIGCONT)
	if err := <-made; err != nil {
		t.Errorf("a create while the database stood still: %v", err)
	}
	seconds := strings.Fields(string(s.Bash(running.ID, "cat /tmp/seconds", time.Minute).Stdout))
	if !slices.ContainsFunc(seconds, func(second string) bool {
		n, err := strconv.ParseInt(second, 10, 64)
		return err == nil && begin < n && n < end
	}) {
		t.Errorf("the sandbox did nothing while the database stood still, between %d and %d: %q", begin, end, seconds)
	}

	// The server is killed, and the database restarts before the next.
	s.Kill()
	cluster.Stop("fast")
	cluster.Start()
	s.Launch()
	if r := s.Bash(running.ID, "cat /tmp/file", time.Minute); string(r.Stdout) != "one\n" {
		t.Errorf("after the kill: %+v, want the file of before", r)
	}
	if r := s.Bash(paused.ID, "cat /tmp/file", time.Minute); string(r.Stdout) != "two\n" { // which resumes it
		t.Errorf("the paused sandbox: %+v, want the file of before", r)
	}
	if sb, err := s.Sandboxes.Get(t.Context(), "meanwhile"); err != nil || sb.State != "running" {
		t.Errorf("the sandbox made meanwhile: %+v, %v, want it running", sb, err)
	}

	// Another server takes the database: this one ends itself, and its sandboxes run on.
	giveBack := takeDatabase(t, url)
	for deadline := time.Now().Add(3 * time.Minute); !s.HasExited(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server goes on although another has its database")
		}
	}
	if !strings.Contains(s.Log(), "another server uses the database") {
		t.Error("the log does not say why the server ended")
	}
	s.Stop()
	giveBack()
	s.Launch()
	if r := s.Bash(running.ID, "cat /tmp/file", time.Minute); string(r.Stdout) != "one\n" {
		t.Errorf("after another server had the database: %+v, want the file of before", r)
	}
	if strings.Contains(s.Log(), url) {
		t.Error("the log has the URL of the database")
	}
}

// takeDatabase takes the lock of the server on its database, as another server does while the session with the lock is lost, and
// returns a function that gives it back.
func takeDatabase(t *testing.T, url string) (giveBack func()) {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	other, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	conn, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const ofServer = " FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND (classid::bigint << 32 | objid::bigint) = $1"
	const serverKey = 0x6d6f64626f780001 // of the package database
	locked := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_lock($1)", int64(serverKey))
		locked <- err
	}()
	for waits := 0; waits == 0; { // for the lock
		if err := db.QueryRowContext(t.Context(), "SELECT count(*)"+ofServer+" AND NOT granted", int64(serverKey)).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	var ended int
	if err := db.QueryRowContext(t.Context(), "SELECT count(pg_terminate_backend(pid))"+ofServer+" AND granted", int64(serverKey)).Scan(&ended); err != nil || ended != 1 {
		t.Fatalf("ended %d sessions, %v, want the server's", ended, err)
	}
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := other.Close(); err != nil { // and with it the session
			t.Error(err)
		}
	}
}
