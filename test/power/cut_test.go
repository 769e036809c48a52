package power_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/loopfs"
	"github.com/modbox/modbox/test/testserver"
)

// machine is a server whose state is on a file system that can lose its power.
type machine struct {
	*testserver.Server
	t  *testing.T
	fs *loopfs.FS
	// operations counts what was answered with success.
	operations atomic.Int64
	// off is set before the power is cut. An answer that comes later does not count: with
	// the power, a client would have lost the network. ext4 can also report a success for
	// an fsync that runs while the file system is shut down, which no disk without power does.
	off atomic.Bool
	// lost describes what was answered with success and was not there afterwards.
	lost []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Getenv("MODBOX_TEST_GVISOR") != "1" {
		t.Skip("runs on real gVisor, with loop devices: set MODBOX_TEST_GVISOR=1 (make test does)")
	}
	fs := loopfs.New(t, 3<<30)
	state := filepath.Join(fs.Dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, fs: fs}
	t.Cleanup(func() { // after the server has printed its log, so that the result is the last line
		t.Logf("%d operations answered with success, %d lost: %q", m.operations.Load(), len(m.lost), m.lost)
	})
	m.Server = testserver.StartSmallIn(t, state, "--min-free-disk", "0", "--pool-size", "0")
	// The links to the images belong to the test, and need not survive.
	dir, err := os.Open(fs.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		t.Fatal(err)
	}
	return m
}

// cut takes the power from the machine, and starts it again.
func (m *machine) cut() {
	m.t.Helper()
	m.off.Store(true)
	m.fs.CutPower()
	m.Kill()
	m.KillBoxes()
	if left := m.Left("process "); len(left) > 0 {
		m.t.Fatalf("processes that hold the file system: %v", left)
	}
	if err := os.RemoveAll(m.RunDir); err != nil { // it is on tmpfs
		m.t.Fatal(err)
	}
	m.fs.Unmount()
	m.fs.Mount()
	m.off.Store(false)
	m.Launch()
}

// must counts an operation that was answered, with success unless the test is over.
func (m *machine) must(what string, err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
	m.operations.Add(1)
}

// kept counts an operation as lost unless ok.
func (m *machine) kept(ok bool, format string, args ...any) {
	m.t.Helper()
	if !ok {
		m.lost = append(m.lost, fmt.Sprintf(format, args...))
		m.t.Errorf("lost: "+format, args...)
	}
}

// operations change a machine and return the check that the change survived.
var operations = map[string]func(m *machine) (check func()){
	"pause":       pause,
	"checkpoint":  checkpoint,
	"snapshot":    snapshot,
	"destroy":     destroy,
	"create":      create,
	"execution":   execution,
	"token":       token,
	"revocation":  revocation,
	"user":        user,
	"credential":  credential,
	"pull":        pull,
	"resumed":     resumed,
	"forgotten":   forgotten,
	"environment": environment,
}

func pause(m *machine) func() {
	sb := marked(m.t, m.Server, "")
	_, err := m.Sandboxes.Pause(m.t.Context(), sb.ID)
	m.must("pause", err)
	return func() { m.keptPaused(sb.ID) }
}

// keptPaused asserts that a sandbox is paused, and comes back with its memory and files.
func (m *machine) keptPaused(id string) {
	m.t.Helper()
	now, err := m.Sandboxes.Get(m.t.Context(), id)
	m.kept(err == nil && now.State == client.Paused, "a pause: %+v, %v", now, err)
	if err != nil || now.State != client.Paused {
		return
	}
	res, err := m.Sandboxes.Exec(m.t.Context(), id, client.Command{Argv: []string{"cat", "/marker"}})
	m.kept(err == nil && string(res.Stdout) == "kept\n", "files of a paused sandbox: %+v, %v", res, err)
	now, err = m.Sandboxes.Get(m.t.Context(), id)
	m.kept(err == nil && now.MemoryLostReason == "", "memory of a paused sandbox: %+v, %v", now, err)
}

