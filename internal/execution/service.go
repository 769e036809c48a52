// Package execution runs commands in sandboxes that continue after the request that started them.
//
// The service writes the row of an execution before the agent starts its process, under the same
// id. The agent blocks the process rather than lose output. One goroutine per execution, its pump,
// copies the output into the execution's streams, whose length is the position of the copy.
// Therefore a broken connection, a pause and a restart of the server need the same recovery: the
// pump waits until the sandbox runs, without resuming it, and attaches at that byte. An execution
// ends its streams before it writes its row.
// byte. An execution ends its streams before its row is written.
package execution

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/stream"
)

// Store records executions. Its methods are safe for concurrent use, and each write is atomic.
type Store interface {
	// CreateExecution records an execution. Errors: QuotaExceeded when limit executions of its
	// sandbox have not ended.
	CreateExecution(ctx context.Context, e sandbox.Execution, limit int) error
	// UpdateExecution replaces prev, the record of an execution that has not ended, by next. Errors:
	// NotFound; Ended; Conflict when the record is not prev any more.
	UpdateExecution(ctx context.Context, prev, next sandbox.Execution) error
	// Execution returns an execution. Errors: NotFound.
	Execution(ctx context.Context, id sandbox.ExecutionID) (sandbox.Execution, error)
	// Executions returns the executions of a sandbox, newest first. Errors: Invalid.
	Executions(ctx context.Context, id sandbox.ID, kind sandbox.ExecutionKind, r page.Request) (page.Page[sandbox.Execution], error)
	// LiveExecutions returns all executions that have not ended.
	LiveExecutions(ctx context.Context) ([]sandbox.Execution, error)
	// EndedExecutions returns at most limit executions that ended before a time, or of which
	// their sandbox has more than keep; a keep of 0 means any number.
	EndedExecutions(ctx context.Context, before time.Time, keep, limit int) ([]sandbox.Execution, error)
	// FinishedOneShots returns the live sandboxes that were made for an execution that has ended.
	FinishedOneShots(ctx context.Context) ([]sandbox.ID, error)
	// DeleteExecution deletes an execution; idempotent.
	DeleteExecution(ctx context.Context, id sandbox.ExecutionID) error
	// StreamOwners returns the streams of all executions, with their workspaces.
	StreamOwners(ctx context.Context) (map[sandbox.StreamID]sandbox.WorkspaceID, error)
}

// Sandboxes finds the sandboxes of executions. [lifecycle.Service] implements it.
type Sandboxes interface {
	guest.Sandboxes
	// End ends a sandbox. An end that cannot be recorded is recorded later.
	End(b *box.Box, cause sandbox.Cause)
}

// Images finds the image of a sandbox.
type Images interface {
	// Lookup returns the image of a digest, whose files need not be on the disk. Errors: NotFound.
	Lookup(ctx context.Context, digest string) (spec.Image, error)
}

// Config are the settings of executions.
type Config struct {
	// StreamMax is how many bytes each output of an execution keeps.
	StreamMax int64
	// StreamTotal is how many bytes the streams of all executions may take, about. Above it
	// the executions that ended first are deleted.
	StreamTotal int64
	// Retention is how long an execution and its output stay after its end.
	Retention time.Duration
	// MaxEnded bounds the ended executions of a sandbox; older executions are deleted.
	MaxEnded int
	// AnswerTimeout is how long the agent of a running sandbox may not answer before its
	// executions are given up; 0 is 2 minutes.
	AnswerTimeout time.Duration
}

// Deps are the parts that the service uses. It does not close them.
type Deps struct {
	Store     Store
	Sandboxes Sandboxes
	Guest     *guest.Calls
	Images    Images
	// Streams keeps the output of executions; without it there are none.
	Streams *stream.Store
	// Stored stores the output of ended executions; nil for none.
	Stored Stored
	// Audit records the outputs of executions; nil for none.
	Audit *audit.Log
	// Work runs the pumps.
	Work *background.Group
	// Owner has the shards of the sandboxes whose executions this server continues; nil for all.
	Owner  *sandbox.Ownership
	Logger *slog.Logger
}

// Service starts commands in sandboxes and stores their output. It is safe for concurrent use.
type Service struct {
	cfg       Config
	store     Store
	sandboxes Sandboxes
	guest     *guest.Calls
	images    Images
	streams   *stream.Store // nil for none
	stored    Stored
	audit     outputRecorder
	log       *slog.Logger
	work      *background.Group
	owner     *sandbox.Ownership
	ctx       context.Context // of work

	live   liveExecutions
	inputs inputs

	mu          sync.Mutex
	streamBytes map[sandbox.WorkspaceID]int64 // guarded by mu
}

// New returns a service, which is idle until Recover is called.
func New(cfg Config, deps Deps) *Service {
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, answerTimeout)
	if deps.Stored == nil {
		deps.Stored = nothingStored{}
	}
	return &Service{
		cfg: cfg, store: deps.Store, sandboxes: deps.Sandboxes, guest: deps.Guest, images: deps.Images, streams: deps.Streams, stored: deps.Stored,
		log: deps.Logger, work: deps.Work, owner: deps.Owner, ctx: deps.Work.Context(),
		audit:  outputRecorder{audit: deps.Audit, streams: deps.Streams, log: deps.Logger},
		live:   liveExecutions{ids: map[sandbox.ExecutionID]*execution{}},
		inputs: inputs{made: map[sandbox.StreamID]waitingInput{}},
	}
}

// StreamBytes returns the size of a workspace's streams, in bytes, as of the last Purge.
func (s *Service) StreamBytes(ws sandbox.WorkspaceID) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streamBytes[ws]
}

// logFailure logs a failure of an operation that is tried again later.
func (s *Service) logFailure(what string, err error) {
	if s.ctx.Err() == nil {
		s.log.Error("executions: "+what, "error", err)
	}
}
