package guest

import (
	"context"
	"io"
	"iter"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// Files are the calls on the files of running sandboxes. Each returns the errors of
// [Calls.Exec] for reaching the sandbox, and the errors of the method of agentapi.Files with the
// same name, as box.AgentError maps them.
type Files struct {
	calls    *Calls
	beneath  string
	metadata bool
}

// Beneath returns the calls on files beneath an absolute directory: every path
// is relative to it, and neither ".." nor a symlink leads out of it.
func (g *Calls) Beneath(dir string) Files { return Files{calls: g, beneath: dir} }

// WithMetadata returns the calls whose Stat, ListDir and Entries return the metadata of files also.
func (f Files) WithMetadata() Files {
	f.metadata = true
	return f
}

// of returns the agent's calls for a box.
func (f Files) of(b *box.Box) agentapi.Files {
	files := b.Agent.Files
	if f.beneath != "" {
		files = b.Agent.Beneath(f.beneath)
	}
	if f.metadata {
		files = files.WithMetadata()
	}
	return files
}

// ReadFile opens a file of a running sandbox and returns length bytes from offset on; a negative
// length means all bytes up to the end. The reader continues after a save of the sandbox for a
// checkpoint or a fork, and after a few broken connections. Errors of the reader have codes:
// Unavailable if the sandbox was paused or returned to a checkpoint meanwhile; Conflict if the path
// names a different file when the reader continues.
func (f Files) ReadFile(ctx context.Context, c sandbox.Caller, ref, path string, offset, length int64) (io.ReadCloser, agentapi.FileInfo, error) {
	b, err := f.calls.Use(ctx, c, ref)
	if err != nil {
		return nil, agentapi.FileInfo{}, err
	}
	p, end := newTransfer(ctx, b)
	for {
		r, info, err := f.of(b).ReadFile(ctx, path, offset, length)
		if err == nil {
			return &download{call: p, files: f.of(b), path: path, info: info, end: end, body: r, at: offset, left: length}, info, nil
		}
		if err := p.again(err); err != nil {
			end()
			return nil, agentapi.FileInfo{}, err
		}
	}
}

// WriteFile creates or replaces a file of a running sandbox with the content of r, atomically. It
// returns an error of r unchanged, and Unavailable if the sandbox was saved before the file was
// complete. Errors: Invalid for metadata beyond its limits.
func (f Files) WriteFile(ctx context.Context, c sandbox.Caller, ref, path string, r io.Reader, opts agentapi.WriteOptions) (agentapi.FileInfo, error) {
	if err := checkMetadata(opts.Metadata); err != nil {
		return agentapi.FileInfo{}, err
	}
	b, err := f.calls.Use(ctx, c, ref)
	if err != nil {
		return agentapi.FileInfo{}, err
	}
	audit.FromContext(ctx).Detail("path", path)
	p, end := newTransfer(ctx, b)
	defer end()
	info, err := f.of(b).WriteFile(ctx, path, r, opts)
	return info, p.broken(err)
}

// Stat describes a path of a running sandbox, without following a symlink at its end.
func (f Files) Stat(ctx context.Context, c sandbox.Caller, ref, path string) (agentapi.FileInfo, error) {
	b, err := f.calls.Use(ctx, c, ref)
	if err != nil {
		return agentapi.FileInfo{}, err
	}
	info, err := f.of(b).Stat(ctx, path)
	return limited(info), b.Explain(ctx, err)
}

// ListDir returns at most limit entries of a directory of a running sandbox, sorted by name, that
// follow the name after.
func (f Files) ListDir(ctx context.Context, c sandbox.Caller, ref, path, after string, limit int) (agentapi.FileList, error) {
	b, err := f.calls.Use(ctx, c, ref)
	if err != nil {
		return agentapi.FileList{}, err
	}
	list, err := f.of(b).List(ctx, path, after, limit)
	for i, info := range list.Entries {
		list.Entries[i] = limited(info)
	}
	return list, b.Explain(ctx, err)
}

// Entries returns all entries of a directory of a running sandbox, sorted by name, which it lists in as many calls
// as necessary. It ends with the first error. Errors: Conflict for a directory whose list cannot continue.
func (f Files) Entries(ctx context.Context, c sandbox.Caller, ref, path string) iter.Seq2[agentapi.FileInfo, error] {
	return func(yield func(agentapi.FileInfo, error) bool) {
		for after := ""; ; {
			list, err := f.ListDir(ctx, c, ref, path, after, agentapi.MaxListEntries)
			if err == nil && list.Truncated && (len(list.Entries) == 0 || string(list.Last) <= after) { // or a hostile agent answers so
				err = sandbox.Errorf(sandbox.Conflict, "%s changes while it is listed; try again", sandbox.Excerpt(path))
			}
			if err != nil {
				yield(agentapi.FileInfo{}, err)
				return
			}
			for _, info := range list.Entries {
				if !yield(info, nil) {
					return
				}
			}
			if !list.Truncated {
				return
			}
			after = string(list.Last)
		}
	}
}

// Mkdir makes a directory in a running sandbox.
func (f Files) Mkdir(ctx context.Context, c sandbox.Caller, ref string, req agentapi.MkdirRequest) error {
	b, err := f.calls.Use(ctx, c, ref)
	if err != nil {
		return err
	}
	audit.FromContext(ctx).Detail("path", req.Path)
	return b.Explain(ctx, f.of(b).Mkdir(ctx, req))
}

// Move renames a path in a running sandbox.
func (f Files) Move(ctx context.Context, c sandbox.Caller, ref string, req agentapi.MoveRequest) error {
	b, err := f.calls.Use(ctx, c, ref)
	if err != nil {
		return err
	}
	audit.FromContext(ctx).Detail("path", req.From)
	audit.FromContext(ctx).Detail("to", req.To)
	return b.Explain(ctx, f.of(b).Move(ctx, req))
}

// Remove removes a path of a running sandbox. A directory with content requires recursive.
func (f Files) Remove(ctx context.Context, c sandbox.Caller, ref, path string, recursive bool) error {
	b, err := f.calls.Use(ctx, c, ref)
	if err != nil {
		return err
	}
	audit.FromContext(ctx).Detail("path", path)
	return b.Explain(ctx, f.of(b).Remove(ctx, path, recursive))
}
