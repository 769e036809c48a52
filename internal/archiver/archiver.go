// Package archiver moves the saved states of paused sandboxes to an object store, and back to the disk of the server before something
// needs them. It copies states and checkpoints to the object store, so that they outlive the disk.
//
// The order of the steps decides what a crash leaves. To archive a state, it is stored first, then the row of the sandbox says so, and then
// the local files are removed. To fetch a state, its directory appears when it is complete, and then the row says that it is there. Local files
// of a sandbox whose row says that it is archived are remains, and so are stored states that no row has. The sweep removes both.
//
// A stored state whose sandbox went on or ended is released. It stays for a time, because the database may be replaced by a backup of
// before, and counts for the quota of its workspace; what needs the space removes the states that were released first. Their data stays
// until the next collection that finds it old, like the data of interrupted uploads. So a workspace that has sent its quota since
// the last collection sends nothing until the next. The bucket has of it at most its quota, and what it has sent since the collection before the
// last.
package archiver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/modbox/modbox/internal/archive"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sharedcall"
)

// Each transfer takes up to four blobs of 4 MiB of memory, and a part of the bandwidth and of the processors.
const (
	uploads = 2
	fetches = 4
	// uploadsMost is the number of uploads of a workspace that may be in progress or wait, each with a goroutine.
	uploadsMost = 100
	// lookTimeout bounds the request that asks the store whether it has a state.
	lookTimeout = 30 * time.Second
)

// Config are the settings of the service.
type Config struct {
	// URL is the bucket of archived sandboxes; "" for none. KeyFile has the key that encrypts them; "" for no encryption.
	URL, KeyFile string
	// Grace is the time for which a stored state stays that no sandbox needs any more.
	Grace time.Duration
	// After is the time after which paused sandboxes are archived; 0 for never.
	After time.Duration
	// Copies says that the state of each paused sandbox and all checkpoints are also copied to the bucket, and the local files stay.
	Copies bool
	// Installation is the installation whose states the sweep removes.
	Installation string
	// Space is the space of the disk to which states are fetched; nil for a budget of its own.
	Space *ballast.Budget
	// Observe, if set, is called with the begin and the result of each upload and fetch.
	Observe func(kind box.OperationKind, begin time.Time, err error)
}

// Records are the records of archived sandboxes. Their methods are safe for concurrent use. Internal/store has them.
type Records interface {
	// Archive records that the state of a paused sandbox is in the object store, and Fetched that it is on the disk again, where it takes size
	// bytes. They return the row, and change nothing when that is recorded already. Errors: NotFound; Conflict when the sandbox is not paused with that state; QuotaExceeded.
	Archive(ctx context.Context, id sandbox.ID, saved sandbox.CheckpointID, size int64, ev sandbox.Event, a quota.Admission) (sandbox.Sandbox, error)
	Fetched(ctx context.Context, id sandbox.ID, saved sandbox.CheckpointID, size int64, ev sandbox.Event, a quota.Admission) (sandbox.Sandbox, error) // see Archive
	// Copied records that the state of a paused sandbox is also in the object store. It changes nothing for a state that is recorded there. Errors: as of Archive.
	Copied(ctx context.Context, id sandbox.ID, saved sandbox.CheckpointID, size int64, at time.Time, a quota.Admission) error
}

// States are the records of stored states. Their methods are safe for concurrent use. Internal/store has them.
type States interface {
	// Released returns released states that no sandbox is paused with and no checkpoint has, of one workspace or, with "", of all, the first released first.
	Released(ctx context.Context, ws sandbox.WorkspaceID, before time.Time, limit int) ([]sandbox.CheckpointID, error)
	// Forget deletes the record of a released state, unless a sandbox is paused with it or a checkpoint has it. It reports whether it did.
	Forget(ctx context.Context, id sandbox.CheckpointID) (bool, error)
	// Known reports whether the state has a record, a sandbox is paused with it, or a checkpoint has it.
	Known(ctx context.Context, id sandbox.CheckpointID) (bool, error)
	// Stored returns the bytes that the record of a state counts; 0 without a record.
	Stored(ctx context.Context, id sandbox.CheckpointID) (int64, error)
	// Any reports whether there is any record, or anything was sent since ClearSent.
	Any(ctx context.Context) (bool, error)
	// Sent returns the bytes that a workspace has sent since ClearSent.
	Sent(ctx context.Context, ws sandbox.WorkspaceID) (int64, error)
	// AddSent adds to the bytes that a workspace has sent.
	AddSent(ctx context.Context, ws sandbox.WorkspaceID, n int64) error
	// ClearSent records that unused data was removed.
	ClearSent(ctx context.Context) error
	// Uncopied returns the states of paused sandboxes that are not recorded in the object store.
	Uncopied(ctx context.Context) ([]sandbox.CheckpointID, error)
	// Use returns the number of archived sandboxes, and the bytes of all stored states.
	Use(ctx context.Context) (archived, bytes int64, err error)
}

