package lifecycle_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/stream"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// env is a host with a database, on which servers come and go.
type env struct {
	t      *testing.T
	host   *host
	dbPath string
	caller lifecycle.Caller
	cfg    lifecycle.Config
	images *catalogue
	// network is what servers have; nil for none.
	network lifecycle.Network
	// isolated has the driver claim that what runs in its boxes cannot reach the host.
	isolated bool
}

// saved returns the names of what is kept of a sandbox, or of forks, on the host.
func (e *env) saved(owner string) []string {
	e.t.Helper()
	entries, err := os.ReadDir(filepath.Join(e.cfg.CheckpointDir, owner))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		e.t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// newEnv also lets the test run beside others.
func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	return newEnvHere(t)
}

// newEnvHere is newEnv for tests that need several.
func newEnvHere(t *testing.T) *env {
	t.Helper()
	e := &env{
		t: t, host: newHost(t), dbPath: filepath.Join(t.TempDir(), "modbox.db"),
		images: newCatalogue(t.TempDir()),
		// The sweep is called by the tests that are about it.
		cfg: lifecycle.Config{SweepInterval: time.Hour, CheckpointDir: filepath.Join(t.TempDir(), "checkpoints")}.ShortTTL(time.Millisecond),
	}
	st := e.openStore()
	ws, user, err := st.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	e.caller = lifecycle.Caller{User: user, Workspace: ws}
	return e
}

func (e *env) openStore() *store.Store {
	e.t.Helper()
	st, err := store.Open(e.t.Context(), e.dbPath)
	if err != nil {
		e.t.Fatal(err)
	}
	return st
}

// backdate changes when a sandbox was asked for. No server runs meanwhile.
func (e *env) backdate(id sandbox.ID, at time.Time) {
	e.t.Helper()
	db, err := sql.Open("sqlite", e.dbPath)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	res, err := db.ExecContext(e.t.Context(), "UPDATE sandboxes SET created_at = $1 WHERE id = $2", at.UnixNano(), id)
	if err != nil {
		e.t.Fatal(err)
	}
	if n, err := res.RowsAffected(); n != 1 || err != nil {
		e.t.Fatalf("backdated %d rows, %v, want 1", n, err)
	}
}

// server is one life of the service.
type server struct {
	*lifecycle.Service
	t      *testing.T
	caller lifecycle.Caller
	store  *faultyStore
	driver *faultyDriver
}

// start runs a server until the end of the test or its stop.
func (e *env) start() *server {
	e.t.Helper()
	s := e.prepare()
	if err := s.Start(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
	return s
}

// prepare makes a server that is not started.
func (e *env) prepare() *server {
	e.t.Helper()
	st := e.openStore()
	f := &faults{}
	s := &server{
		t: e.t, caller: e.caller,
		store:  &faultyStore{Store: st, faults: f},
		driver: &faultyDriver{Driver: e.host.open(), faults: f, isolated: e.isolated},
	}
	logger := slog.New(slog.NewTextHandler(e.t.Output(), nil))
	streams, err := stream.Open(filepath.Join(filepath.Dir(e.dbPath), "streams"), logger)
	if err != nil {
		e.t.Fatal(err)
	}
	s.Service, err = lifecycle.New(e.cfg, lifecycle.Deps{
		Streams: streams,
		Store:   s.store, Driver: s.driver, Images: e.images, Layers: e.images, Logger: logger, Network: e.network,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(s.stop)
	return s
}

// stop closes the server as an orderly shutdown does. Idempotent.
func (s *server) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		s.t.Errorf("Close: %v", err)
	}
	if err := errors.Join(s.driver.Driver.Close(), s.store.Store.(*store.Store).Close()); err != nil {
		s.t.Errorf("close driver and store: %v", err)
	}
}

// kill ends the server as SIGKILL does: from now on nothing it does has an effect.
func (s *server) kill() {
	s.store.faults.die()
	s.stop()
}

func (s *server) create(req lifecycle.CreateRequest) sandbox.Sandbox {
	s.t.Helper()
	sb, created, err := s.Create(s.t.Context(), s.caller, req)
	if err != nil || !created {
		s.t.Fatalf("Create(%q) = created %v, %v, want a new one", req.Name, created, err)
	}
	return sb
}

// reach waits until the sandbox is in the state and fails the test when it gets elsewhere.
func (s *server) reach(ref string, want sandbox.State) sandbox.Sandbox {
	s.t.Helper()
	sb, err := s.Wait(s.t.Context(), s.caller, ref, want, 30*time.Second)
	if err != nil || sb.State != want {
		s.t.Fatalf("sandbox %q is %s (%v), error %v; want %s", ref, sb.State, sb.Cause, err, want)
	}
	return sb
}

// run creates a sandbox and waits until it runs.
func (s *server) run(req lifecycle.CreateRequest) sandbox.Sandbox {
	s.t.Helper()
	return s.reach(string(s.create(req).ID), sandbox.Running)
}

func (s *server) destroy(ref string) sandbox.Sandbox {
	s.t.Helper()
	sb, err := s.Destroy(s.t.Context(), s.caller, ref, "")
	if err != nil {
		s.t.Fatalf("Destroy(%q): %v", ref, err)
	}
	return sb
}

// eventTypes returns the types of a sandbox's events in order.
func (s *server) eventTypes(ref string) []sandbox.EventType {
	s.t.Helper()
	events, err := s.Events(s.t.Context(), s.caller, ref, 0, 0, false)
	if err != nil {
		s.t.Fatal(err)
	}
	types := make([]sandbox.EventType, len(events))
	for i, ev := range events {
		types[i] = ev.Type
	}
	return types
}

// eventually waits until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
		tick := time.NewTimer(time.Millisecond)
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// catalogue is the images of the tests.
type catalogue struct {
	mu   sync.Mutex
	list []sandbox.Image
	fail error // of Resolve from inside provisioning; guarded by mu
	seen int   // calls of Resolve; guarded by mu
	// ensure makes an image that is not there; guarded by mu.
	ensure func(ctx context.Context, ref string, progress func(sandbox.ImageEvent)) error
	// unmade are the digests of those that are not there; guarded by mu.
	unmade map[string]bool
	// aged: Collect takes nothing for just made.
	aged bool
	dir  string
	made map[string]string // paths of what Commit made, by digest; guarded by mu
	// cached are digests of what was made, by their keys; guarded by mu.
	cached map[string]string
	stale  string // the reference that is; guarded by mu
}

const (
	plainID = sandbox.ImageID("00000000-0000-0000-0000-000000000001")
	readyID = sandbox.ImageID("00000000-0000-0000-0000-000000000002")
)

func newCatalogue(dir string) *catalogue {
	return &catalogue{dir: dir, made: map[string]string{}, list: []sandbox.Image{
		{ID: plainID, Name: "modbox/base", Tag: "latest", IsDefault: true, Digest: "sha256:1"},
		{ID: readyID, Name: "modbox/web", Tag: "latest", Digest: "sha256:2", ReadinessPort: 8080},
		{
			ID: "00000000-0000-0000-0000-000000000003", Name: "modbox/big", Tag: "latest", Digest: "sha256:3",
			MemoryBytes: 1 << 40, TTL: time.Hour,
		},
	}}
}

func (c *catalogue) find(match func(*sandbox.Image) bool) (sandbox.Image, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.list, func(img sandbox.Image) bool { return match(&img) }); i >= 0 {
		return c.list[i], nil
	}
	return sandbox.Image{}, sandbox.Errorf(sandbox.NotFound, "there is no such image")
}

