package lifecycle

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// readsMax bounds how many at a time look into snapshots, readsOfWorkspace how many
	// of one workspace: each reads and packs as fast as its client takes it.
	readsMax, readsOfWorkspace = 16, 4
	// archiveTimeout ends a download, whose client may be slow.
	archiveTimeout = time.Hour
	// downloadLifetime is how long a download may be begun with its key.
	downloadLifetime = time.Hour
)

// snapshotReads are those who look into snapshots.
type snapshotReads struct {
	key [32]byte // signs the keys of downloads; another in every process

	mu  sync.Mutex
	of  map[sandbox.WorkspaceID]int // guarded by mu
	all int                         // guarded by mu
}

func newSnapshotReads() *snapshotReads {
	x := &snapshotReads{of: map[sandbox.WorkspaceID]int{}}
	_, _ = rand.Read(x.key[:]) // never fails
	return x
}

// begin counts one until end is called. Errors: QuotaExceeded, Unavailable.
func (x *snapshotReads) begin(ws sandbox.WorkspaceID) (end func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.of[ws] >= readsOfWorkspace:
		return nil, sandbox.Errorf(sandbox.QuotaExceeded, "a workspace reads at most %d snapshots at a time; wait until a download ends", readsOfWorkspace)
	case x.all >= readsMax:
		return nil, sandbox.Errorf(sandbox.Unavailable, "too many snapshots are being read; try again soon")
	}
	x.of[ws]++
	x.all++
	return sync.OnceFunc(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.all--
		if x.of[ws]--; x.of[ws] == 0 {
			delete(x.of, ws)
		}
	}), nil
}

// SnapshotFiles returns a part of the files of a snapshot that the caller may
// read. They are those of the whole root filesystem, its image's included.
// Errors: NotFound; Invalid, naming path, after or limit; Unsupported; QuotaExceeded; Unavailable.
func (s *Service) SnapshotFiles(ctx context.Context, c sandbox.Caller, ref string, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error) {
	if q.Limit < 0 || q.Limit > sandbox.SnapshotFilesMax {
		return sandbox.SnapshotFilePage{}, sandbox.InvalidField("limit", "must be 1 to %d", sandbox.SnapshotFilesMax)
	}
	sn, err := s.Snapshot(ctx, c, ref)
	if err != nil {
		return sandbox.SnapshotFilePage{}, err
	}
	if _, err := s.workboxes.Snapshotter(); err != nil {
		return sandbox.SnapshotFilePage{}, err
	}
	end, err := s.reads.begin(c.Workspace)
	if err != nil {
		return sandbox.SnapshotFilePage{}, err
	}
	defer end()
	return s.layers.Files(ctx, sn.Digest, q)
}

// SnapshotArchive packs a directory or file of a snapshot that the caller may
// read while it is read, as tar.gz, also when format is "", or tar; see
// [Layers.Archive]. The caller closes the reader. Errors: as SnapshotFiles;
// Invalid, naming format.
func (s *Service) SnapshotArchive(ctx context.Context, c sandbox.Caller, ref, path, format string) (io.ReadCloser, error) {
	switch agentapi.Format(format) {
	case "", agentapi.FormatTarGzip, agentapi.FormatTar:
	default:
		return nil, sandbox.InvalidField("format", "must be %s or %s", agentapi.FormatTarGzip, agentapi.FormatTar)
	}
	sn, err := s.Snapshot(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	return s.packSnapshot(ctx, c.Workspace, &sn, path, agentapi.Format(format) != agentapi.FormatTar)
}

func (s *Service) packSnapshot(ctx context.Context, ws sandbox.WorkspaceID, sn *sandbox.Snapshot, path string, compress bool) (io.ReadCloser, error) {
	if _, err := s.workboxes.Snapshotter(); err != nil {
		return nil, err
	}
	end, err := s.reads.begin(ws)
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

func (r endingReader) Close() error {
	defer r.end()
	return r.ReadCloser.Close()
}

// SnapshotDownload returns a key with which anybody may download a directory or
// file of a snapshot, by [Service.OpenDownload], until a time, unless the
// snapshot is deleted or the server restarted before. Errors: NotFound; Invalid,
// naming path; Forbidden for a caller who may only read.
func (s *Service) SnapshotDownload(ctx context.Context, c sandbox.Caller, ref, path string) (key string, until time.Time, err error) {
	if c.ReadOnly {
		return "", until, sandbox.Errorf(sandbox.Forbidden, "the files of snapshots may hold keys; who may only look at sandboxes does not get them")
	}
	if len(path) > sandbox.SnapshotPathMax {
		return "", until, sandbox.InvalidField("path", "must be at most %d bytes", sandbox.SnapshotPathMax)
	}
	sn, err := s.Snapshot(ctx, c, ref)
	if err != nil {
		return "", until, err
	}
	until = time.Now().Add(downloadLifetime).Truncate(time.Second)
	return s.reads.downloadKey(sn.ID, c.Workspace, path, until), until, nil
}

// downloadKey is for what a workspace may read, until a time.
func (x *snapshotReads) downloadKey(id sandbox.SnapshotID, ws sandbox.WorkspaceID, path string, until time.Time) string {
	said := fmt.Appendf(nil, "%d %s %s %s", until.Unix(), id, ws, path)
	return base64.RawURLEncoding.EncodeToString(append(x.sign(said), said...))
}

// sign authenticates what a key says.
func (x *snapshotReads) sign(said []byte) []byte {
	h := hmac.New(sha256.New, x.key[:])
	h.Write(said)
	return h.Sum(nil)
}

// OpenDownload packs, as tar.gz, what a key of [Service.SnapshotDownload] is for,
// whoever has it. The caller closes the reader. Errors: NotFound for a key that
// is not good, or no longer; QuotaExceeded; Unavailable.
func (s *Service) OpenDownload(ctx context.Context, key string) (io.ReadCloser, sandbox.Snapshot, error) {
	missing := sandbox.Errorf(sandbox.NotFound, "this address is not good, or no longer: ask for another one")
	all, err := base64.RawURLEncoding.DecodeString(key)
	if err != nil || len(all) < sha256.Size || !hmac.Equal(all[:sha256.Size], s.reads.sign(all[sha256.Size:])) {
		return nil, sandbox.Snapshot{}, missing
	}
	said := strings.SplitN(string(all[sha256.Size:]), " ", 4) // four: we wrote them
	until, err := strconv.ParseInt(said[0], 10, 64)
	if err != nil || time.Now().Unix() >= until {
		return nil, sandbox.Snapshot{}, missing
	}
	ws := sandbox.WorkspaceID(said[2])
	sn, err := s.Snapshot(ctx, sandbox.Caller{Workspace: ws}, said[1])
	if err != nil {
		return nil, sandbox.Snapshot{}, err
	}
	body, err := s.packSnapshot(ctx, ws, &sn, said[3], true)
	return body, sn, err
}
