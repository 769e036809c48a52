package envd

import (
	"context"
	"io"
	"net/http"
	"path"
	"sync"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/dialect/e2b"
	"github.com/modbox/modbox/internal/sandbox"
)

// composeMax bounds the files that one request joins.
const composeMax = 1000

// compose joins files to one, and removes them then.
func (t *transfers) compose(w http.ResponseWriter, r *http.Request) error {
	in, err := e2b.Decode[struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		User        string   `json:"username"`
	}](w, r)
	switch {
	case err != nil:
		return err
	case len(in.Sources) == 0 || len(in.Sources) > composeMax:
		return sandbox.InvalidField("source_paths", "must be 1 to %d paths", composeMax)
	case in.Destination == "":
		return sandbox.InvalidField("destination", "must be set")
	}
	ctx := r.Context()
	v := visitOf(ctx)
	acc, _, err := t.users.user(ctx, v, in.User)
	if err != nil {
		return err
	}
	to := acc.resolve(in.Destination)
	var sources []string
	for _, p := range in.Sources {
		if p == "" {
			return sandbox.InvalidField("source_paths", "must have no empty path")
		}
		sources = append(sources, acc.resolve(p))
	}
	reading, cancel := context.WithCancel(ctx)
	all := &joined{transfers: t, ctx: reading, visit: v, left: sources}
	_, err = t.calls.WriteFile(ctx, v.caller, v.ref, to, all, agentapi.WriteOptions{User: acc.name, Parents: true, Size: -1})
	cancel() // the writer of a request that was refused early may still read
	all.close()
	switch {
	case sandbox.CodeOf(err) == sandbox.Conflict:
		return sandbox.InvalidField("destination", "is a directory, or leads through a file: %s", sandbox.OneLine(to))
	case err != nil:
		return err
	}
	for _, p := range sources {
		if p == to {
			continue
		}
		// A file that is named twice is gone the second time.
		if err := t.calls.Remove(ctx, v.caller, v.ref, p, false); err != nil && sandbox.CodeOf(err) != sandbox.FileNotFound {
			return err
		}
	}
	e2b.WriteJSON(w, http.StatusOK, written{Path: to, Name: path.Base(to), Type: "file"})
	return nil
}

// joined reads files of a sandbox one after the other. Safe for concurrent use.
type joined struct {
	*transfers
	ctx   context.Context
	visit *visit

	mu     sync.Mutex
	left   []string      // guarded by mu; the files that follow
	body   io.ReadCloser // guarded by mu; the open file, nil between two files
	closed bool          // guarded by mu
}

// Read implements io.Reader.
func (j *joined) Read(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		switch {
		case j.closed:
			return 0, io.ErrClosedPipe
		case j.body == nil && len(j.left) == 0:
			return 0, io.EOF
		case j.body == nil:
			var err error
			if j.body, _, err = j.open(j.ctx, j.visit, j.left[0]); err != nil {
				j.body = nil
				return 0, err
			}
			j.left = j.left[1:]
		}
		n, err := j.body.Read(p)
		if err == io.EOF {
			j.end()
			err = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// end closes the open file. The caller has locked mu.
func (j *joined) end() {
	if j.body != nil {
		_ = j.body.Close() // it was read
		j.body = nil
	}
}

func (j *joined) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	j.end()
}
