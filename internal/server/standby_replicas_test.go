package server

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/store/storetest"
)

// forwards waits until a standby forwards requests.
func (r *replica) forwards() {
	r.t.Helper()
	r.until("it forwards requests", func() bool { return r.status("/readyz") == http.StatusOK })
}

// role returns the role that GET /healthz says; "" for none.
func (r *replica) role() string {
	resp, err := http.Get(r.url + "/healthz")
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var answer struct{ Role string }
	_ = json.NewDecoder(resp.Body).Decode(&answer) // "" if it is no JSON
	return answer.Role
}

func buildApp(t *testing.T, c *client.Client) {
	t.Helper()
	if _, err := c.Images.Build(t.Context(), client.ImageBuildOptions{Tag: "app:v1"}, contextOf(t, map[string]string{"Dockerfile": "FROM scratch\nCOPY file /file\n", "file": "text"}), nil); err != nil {
		t.Fatal(err)
	}
}

// use does through a server what clients do, with all kinds of connections, and returns the sandbox that it makes.
func use(t *testing.T, c *client.Client) (id string) {
	t.Helper()
	sb, err := c.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "app:v1", WaitUpTo: time.Minute, Resources: client.Resources{Memory: "64Mi", Disk: "64Mi"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Sandboxes.Get(t.Context(), sb.ID); err != nil || got.State != client.Running {
		t.Errorf("get: %+v, %v", got, err)
	}
	stream, err := c.Sandboxes.ExecStream(t.Context(), sb.ID, client.Command{Argv: []string{"/bin/sh", "-c", "echo one; echo two >&2; exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if exit, err := stream.Copy(&stdout, &stderr); err != nil || exit.ExitCode != 3 || stdout.String() != "one\n" || stderr.String() != "two\n" {
		t.Errorf("exec stream: %+v %q %q, %v", exit, &stdout, &stderr, err)
	}
	session, err := c.Sandboxes.Attach(t.Context(), sb.ID, client.Command{Argv: []string{"/bin/cat"}}, client.AttachOptions{Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	stdout.Reset()
	_, err = session.Write([]byte("typed"))
	err = errors.Join(err, session.CloseStdin())
	if exit, copied := session.Copy(&stdout, io.Discard); err != nil || copied != nil || exit.ExitCode != 0 || stdout.String() != "typed" {
		t.Errorf("attach: %+v %q, %v, %v", exit, &stdout, err, copied)
	}
	upload := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if _, err := c.Sandboxes.Files.Write(t.Context(), sb.ID, "/tmp/"+sb.ID, bytes.NewReader(upload), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	file, err := c.Sandboxes.Files.Read(t.Context(), sb.ID, "/tmp/"+sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got, err := io.ReadAll(file); err != nil || !bytes.Equal(got, upload) {
		t.Errorf("a file of %d bytes is %d bytes, %v", len(upload), len(got), err)
	}
	for e, err := range c.Events.Follow(t.Context(), client.FollowOptions{Sandbox: sb.ID, Since: time.Now().Add(-time.Hour)}) {
		if err != nil {
			t.Errorf("events: %v", err)
		} else if e.SandboxID != sb.ID {
			t.Errorf("an event of %s", e.SandboxID)
		}
		break
	}
	return sb.ID
}

// TestReplicasOnPostgres checks that each of three servers answers all requests, that the client's address is not the standby's and not the client's choice, that
// nothing is lost and no other error is seen when the active server is killed under requests to standbys, and that a standby follows the active server.
func TestReplicasOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	a, b, c := newReplica(t, "a", stateDir, url), newReplica(t, "b", stateDir, url), newReplica(t, "c", stateDir, url)
	a.launch()
	host := runFakeWorker(t, stateDir, a.workers, b.workers, c.workers)
	a.active()
	for _, r := range []*replica{b, c} {
		r.launch()
		r.waits()
		r.forwards()
	}
	buildApp(t, b.client())
	for _, r := range []*replica{a, b, c} {
		id := use(t, r.client())
		if _, err := r.client().Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	checkAddress(t, b)

	// The row names a server that is not there any more.
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var address string
	if err := db.QueryRowContext(t.Context(), "SELECT address FROM shard_ranges WHERE number = 0").Scan(&address); err != nil || address != a.workers {
		t.Fatalf("the active server is at %q, %v, want %s", address, err, a.workers)
	}
	change := func(address string, epoch int) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), "UPDATE shard_ranges SET address = $1, server_epoch = server_epoch + $2", address, epoch); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "SELECT pg_notify('modbox_active', '')"); err != nil {
			t.Fatal(err)
		}
	}
	change(freeAddress(t), 0)
	answered := make(chan error, 1)
	b.until("b follows the row", func() bool { return strings.Count(b.logged(), "an active server") >= 2 })
	go func() {
		_, err := b.client().Sandboxes.Get(t.Context(), "none")
		answered <- err
	}()
	change(a.workers, 0)
	if err := <-answered; !client.IsCode(err, client.NotFound) {
		t.Errorf("a request while the row named a server that is not there: %v", err)
	}

	s := begin(t, true, b.client(), c.client())
	others := []*replica{b, c}
	before := s.count()
	b.until("sandboxes are made", func() bool { return s.count() >= before+10 || t.Failed() })
	a.end(os.Kill)
	var next *replica
	b.until("a standby is active", func() bool {
		for _, r := range others {
			if r.role() == "active" {
				next = r
				return true
			}
		}
		return false
	})
	before = s.count()
	b.until("more sandboxes are made", func() bool { return s.count() >= before+10 || t.Failed() })
	for _, r := range others {
		if r != next {
			r.waits()
			r.forwards()
		}
	}
	a.launch()
	a.waits()
	a.forwards()
	s.end(t, a.client(), host)
}

// logged returns the log.
func (r *replica) logged() string {
	text, _ := os.ReadFile(r.log.Name()) // "" if it cannot be read
	return string(text)
}

// checkAddress checks that the audit log has the address of the client, whatever its headers say.
func checkAddress(t *testing.T, standby *replica) {
	t.Helper()
	token := strings.TrimSpace(read(t, standby.stateDir+"/token"))
	req, err := http.NewRequestWithContext(t.Context(), "POST", standby.url+"/v1/sandboxes", strings.NewReader(`{"image":"nothing:v1"}`))
	if err != nil {
		t.Fatal(err)
	}
	const agent = "a client that lies"
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "User-Agent": agent, "Connection": "Modbox-Client-Address",
		"Modbox-Client-Address": "203.0.113.9:1", "X-Forwarded-For": "203.0.113.9", "X-Real-Ip": "203.0.113.9",
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	for entry, err := range standby.client().Audit.ListInstallation(client.AuditOptions{}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if entry.Record.UserAgent == agent {
			if entry.Record.Address != "127.0.0.1" {
				t.Errorf("the audit log has the address %s", entry.Record.Address)
			}
			return
		}
	}
	t.Error("the audit log lacks the request")
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestHandoverOnPostgres checks that a standby takes over soon when the active server is ended under requests, with a stream that does not end by itself, and that
// clients see nothing but the end of the stream.
func TestHandoverOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	a, b := newReplica(t, "a", stateDir, url), newReplica(t, "b", stateDir, url)
	a.launch()
	runFakeWorker(t, stateDir, a.workers, b.workers)
	a.active()
	b.launch()
	b.waits()
	b.forwards()
	buildApp(t, b.client())
	id := use(t, b.client())
	e, err := b.client().Executions.Start(t.Context(), id, client.Command{Argv: []string{"/bin/sh", "-c", "echo begun; sleep 600"}}, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := b.client().Streams.Read(t.Context(), e.Stdout.StreamID, client.StreamOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if _, err := io.ReadFull(stream, make([]byte, len("begun\n"))); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	wrong := make(chan error, 1)
	go func() {
		defer close(wrong)
		for c := b.client(); ctx.Err() == nil; {
			if _, err := c.Sandboxes.Get(ctx, id); err != nil && ctx.Err() == nil && !client.IsCode(err, client.Unavailable) { // a slow machine takes longer than the request waits
				wrong <- err
				return
			}
		}
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, stream)
	}()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ended
	b.until("b is active", func() bool { return b.role() == "active" })
	if again, err := b.client().Streams.Read(t.Context(), e.Stdout.StreamID, client.StreamOptions{Follow: true}); err != nil {
		t.Errorf("the stream again: %v", err)
	} else if _, err := io.ReadFull(again, make([]byte, len("begun\n"))); err != nil {
		t.Errorf("the stream again: %v", err)
	} else {
		_ = again.Close()
	}
	stop()
	if err := <-wrong; err != nil {
		t.Errorf("a request through the standby failed during the handover: %v", err)
	}
}
