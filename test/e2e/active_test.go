package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/storetest"
)

// group is some servers that share a database, a state directory and workers. Two of them are active.
type group struct {
	t        *testing.T
	stateDir string
	servers  []*controlServer
	workers  []*workerProcess
}

// startGroup starts servers and two workers, and waits until two servers are active, each with a worker.
func startGroup(t *testing.T, n int) *group {
	t.Helper()
	g := &group{t: t, stateDir: newStateDir(t)}
	cluster := storetest.StartCluster(t)
	if err := os.Chmod(cluster.Dir, 0o755); err != nil { // for the socket
		t.Fatal(err)
	}
	for range n {
		g.servers = append(g.servers, newControlServer(t, g.stateDir, "--standby", "true", "--replica-active", "2", "--database-url", cluster.URL("postgres")))
	}
	var addresses []string
	for _, s := range g.servers {
		addresses = append(addresses, s.workers)
		s.launch()
	}
	for i := range 2 {
		w := joinWorker(t, fmt.Sprintf("worker-%d", i+1), g.stateDir, addresses...)
		g.workers = append(g.workers, w)
	}
	for _, s := range g.servers {
		s.ready(s.url+" answers", func(string) bool { return true })
	}
	t.Cleanup(func() { // before the servers and the workers end
		if t.Failed() {
			g.destroyAll()
		}
	})
	return g
}

// destroyAll ends the sandboxes that a failed test has left, as far as the servers still can.
func (g *group) destroyAll() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, s := range g.servers {
		for sb, err := range s.Sandboxes.List(client.ListOptions{}).All(ctx) {
			if err != nil {
				break
			}
			_, _ = s.Sandboxes.Delete(ctx, sb.ID) // another server may have ended it, or runs in its place
		}
	}
}

// roles returns the servers that are active, and the others.
func (g *group) roles() (active, standbys []*controlServer) {
	g.t.Helper()
	for _, s := range g.servers {
		resp, err := http.Get(s.url + "/healthz")
		if err != nil {
			continue // it was killed
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case err != nil:
		case strings.Contains(string(text), `"role":"active"`):
			active = append(active, s)
		case strings.Contains(string(text), `"role":"standby"`):
			standbys = append(standbys, s)
		}
	}
	return active, standbys
}

// twoActive waits until two servers are active, and returns all.
func (g *group) twoActive() (active, standbys []*controlServer) {
	g.t.Helper()
	until(g.t, "two servers are active", func() bool {
		active, standbys = g.roles()
		return len(active) == 2
	})
	return active, standbys
}

// create makes a sandbox that runs.
func (s *controlServer) create(o client.CreateOptions) *client.Sandbox {
	s.t.Helper()
	o.WaitUpTo = 5 * time.Minute
	sb, err := s.Sandboxes.Create(s.t.Context(), o)
	if err != nil || sb.State != client.Running {
		s.t.Fatalf("create at %s: %+v, %v", s.url, sb, err)
	}
	return sb
}

