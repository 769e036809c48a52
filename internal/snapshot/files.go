package snapshot

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// readersMax bounds the requests that read snapshots at a time, readersOfWorkspace the requests
	// of one workspace: each reads and packs as fast as its client takes it.
	readersMax, readersOfWorkspace = 16, 4
	// archiveTimeout ends a download, whose client may be slow.
	archiveTimeout = time.Hour
)

// readers counts the requests that read.
type readers struct {
	what string // the objects that they read, in the plural
	each int    // bounds the requests of one workspace
	most int    // bounds all requests; 0 is any number

	mu          sync.Mutex
	ofWorkspace map[sandbox.WorkspaceID]int // guarded by mu
	all         int                         // guarded by mu
}

func newReaders(what string, each, most int) *readers {
	return &readers{what: what, each: each, most: most, ofWorkspace: map[sandbox.WorkspaceID]int{}}
}

// begin counts a request until end is called. Errors: QuotaExceeded, Unavailable.
func (x *readers) begin(ws sandbox.WorkspaceID) (end func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ofWorkspace[ws] >= x.each:
		return nil, sandbox.Errorf(sandbox.QuotaExceeded, "a workspace reads at most %d %s at a time; wait until a request ends", x.each, x.what)
	case x.most != 0 && x.all >= x.most:
		return nil, sandbox.Errorf(sandbox.Unavailable, "too many %s are being read; try again soon", x.what)
	}
	x.ofWorkspace[ws]++
	x.all++
	return sync.OnceFunc(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.all--
		if x.ofWorkspace[ws]--; x.ofWorkspace[ws] == 0 {
			delete(x.ofWorkspace, ws)
		}
	}), nil
}

// Files returns a part of the files of a snapshot that the caller may read: the files of the whole
// root filesystem, with the files of its image. Errors: NotFound; Invalid, naming path, after or
// limit; Unsupported; QuotaExceeded; Unavailable.
func (s *Service) Files(ctx context.Context, c sandbox.Caller, ref string, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error) {
	if q.Limit < 0 || q.Limit > sandbox.SnapshotFilesMax {
		return sandbox.SnapshotFilePage{}, sandbox.InvalidField("limit", "must be 1 to %d", sandbox.SnapshotFilesMax)
	}
	sn, err := s.Get(ctx, c, ref)
	if err != nil {
		return sandbox.SnapshotFilePage{}, err
	}
	if _, err := s.boxes.Snapshotter(); err != nil {
		return sandbox.SnapshotFilePage{}, err
	}
	end, err := s.readers.begin(c.Workspace)
	if err != nil {
		return sandbox.SnapshotFilePage{}, err
	}
	defer end()
	return s.layers.Files(ctx, sn.Digest, q)
}

// Archive packs a directory or file of a snapshot that the caller may read while it is read, as
// tar.gz, also if format is "", or tar; see [Layers.Archive]. The caller closes the reader.
// Errors: as [Service.Files]; Invalid, naming format.
func (s *Service) Archive(ctx context.Context, c sandbox.Caller, ref, path, format string) (io.ReadCloser, error) {
	switch agentapi.Format(format) {
	case "", agentapi.FormatTarGzip, agentapi.FormatTar:
	default:
		return nil, sandbox.InvalidField("format", "must be %s or %s", agentapi.FormatTarGzip, agentapi.FormatTar)
	}
	sn, err := s.Get(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	return s.pack(ctx, c.Workspace, &sn, path, agentapi.Format(format) != agentapi.FormatTar)
}

func (s *Service) pack(ctx context.Context, ws sandbox.WorkspaceID, sn *sandbox.Snapshot, path string, compress bool) (io.ReadCloser, error) {
	if _, err := s.boxes.Snapshotter(); err != nil {
		return nil, err
	}
	end, err := s.readers.begin(ws)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	body, err := s.layers.Archive(ctx, sn.Digest, path, compress)
	if err != nil {
		cancel()
		end()
		return nil, err
	}
	return endingReader{body, func() { cancel(); end() }}, nil
}

// endingReader calls end when it is closed.
type endingReader struct {
	io.ReadCloser
	end func()
}

// Close closes the reader.
func (r endingReader) Close() error {
	defer r.end()
	return r.ReadCloser.Close()
}