func checkpoint(m *machine) func() {
	sb := marked(m.t, m.Server, "")
	_, err := m.Sandboxes.Pause(m.t.Context(), sb.ID)
	m.must("pause", err)
	cp, err := m.Sandboxes.Checkpoints.Create(m.t.Context(), sb.ID, "one")
	m.must("checkpoint", err)
	return func() {
		_, err := m.Sandboxes.Checkpoints.Restore(m.t.Context(), sb.ID, cp.ID)
		m.kept(err == nil, "a checkpoint: %v", err)
		if err == nil {
			holdsMarker(m.t, m.Server, sb.ID)
		}
	}
}

func snapshot(m *machine) func() {
	sb := marked(m.t, m.Server, "")
	sn, err := m.Snapshots.Create(m.t.Context(), sb.ID, client.SnapshotOptions{Name: "s"})
	m.must("snapshot", err)
	return func() {
		child, err := m.Sandboxes.Create(m.t.Context(), client.CreateOptions{Snapshot: sn.ID, Resources: small, WaitUpTo: 5 * time.Minute})
		m.kept(err == nil && child.State == client.Running, "a snapshot: %+v, %v", child, err)
		if err == nil {
			holdsMarker(m.t, m.Server, child.ID)
		}
	}
}

func destroy(m *machine) func() {
	sb := marked(m.t, m.Server, "")
	_, err := m.Sandboxes.Pause(m.t.Context(), sb.ID)
	m.must("pause", err)
	_, err = m.Sandboxes.Delete(m.t.Context(), sb.ID)
	m.must("destroy", err)
	return func() {
		now, err := m.Sandboxes.Get(m.t.Context(), sb.ID)
		m.kept(err == nil && now.State != client.Paused && now.State != client.Running, "a destroy: %+v, %v", now, err)
	}
}

func create(m *machine) func() {
	sb, err := m.Sandboxes.Create(m.t.Context(), client.CreateOptions{Image: "modbox/base", Resources: small})
	m.must("create", err)
	return func() {
		now, err := m.Sandboxes.Get(m.t.Context(), sb.ID)
		m.kept(err == nil, "a sandbox: %+v, %v", now, err)
	}
}