// TestActiveServers uses the sandboxes of two active servers through each of three servers, and kills an active server: the standby takes its sandboxes over, and
// the sandboxes of the other go on undisturbed.
func TestActiveServers(t *testing.T) {
	g := startGroup(t, 3)
	active, standbys := g.twoActive()
	if len(standbys) != 1 {
		t.Fatalf("%d servers are standbys, want 1", len(standbys))
	}
	x, y, z := active[0], active[1], standbys[0]
	x.buildBusybox()
	sx := x.create(client.CreateOptions{Name: "of-x", Image: "app:v1"})
	sy := y.create(client.CreateOptions{Name: "of-y", Image: "app:v1"})
	part := func(id string) bool { return sandbox.Parts(2)[0].Has(sandbox.ID(id)) }
	if part(sx.ID) == part(sy.ID) {
		t.Fatalf("sandboxes of two servers are in the same part: %s, %s", sx.ID, sy.ID)
	}
	t.Run("Everywhere", func(t *testing.T) { g.testEverywhere(t, sx, sy) })
	t.Run("Changes", func(t *testing.T) { testChanges(t, x, y, z, sy) })
	t.Run("URL", func(t *testing.T) { testURLElsewhere(t, x, y, sy) })
	t.Run("Events", func(t *testing.T) { testEventsElsewhere(t, x, y, z) })
	t.Run("Workspace", func(t *testing.T) { g.testWorkspaceElsewhere(t, x, y) })
	t.Run("Kill", func(t *testing.T) { g.testKillActive(t, x, y, z, sx, sy) })
	for _, id := range []string{sx.ID, sy.ID} {
		if _, err := x.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// testEverywhere uses both sandboxes through each server, by id and name.
func (g *group) testEverywhere(t *testing.T, sandboxes ...*client.Sandbox) {
	for i, s := range g.servers {
		for _, sb := range sandboxes {
			for _, ref := range []string{sb.ID, sb.Name} {
				word := fmt.Sprintf("%d %s", i, ref)
				if _, err := s.Sandboxes.Files.Write(t.Context(), ref, "/tmp/word", strings.NewReader(word), client.WriteOptions{}); err != nil {
					t.Errorf("write a file of %s at %s: %v", ref, s.url, err)
					continue
				}
				out, err := s.Sandboxes.Exec(t.Context(), ref, client.Command{Argv: []string{"/bin/cat", "/tmp/word"}, Timeout: time.Minute})
				if err != nil || string(out.Stdout) != word {
					t.Errorf("exec in %s at %s: %+v, %v", ref, s.url, out, err)
				}
				if got, err := s.Sandboxes.Get(t.Context(), ref); err != nil || got.ID != sb.ID || got.State != client.Running {
					t.Errorf("%s at %s is %+v, %v", ref, s.url, got, err)
				}
			}
		}
		var names []string
		for sb, err := range s.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, sb.Name)
		}
		if slices.Sort(names); !slices.Equal(names, []string{"of-x", "of-y"}) {
			t.Errorf("%s lists %q", s.url, names)
		}
	}
}

// testChanges pauses, resumes and forks a sandbox of y through the other servers, and makes a sandbox of x from a snapshot of it.
func testChanges(t *testing.T, x, y, z *controlServer, sy *client.Sandbox) {
	number := x.counting(sy.ID)
	before := number(z)
	if sb, err := x.Sandboxes.Pause(t.Context(), sy.ID); err != nil || sb.State != client.Paused {
		t.Fatalf("pause through another server: %+v, %v", sb, err)
	}
	if sb, err := z.Sandboxes.Resume(t.Context(), sy.ID, client.ResumeOptions{}); err != nil || sb.State != client.Running {
		t.Fatalf("resume through the standby: %+v, %v", sb, err)
	}
	until(t, "the number goes on", func() bool { return number(x) > before })
	forks, err := x.Sandboxes.Fork(t.Context(), sy.ID, client.ForkOptions{Count: 1})
	if err != nil || len(forks) != 1 || forks[0].Sandbox == nil {
		t.Fatalf("fork through another server: %+v, %v", forks, err)
	}
	child := forks[0].Sandbox.ID
	if n := number(y); n < before {
		t.Errorf("the number is %d, want at least %d", n, before)
	}
	snapshot, err := z.Snapshots.Create(t.Context(), sy.ID, client.SnapshotOptions{Name: "of-y"})
	if err != nil {
		t.Fatal(err)
	}
	copied := x.create(client.CreateOptions{Snapshot: snapshot.ID})
	if out := z.run(copied.ID, "cat /srv/file", time.Minute); string(out.Stdout) != "built\n" {
		t.Errorf("the file of the snapshot is %q", out.Stdout)
	}
	for _, id := range []string{child, copied.ID} {
		if _, err := z.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if err := y.Snapshots.Delete(t.Context(), snapshot.ID); err != nil {
		t.Error(err)
	}
}

// testURLElsewhere visits a port of a sandbox of y at x.
func testURLElsewhere(t *testing.T, x, y *controlServer, sy *client.Sandbox) {
	y.run(sy.ID, "setsid busybox httpd -f -p 8080 -h /srv >/dev/null 2>&1 &", time.Minute)
	port, err := x.Sandboxes.Ports.Publish(t.Context(), sy.ID, 8080, client.PortPublic)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Replace(port.URL, strings.TrimPrefix(y.url, "http://"), strings.TrimPrefix(x.url, "http://"), 1)
	var got string
	until(t, "the server in the sandbox answers at "+at, func() bool {
		status, body := visit(t, "GET", strings.TrimSuffix(at, "/")+"/file", "", nil)
		got = fmt.Sprint(status, " ", body)
		return got == "200 built\n"
	}, func() string { return got })
}

// testEventsElsewhere follows events at x and z of a sandbox that y makes.
func testEventsElsewhere(t *testing.T, x, y, z *controlServer) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := make(chan string, 2)
	for _, s := range []*controlServer{x, z} {
		began := make(chan struct{})
		go func() {
			close(began)
			for e, err := range s.Events.Follow(ctx, client.FollowOptions{}) {
				if err != nil || e.Type == "destroyed" {
					seen <- fmt.Sprint(e.SandboxID, err)
					return
				}
			}
			seen <- "none"
		}()
		<-began
	}
	var sb *client.Sandbox
	for { // until both have begun to follow
		sb = y.create(client.CreateOptions{Image: "app:v1"})
		if _, err := y.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-seen:
			if !strings.Contains(got, "<nil>") {
				t.Fatalf("events: %s", got)
			}
			if got := <-seen; !strings.Contains(got, "<nil>") {
				t.Fatalf("events: %s", got)
			}
			return
		case <-time.After(2 * time.Second):
		}
	}
}

