package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/build"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/network"
	outputs "github.com/modbox/modbox/internal/output"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
	"github.com/modbox/modbox/internal/stream"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout is how long a test waits for what must happen. Nothing takes so long
// unless it never happens.
const testTimeout = 3 * time.Minute

// env is a host with a database, on which servers come and go.
type env struct {
	t      *testing.T
	host   *host
	dbPath string
	caller sandbox.Caller
	cfg    lifecycle.Config
	images *images
	calls  *agentapi.Memory
	// output are the settings of stored output; none is stored without a URL.
	output outputs.Config
	// gateways is the network of the servers; nil for none.
	gateways network.Gateways
	// isolated has the driver claim that what runs in its boxes cannot reach the host.
	isolated bool
	// owner has the shards of the servers; nil for all.
	owner *sandbox.Ownership
	// turn is ReserveSave of the driver; nil for a driver without.
	turn func(ctx context.Context, id sandbox.ID) (release func(), err error)
	// onLog is called with each message that the servers log, before they continue; nil for nothing.
	onLog func(message string)
}

// logged calls a function with each message.
type logged struct {
	slog.Handler
	call func(message string)
}

func (l logged) Handle(ctx context.Context, r slog.Record) error {
	l.call(r.Message)
	return l.Handler.Handle(ctx, r)
}

// saved returns the names of the saved states of a sandbox, or of forks, on the host.
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
		images: newImages(t.TempDir()), calls: agentapi.NewMemory(256 << 20),
		// The sweep is called by the tests that are about it.
		cfg: lifecycle.Config{SweepInterval: time.Hour, CheckpointDir: filepath.Join(t.TempDir(), "checkpoints")}.ShortTTL(time.Millisecond),
	}
	st := e.openStore()
	ws, user, err := st.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	e.caller = sandbox.Caller{User: user, Workspace: ws}
	return e
}

func (e *env) openStore() *store.Store {
	e.t.Helper()
	keys, err := secret.Open(filepath.Join(filepath.Dir(e.dbPath), "secret.key"), "")
	if err != nil {
		e.t.Fatal(err)
	}
	storetest.Create(e.t, e.dbPath)
	at := storetest.At(e.t, e.dbPath)
	if storetest.Postgres() {
		at.Postgres.Ranges = e.owner.Ranges()
	}
	st, err := store.OpenAt(e.t.Context(), at, store.WithKeys(keys))
	if err != nil {
		e.t.Fatal(err)
	}
	return st
}

// backdate changes when a sandbox was asked for. No server runs meanwhile.
func (e *env) backdate(id sandbox.ID, at time.Time) {
	e.t.Helper()
	db := storetest.Raw(e.t, e.dbPath)
	defer func() { _ = db.Close() }() // before the next server
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
	caller sandbox.Caller
	builds build.Host
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
		store:  &faultyStore{storeRows: rowsOf(st, e.owner), faults: f, store: st},
		driver: &faultyDriver{Driver: e.host.open(), faults: f, isolated: e.isolated},
	}
	var handler slog.Handler = slog.NewTextHandler(e.t.Output(), nil)
	if e.onLog != nil {
		handler = logged{handler, e.onLog}
	}
	logger := slog.New(handler)
	streams, err := stream.Open(filepath.Join(filepath.Dir(e.dbPath), "streams"), e.owner, logger)
	if err != nil {
		e.t.Fatal(err)
	}
	var d driver.Driver = s.driver
	if e.turn != nil {
		d = &turnDriver{s.driver, e.turn}
	}
	var stored execution.Stored
	if e.output.URL != "" {
		stored = outputs.New(e.output, outputs.Deps{Records: st.Executions.Outputs(), Used: st.Sandboxes.Archives().Any, Confirm: st.Confirm, Streams: streams, Logger: logger})
	}
	s.Service, err = lifecycle.New(e.cfg, lifecycle.Deps{
		Streams: streams, StoredOutput: stored, Owner: e.owner,
		Store: s.store, Starts: s.store, Lookup: s.store, Quotas: s.store, Usage: s.store, Networks: s.store, Environments: s.store, Executions: s.store,
		Checkpoints: &faultyCheckpoints{Records: st.Checkpoints, faults: f}, Snapshots: s.store, Drafts: s.store, Switches: st.Catalogue, Archives: &faultyArchives{Records: st.Sandboxes, faults: f}, States: st.Sandboxes.Archives(), Copies: &faultyCopies{Checkpoints: st.Sandboxes.Archives(), faults: f}, Driver: d, Images: e.images, Catalogue: catalogue.New(st.Catalogue, st.Registries, e.images, 0), Layers: e.images, Logger: logger, Gateways: e.gateways, Calls: e.calls,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	s.builds = build.NewHost(e.cfg.MaxBuilds, build.HostDeps{
		Images: e.images, Snapshots: s.Snapshots(), Prepare: s.Prepare(), Boxes: s.WorkBoxes(), Quotas: s.Quotas(), Work: s.Work(),
	})
	e.t.Cleanup(s.stop)
	return s
}

// stop closes the server as an orderly shutdown does. Idempotent.
func (s *server) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		s.t.Errorf("Close: %v", err)
	}
	if err := errors.Join(s.driver.Driver.Close(), s.store.store.Close()); err != nil {
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
	sb, err := s.Wait(s.t.Context(), s.caller, ref, want, testTimeout)
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
	events, err := s.Events(s.t.Context(), s.caller, ref, sandbox.EventFilter{})
	if err != nil {
		s.t.Fatal(err)
	}
	types := make([]sandbox.EventType, len(events.Items))
	for i, ev := range events.Items {
		types[i] = ev.Type
	}
	return types
}

// eventually waits until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", testTimeout, what)
		}
		tick := time.NewTimer(time.Millisecond)
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}