func execution(m *machine) func() {
	sb := marked(m.t, m.Server, "")
	e, err := m.Executions.Start(m.t.Context(), sb.ID, client.Command{Shell: "seq 10000"}, client.ExecutionOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	if e, err = m.Executions.Get(m.t.Context(), e.ID, time.Minute); err == nil && e.ExitCode == nil {
		err = fmt.Errorf("it is %s", e.State)
	}
	m.must("execution", err)
	return func() {
		now, err := m.Executions.Get(m.t.Context(), e.ID, 0)
		m.kept(err == nil && now.ExitCode != nil && *now.ExitCode == 0, "an execution: %+v, %v", now, err)
		if err != nil {
			return
		}
		r, err := m.Streams.Read(m.t.Context(), now.Stdout.StreamID, client.StreamOptions{})
		if err != nil {
			m.kept(false, "output of an execution: %v", err)
			return
		}
		defer r.Close()
		out, err := io.ReadAll(r)
		m.kept(err == nil && strings.HasPrefix(string(out), "1\n2\n") && strings.HasSuffix(string(out), "\n10000\n"), "output of an execution: %d bytes, %v", len(out), err)
	}
}

func token(m *machine) func() {
	made, err := m.Tokens.Create(m.t.Context(), "a token", client.TokenOptions{})
	m.must("token", err)
	return func() {
		_, err := m.WithToken(made.Secret).WhoAmI(m.t.Context())
		m.kept(err == nil, "a token: %v", err)
	}
}

func revocation(m *machine) func() {
	made, err := m.Tokens.Create(m.t.Context(), "a token", client.TokenOptions{})
	m.must("token", err)
	m.must("revocation", m.Tokens.Revoke(m.t.Context(), made.ID))
	return func() {
		_, err := m.WithToken(made.Secret).WhoAmI(m.t.Context())
		m.kept(client.IsCode(err, client.Unauthenticated), "a revocation: the token is answered with %v", err)
	}
}

func user(m *machine) func() {
	name := fmt.Sprint("user", rand.Uint32())
	made, err := m.Users.Create(m.t.Context(), client.UserOptions{Name: name, Password: "a long enough password"})
	m.must("user", err)
	return func() {
		_, err := m.Account.Login(m.t.Context(), name, "a long enough password")
		m.kept(err == nil, "a user %+v: %v", made, err)
	}
}

func credential(m *machine) func() {
	text := func(s string) *string { return &s }
	made, err := m.Registries.Create(m.t.Context(), client.RegistryFields{Name: text(fmt.Sprint("r", rand.Uint32())), Server: text("registry.example"), Username: text("ada"), Password: text("secret")})
	m.must("credential", err)
	return func() {
		got, err := m.Registries.Get(m.t.Context(), made.ID)
		m.kept(err == nil, "a credential: %+v, %v", got, err)
	}
}

func pull(m *machine) func() {
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	m.t.Cleanup(srv.Close)
	ref, err := name.ParseReference(strings.TrimPrefix(srv.URL, "http://")+"/image:one", name.Insecure)
	if err != nil {
		m.t.Fatal(err)
	}
	img, err := random.Image(1<<20, 2)
	if err == nil {
		err = remote.Write(ref, img)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	pulled, err := m.Images.Pull(m.t.Context(), ref.String(), nil)
	m.must("pull", err)
	return func() {
		list, err := m.Images.List().Collect(m.t.Context())
		found := false
		for _, i := range list {
			found = found || i.Digest == pulled.Digest
		}
		m.kept(err == nil && found && !strings.Contains(m.Log(), "an image is damaged"), "an image %+v: %+v, %v", pulled, list, err)
	}
}

// resumed leaves a sandbox running, which ends with the power: not paused as it was before.
func resumed(m *machine) func() {
	sb := marked(m.t, m.Server, "")
	_, err := m.Sandboxes.Pause(m.t.Context(), sb.ID)
	m.must("pause", err)
	_, err = m.Sandboxes.Resume(m.t.Context(), sb.ID, client.ResumeOptions{})
	m.must("resume", err)
	return func() {
		now, err := m.Sandboxes.Wait(m.t.Context(), sb.ID, client.Failed)
		m.kept(err == nil && now.State == client.Failed && now.Cause != nil && now.Cause.Code == "host_restart", "a resume: %+v, %v", now, err)
	}
}

func forgotten(m *machine) func() {
	sb := marked(m.t, m.Server, "")
	_, err := m.Sandboxes.Pause(m.t.Context(), sb.ID)
	m.must("pause", err)
	cp, err := m.Sandboxes.Checkpoints.Create(m.t.Context(), sb.ID, "one")
	m.must("checkpoint", err)
	m.must("deletion of a checkpoint", m.Sandboxes.Checkpoints.Delete(m.t.Context(), sb.ID, cp.ID))
	return func() {
		list, err := m.Sandboxes.Checkpoints.List(sb.ID).Collect(m.t.Context())
		m.kept(err == nil && len(list) == 0, "the deletion of a checkpoint: %+v, %v", list, err)
		m.keptPaused(sb.ID)
	}
}

func environment(m *machine) func() {
	sb := marked(m.t, m.Server, "")
	value := "set"
	_, err := m.Sandboxes.UpdateEnv(m.t.Context(), sb.ID, map[string]*string{"KEPT": &value})
	m.must("environment", err)
	_, err = m.Sandboxes.Pause(m.t.Context(), sb.ID)
	m.must("pause", err)
	return func() {
		res, err := m.Sandboxes.Exec(m.t.Context(), sb.ID, client.Command{Shell: "echo $KEPT"})
		m.kept(err == nil && string(res.Stdout) == "set\n", "a variable: %+v, %v", res, err)
	}
}

// TestWhatWasAnsweredSurvivesAPowerCut cuts the power right after the answer to each operation.
func TestWhatWasAnsweredSurvivesAPowerCut(t *testing.T) {
	m := newMachine(t)
	for what, do := range operations {
		check := do(m)
		m.cut()
		before := len(m.lost)
		check()
		if lost := len(m.lost) - before; lost > 0 {
			t.Errorf("%s: %d lost", what, lost)
		}
	}
	m.nothingOrphaned()
}

// TestPowerCutLater cuts it some seconds later, when part of what the kernel held back has
// reached the disk, in an order of its own.
func TestPowerCutLater(t *testing.T) {
	m := newMachine(t)
	for _, later := range []time.Duration{time.Second, 4 * time.Second, 6 * time.Second, 15 * time.Second} {
		var checks []func()
		for _, do := range operations {
			checks = append(checks, do(m))
		}
		<-time.After(later) // the test is about that moment
		m.cut()
		for _, check := range checks {
			check()
		}
	}
	m.nothingOrphaned()
}

// TestPowerCutInAStorm cuts the power while many operations are under way.
func TestPowerCutInAStorm(t *testing.T) {
	m := newMachine(t)
	const rounds, workers = 4, 3
	for range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		paused, tokens, revoked, destroyed := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
		note := func(in map[string]bool, what string, err error) bool {
			if err != nil || m.off.Load() {
				return false
			}
			m.operations.Add(1)
			mu.Lock()
			defer mu.Unlock()
			in[what] = true
			return true
		}
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					made, err := m.Tokens.Create(ctx, "storm", client.TokenOptions{})
					if err != nil {
						continue
					}
					// Few are revoked: the server slows an address that sends many wrong tokens.
					if n > 0 {
						note(tokens, made.Secret, nil)
					} else if err := m.Tokens.Revoke(ctx, made.ID); err == nil {
						note(revoked, made.Secret, nil)
					}
					sb, err := m.Sandboxes.Create(ctx, client.CreateOptions{Image: "modbox/base", Resources: small, WaitUpTo: 5 * time.Minute})
					if err != nil || sb.State != client.Running {
						continue
					}
					if res, err := m.Sandboxes.Exec(ctx, sb.ID, client.Command{User: "root", Shell: "echo kept > /marker"}); err != nil || res.ExitCode != 0 {
						continue
					}
					_, err = m.Sandboxes.Pause(ctx, sb.ID)
					if err == nil && n%3 == 2 {
						_, err = m.Sandboxes.Delete(ctx, sb.ID)
						note(destroyed, sb.ID, err)
					} else if err == nil {
						note(paused, sb.ID, nil)
					}
				}
			})
		}
		// The moment is random on purpose: between any two steps of any of the calls.
		<-time.After(time.Duration(1000+rand.IntN(4000)) * time.Millisecond)
		m.off.Store(true)
		m.fs.CutPower()
		cancel()
		wg.Wait()
		m.cut()
		for id := range paused {
			m.keptPaused(id)
			if _, err := m.Sandboxes.Delete(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		for secret := range tokens {
			_, err := m.WithToken(secret).WhoAmI(t.Context())
			m.kept(err == nil, "a token: %v", err)
		}
		for secret := range revoked {
			_, err := m.WithToken(secret).WhoAmI(t.Context())
			m.kept(client.IsCode(err, client.Unauthenticated), "a revocation: %v", err)
		}
		for id := range destroyed {
			now, err := m.Sandboxes.Get(t.Context(), id)
			m.kept(client.IsCode(err, client.NotFound) || err == nil && now.State != client.Paused && now.State != client.Running, "a destroy: %+v, %v", now, err)
		}
	}
	m.nothingOrphaned()
}

// nothingOrphaned destroys all sandboxes and asserts that no saved state stays.
func (m *machine) nothingOrphaned() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Minute)
	defer cancel()
	for sb, err := range m.Sandboxes.List(client.ListOptions{}).All(ctx) {
		if err != nil {
			m.t.Fatal(err)
		}
		if _, err := m.Sandboxes.Delete(ctx, sb.ID); err != nil {
			m.t.Errorf("delete %s: %v", sb.ID, err)
		}
	}
	var left []string
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) { // polling another process
		left = nil
		for _, dir := range []string{"checkpoints/*/*", "quarantine/*", "layers/*"} {
			names, err := filepath.Glob(filepath.Join(m.StateDir, dir))
			if err != nil {
				m.t.Fatal(err)
			}
			left = append(left, names...)
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	m.t.Logf("%d orphaned", len(left))
	if len(left) > 0 {
		m.t.Errorf("orphaned: %v", left)
	}
}
