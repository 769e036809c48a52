package api

import (
	"context"
	"io"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// Service is what the API stands on: lifecycle.Service, whose comments hold here.
type Service interface {
	Sandboxes
	Files
	Observer

	Exec(ctx context.Context, c lifecycle.Caller, ref string, cmd agentapi.Command) (*agentapi.Stream, error)
}

// Sandboxes is the life of sandboxes.
type Sandboxes interface {
	Create(ctx context.Context, c lifecycle.Caller, req lifecycle.CreateRequest) (sandbox.Sandbox, bool, error)
	Get(ctx context.Context, c lifecycle.Caller, ref string) (sandbox.Sandbox, error)
	List(ctx context.Context, c lifecycle.Caller, f lifecycle.Filter) (lifecycle.Page, error)
	Wait(ctx context.Context, c lifecycle.Caller, ref string, want sandbox.State, timeout time.Duration) (sandbox.Sandbox, error)
	Destroy(ctx context.Context, c lifecycle.Caller, ref string, cause sandbox.CauseCode) (sandbox.Sandbox, error)
}

// Files is the files of a running sandbox.
type Files interface {
	ReadFile(ctx context.Context, c lifecycle.Caller, ref, path string, offset, length int64) (io.ReadCloser, agentapi.FileInfo, error)
	WriteFile(ctx context.Context, c lifecycle.Caller, ref, path string, r io.Reader, opts agentapi.WriteOptions) (agentapi.FileInfo, error)
	Stat(ctx context.Context, c lifecycle.Caller, ref, path string) (agentapi.FileInfo, error)
	ListDir(ctx context.Context, c lifecycle.Caller, ref, path string, limit int) (agentapi.FileList, error)
	Mkdir(ctx context.Context, c lifecycle.Caller, ref string, req agentapi.MkdirRequest) error
	Move(ctx context.Context, c lifecycle.Caller, ref string, req agentapi.MoveRequest) error
	Remove(ctx context.Context, c lifecycle.Caller, ref, path string, recursive bool) error
}

// Observer is what can be seen of sandboxes and images.
type Observer interface {
	Events(ctx context.Context, c lifecycle.Caller, ref string, after int64, limit int, descending bool) ([]sandbox.Event, error)
	Stats(ctx context.Context, c lifecycle.Caller, ref string) (sandbox.Stats, error)
	Images(ctx context.Context, c lifecycle.Caller) ([]sandbox.Image, error)
}