// Sandboxes finds the boxes of sandboxes.
type Sandboxes interface {
	// Find returns a sandbox, and its box unless it has ended. Errors: NotFound.
	Find(ctx context.Context, c sandbox.Caller, ref string) (*box.Box, sandbox.Sandbox, error)
}

// Deps are the parts that the service uses. It does not close them.
type Deps struct {
	Records     Records
	States      States
	Checkpoints Checkpoints
	Sandboxes   Sandboxes
	Boxes       func() []*box.Box // of all live sandboxes
	Saved       *checkpoint.Store
	Driver      driver.Driver
	Quotas      *quota.Controller
	Work        *background.Group
	// Owner has the part of the server; nil for all sandboxes. The primary alone sweeps and collects in the bucket.
	Owner  *sandbox.Ownership
	Logger *slog.Logger
}

// Service archives paused sandboxes and fetches their states. It is safe for concurrent use.
type Service struct {
	cfg  Config
	deps Deps
	ctx  context.Context // of the work
	log  *slog.Logger

	uploads, fetches *fairsem.Semaphore
	// bucket is taken once by each upload, and as often as there may be uploads by a collection. Callers take turns in order.
	bucket  *semaphore.Weighted
	moved   moved
	ready   sharedcall.Group[sandbox.ID] // see Ready
	opening chan struct{}                // has an element while nobody opens the store

	mu     sync.Mutex
	store  *archive.Store                // once it is open; guarded by mu
	calls  map[sandbox.ID]*call          // uploads in progress; guarded by mu
	locked map[sandbox.CheckpointID]bool // states that are being stored or removed; guarded by mu
}

// call is an upload, whose callers share its result.
type call struct {
	workspace sandbox.WorkspaceID
	copies    bool // the local files stay
	done      chan struct{}
	err       error // valid after done is closed
}

// New returns a service.
func New(cfg Config, deps Deps) *Service {
	cfg.Space = cmp.Or(cfg.Space, ballast.NewBudget(0))
	s := &Service{
		cfg: cfg, deps: deps, ctx: deps.Work.Context(), log: deps.Logger, uploads: fairsem.New(uploads), fetches: fairsem.New(fetches),
		bucket: semaphore.NewWeighted(uploads), moved: newMoved(), opening: make(chan struct{}, 1), calls: map[sandbox.ID]*call{}, locked: map[sandbox.CheckpointID]bool{},
	}
	s.opening <- struct{}{}
	return s
}