func (c *catalogue) Resolve(_ context.Context, ref string) (sandbox.Image, string, error) {
	c.mu.Lock()
	c.seen++
	err := c.fail
	c.mu.Unlock()
	if err != nil {
		return sandbox.Image{}, "", err
	}
	img, err := c.Lookup(context.Background(), ref)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unmade[img.Digest] {
		return sandbox.Image{}, "", sandbox.Errorf(sandbox.NotFound, "it is not made")
	}
	if path, ok := c.made[img.Digest]; ok {
		return img, path, err
	}
	return img, "/nowhere/" + img.Digest, err
}

func (c *catalogue) Lookup(_ context.Context, ref string) (sandbox.Image, error) {
	return c.find(func(img *sandbox.Image) bool { return ref == img.Name || ref == img.Ref() || ref == img.Digest })
}

func (c *catalogue) Ensure(ctx context.Context, ref string, _ sandbox.Puller, progress func(sandbox.ImageEvent)) (sandbox.Image, string, error) {
	c.mu.Lock()
	ensure := c.ensure
	c.mu.Unlock()
	if ensure != nil {
		if err := ensure(ctx, ref, progress); err != nil {
			return sandbox.Image{}, "", err
		}
		img, err := c.Lookup(ctx, ref)
		if err != nil {
			return img, "", err
		}
		c.mu.Lock()
		delete(c.unmade, img.Digest)
		c.mu.Unlock()
	}
	return c.Resolve(ctx, ref)
}

func (c *catalogue) Stale(ref string, _ sandbox.Puller) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stale == ref
}

func (c *catalogue) Update(ctx context.Context, ref string, who sandbox.Puller, progress func(sandbox.ImageEvent)) (sandbox.Image, error) {
	img, _, err := c.Ensure(ctx, ref, who, progress)
	return img, err
}

func (c *catalogue) Runtimes(context.Context) ([]sandbox.Runtime, error) { return nil, nil }

// Commit makes an image that is found by its digest alone. The layers of the fake
// driver hold everything, so the base does not matter.
func (c *catalogue) Commit(_ context.Context, base string, layer io.Reader) (lifecycle.Layered, error) {
	data, err := io.ReadAll(layer)
	if err != nil {
		return lifecycle.Layered{}, err
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(append([]byte(base), data...)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made[digest] == "" {
		path := filepath.Join(c.dir, digest+".tar")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return lifecycle.Layered{}, err
		}
		c.made[digest] = path
		c.list = append(slices.Clone(c.list), sandbox.Image{Digest: digest, SizeBytes: int64(len(data))})
	}
	return lifecycle.Layered{Digest: digest, SizeBytes: int64(len(data)), LayerBytes: int64(len(data)), FileCount: 1}, nil
}

func (c *catalogue) ByID(_ context.Context, id sandbox.ImageID) (sandbox.Image, error) {
	return c.find(func(img *sandbox.Image) bool { return img.ID == id })
}

func (c *catalogue) List(context.Context) ([]sandbox.Image, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list), nil
}