// testWorkspaceElsewhere deletes a workspace with a sandbox of each server.
func (g *group) testWorkspaceElsewhere(t *testing.T, x, y *controlServer) {
	ws, err := x.Workspaces.Create(t.Context(), client.WorkspaceOptions{Name: "short"})
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(read(filepath.Join(x.stateDir, "token")))
	var ids []string
	for i, s := range []*controlServer{x, y} {
		of := *s
		if of.Client, err = client.New(s.url, token, client.WithWorkspace(ws.ID), client.WithAttempts(1)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			of.buildBusybox() // the other server finds it
		}
		ids = append(ids, of.create(client.CreateOptions{Image: "app:v1"}).ID)
	}
	if err := y.Workspaces.Delete(t.Context(), ws.ID); err != nil {
		t.Fatal(err)
	}
	until(t, "the boxes of the workspace are gone", func() bool {
		for _, id := range ids {
			if g.workers[0].has(id) || g.workers[1].has(id) {
				return false
			}
		}
		return true
	})
}

// testKillActive kills y. Output of the sandbox of x arrives at x all the time, and the sandbox of y goes on with its process.
func (g *group) testKillActive(t *testing.T, x, y, z *controlServer, sx, sy *client.Sandbox) {
	number := x.counting(sy.ID)
	before := number(x)
	e, err := x.Executions.Start(t.Context(), sx.ID, client.Command{Argv: []string{"/bin/sh", "-c", "n=0; while [ $n -lt 200 ]; do n=$((n+1)); echo line $n; sleep 0.05; done"}}, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := x.Streams.Read(t.Context(), e.Stdout.StreamID, client.StreamOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.CopyN(io.Discard, r, 100); err != nil {
		t.Fatal(err)
	}
	y.end(os.Kill)
	until(t, "a command runs in the sandbox of the server that was killed", func() bool { // it waits at x until z has the part
		_, err := x.Sandboxes.Exec(t.Context(), sy.ID, client.Command{Argv: []string{"/bin/true"}, Timeout: time.Minute})
		if err != nil {
			t.Logf("after the kill: %v", err) // the first command may be on its way to the server that is killed
		}
		return err == nil
	})
	after := number(x)
	if after < before {
		t.Errorf("the number was %d and is %d", before, after)
	}
	if rest, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(rest), "line 200\n") {
		t.Errorf("the output of the sandbox of the other server ends with %d bytes, %v", len(rest), err)
	}
	z.active()
	until(t, "the number goes on", func() bool { return number(z) > after })
	y.launch()
	y.forwards()
	if n := number(y); n < after {
		t.Errorf("through the server that came back, the number is %d", n)
	}
	if out := y.run(sx.ID, "echo here", time.Minute); string(out.Stdout) != "here\n" {
		t.Errorf("a command through the server that came back: %q", out.Stdout)
	}
}