// Archive moves the state of a paused sandbox to the object store, and returns when it is there and the local files are removed, at once
// if it was there already. If ctx ends first, the work continues. A resume meanwhile ends it.
//
// Errors: NotFound; Ended; Conflict if the sandbox is not paused, or its state not on the disk; Unsupported without an object store; QuotaExceeded; Unavailable; the context's error.
func (s *Service) Archive(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Sandbox, error) {
	b, sb, err := s.deps.Sandboxes.Find(ctx, c, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if b == nil {
		return sandbox.Sandbox{}, box.StateError(&sb)
	}
	if err := s.supported(); err != nil {
		return sandbox.Sandbox{}, err
	}
	if err := b.Settled(ctx); err != nil {
		return sandbox.Sandbox{}, err
	}
	for {
		started, err := s.start(b, "asked for by "+string(c.User), false)
		if err != nil {
			return sandbox.Sandbox{}, err
		}
		select {
		case <-started.done:
		case <-ctx.Done():
			return sandbox.Sandbox{}, ctx.Err()
		}
		if !started.copies { // a copy that was in progress: the next upload finds its data
			return b.Sandbox(), started.err
		}
	}
}

// supported returns nil if the server archives sandboxes. Errors: Unsupported.
func (s *Service) supported() error {
	if s.cfg.URL == "" {
		return sandbox.Errorf(sandbox.Unsupported, "this server archives no sandboxes; an administrator can set archive.url")
	}
	return nil
}

// start starts an upload, or returns the upload in progress, which may be of the other kind. With copies the local files stay. Errors:
// QuotaExceeded; Unavailable if the service closes.
func (s *Service) start(b *box.Box, why string, copies bool) (*call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[b.ID]; c != nil {
		return c, nil
	}
	ws, n := b.View().Sandbox.Workspace, 0
	for _, c := range s.calls {
		if c.workspace == ws {
			n++
		}
	}
	if n >= uploadsMost {
		e := sandbox.Errorf(sandbox.QuotaExceeded, "%d sandboxes of the workspace are being archived, which is the maximum; try again", uploadsMost)
		e.RetryAfter = time.Minute
		return nil, e
	}
	c := &call{workspace: ws, copies: copies, done: make(chan struct{})}
	s.calls[b.ID] = c
	if !s.deps.Work.Go(func() {
		c.err = s.archive(b, why, copies)
		s.mu.Lock()
		delete(s.calls, b.ID)
		s.mu.Unlock()
		close(c.done)
	}) {
		delete(s.calls, b.ID)
		return nil, box.ErrClosed
	}
	return c, nil
}

// isUploading reports whether an upload of a sandbox is in progress.
func (s *Service) isUploading(id sandbox.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[id] != nil
}

// lock keeps a state from being stored or removed by others until release is called. It reports whether nobody else has locked it.
func (s *Service) lock(id sandbox.CheckpointID) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locked[id] {
		return nil, false
	}
	s.locked[id] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.locked, id)
	}, true
}

// open returns the store, which it opens when it is first used. The server's first state makes the store in the bucket; later a missing
// store is an error, as the bucket may be a directory that is not mounted.
func (s *Service) open(ctx context.Context) (*archive.Store, error) {
	select {
	case <-s.opening:
		defer func() { s.opening <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	store := s.store
	s.mu.Unlock()
	if store != nil {
		return store, nil
	}
	any, err := s.deps.States.Any(ctx)
	if err != nil {
		return nil, err
	}
	if store, err = archive.Open(ctx, s.cfg.URL, s.cfg.KeyFile, !any, s.cfg.Space); err != nil {
		return nil, s.unusable(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store = store
	return store, nil
}

// unusable explains an error of the bucket to the owner of a sandbox, who does not know it.
func (s *Service) unusable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch sandbox.CodeOf(err) {
	case sandbox.QuotaExceeded, sandbox.DiskFull, sandbox.Conflict, sandbox.TooLarge:
		return err
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the object store of archived sandboxes cannot be used now (archive.url); try again, or ask an administrator")
}

// Close closes the store, after the work has ended.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	store := s.store
	if s.store = nil; store == nil {
		return nil
	}
	return store.Close()
}

var (
	errResumed = sandbox.Errorf(sandbox.Conflict, "the sandbox was resumed meanwhile")
	errInUse   = sandbox.Errorf(sandbox.Unavailable, "an earlier copy of the state is being removed; try again")
)

// notPaused is the error for archiving a sandbox in another state.
func notPaused(sb *sandbox.Sandbox) error {
	if sb.State == sandbox.Destroying || sb.State.Ended() {
		return box.StateError(sb)
	}
	return sandbox.Errorf(sandbox.Conflict, "sandbox %q is %s, and only a paused sandbox can be archived; pause it first", sb.Name, sb.State)
}

// watch ends the context of an upload when the sandbox is not paused with that state any more.
func watch(ctx context.Context, b *box.Box, saved sandbox.CheckpointID, cancel context.CancelCauseFunc) {
	for {
		v := b.View()
		if v.Sandbox.State != sandbox.Paused || v.Sandbox.Saved != saved {
			cancel(errResumed)
			return
		}
		select {
		case <-v.Changed:
		case <-ctx.Done():
			return
		}
	}
}

// isGone reports whether an error says that a stored state is missing or damaged, so that no other attempt succeeds.
func isGone(err error) bool {
	code := sandbox.CodeOf(err)
	return code == sandbox.NotFound || code == sandbox.Invalid || code == sandbox.Unsupported
}

// ended replaces the error of work on a sandbox that has ended.
func ended(b *box.Box, err error) error {
	if err == nil || b.Context().Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	b.Lock()
	defer b.Unlock()
	return b.Over()
}