// faults stand between a server and what it writes to: they make single calls
// fail or wait, or make the server as good as dead.
type faults struct {
	mu    sync.Mutex
	calls []string // what was called so far; guarded by mu
	// before, when set, is asked before every call that changes something; its
	// error is the call's, which then has no effect. after is asked behind it; its
	// error hides the effect from the server. Guarded by mu.
	before, after func(n int, call string) error
	dead          bool // guarded by mu
}

var errDead = errors.New("this server was killed")

func (f *faults) die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
}

// on sets what is asked before and after calls.
func (f *faults) on(before, after func(n int, call string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

// called returns the calls so far.
func (f *faults) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// do makes a call that changes something.
func (f *faults) do(call string, do func() error) error {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	n, before, after := len(f.calls), f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(n, call); err != nil {
			return err
		}
	}
	if f.isDead() {
		return errDead
	}
	err := do()
	if after != nil {
		if err := after(n, call); err != nil {
			return err
		}
	}
	if f.isDead() {
		return errDead
	}
	return err
}

func (f *faults) isDead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

type faultyStore struct {
	lifecycle.Store
	faults *faults
}

func (s *faultyStore) CreateSandbox(ctx context.Context, c sandbox.Creation) (rec sandbox.Recorded, err error) {
	err = s.faults.do("store.CreateSandbox", func() error {
		rec, err = s.Store.CreateSandbox(ctx, c)
		return err
	})
	return rec, err
}

func (s *faultyStore) SetBox(ctx context.Context, id sandbox.ID, digest string, handle []byte) (sb sandbox.Sandbox, err error) {
	err = s.faults.do("store.SetBox", func() error {
		sb, err = s.Store.SetBox(ctx, id, digest, handle)
		return err
	})
	return sb, err
}

func (s *faultyStore) Transition(ctx context.Context, id sandbox.ID, from, to sandbox.State, mutate func(*sandbox.Sandbox), ev sandbox.Event) (sb sandbox.Sandbox, err error) {
	err = s.faults.do("store.Transition "+string(to), func() error {
		sb, err = s.Store.Transition(ctx, id, from, to, mutate, ev)
		return err
	})
	return sb, err
}

type faultyDriver struct {
	driver.Driver
	faults *faults
	specs  sync.Map // of what was created, by id
	// isolated is claimed, see Capabilities.
	isolated bool
	// tidied are the checkpoints that there were when the server started.
	tidied []string
}

func (d *faultyDriver) Create(ctx context.Context, spec driver.Spec) (h driver.Handle, err error) {
	d.specs.Store(spec.ID, spec)
	err = d.faults.do("driver.Create", func() error {
		h, err = d.Driver.Create(ctx, spec)
		return err
	})
	return h, err
}

func (d *faultyDriver) Start(ctx context.Context, id sandbox.ID) error {
	return d.faults.do("driver.Start", func() error { return d.Driver.Start(ctx, id) })
}

func (d *faultyDriver) Destroy(ctx context.Context, id sandbox.ID) error {
	return d.faults.do("driver.Destroy", func() error { return d.Driver.Destroy(ctx, id) })
}

func (d *faultyDriver) Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts driver.CheckpointOptions) error {
	return d.faults.do("driver.Checkpoint", func() error {
		return d.Driver.(driver.Checkpointer).Checkpoint(ctx, id, dir, opts)
	})
}

func (d *faultyDriver) CanRestore(dir string) error {
	return d.Driver.(driver.Checkpointer).CanRestore(dir)
}

func (d *faultyDriver) OpenLayer(dir string) (io.ReadCloser, error) {
	return d.Driver.(driver.Checkpointer).OpenLayer(dir)
}

func (d *faultyDriver) Restore(ctx context.Context, spec driver.Spec, dir string) (h driver.Handle, err error) {
	err = d.faults.do("driver.Restore", func() error {
		h, err = d.Driver.(driver.Checkpointer).Restore(ctx, spec, dir)
		return err
	})
	return h, err
}

func (s *faultyStore) CreateCheckpoint(ctx context.Context, c sandbox.Checkpoint, limit int, ev sandbox.Event) error {
	return s.faults.do("store.CreateCheckpoint", func() error { return s.Store.CreateCheckpoint(ctx, c, limit, ev) })
}

func (s *faultyStore) DeleteCheckpoint(ctx context.Context, id sandbox.CheckpointID, ev sandbox.Event) error {
	return s.faults.do("store.DeleteCheckpoint", func() error { return s.Store.DeleteCheckpoint(ctx, id, ev) })
}
