package snapshot

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
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// downloadLifetime is how long the key of a download is valid.
const downloadLifetime = time.Hour

// download holds the permission of a key.
type download struct {
	until     time.Time
	snapshot  sandbox.SnapshotID
	workspace sandbox.WorkspaceID // of the caller who asked for the key
	path      string
}

// signer signs the keys of downloads. Each process has another secret, so other servers are asked about a key that it does not know.
type signer [32]byte

func newSigner() (s signer) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// key returns the key of a download.
func (s *signer) key(d download) string {
	content := fmt.Appendf(nil, "%d %s %s %s", d.until.Unix(), d.snapshot, d.workspace, d.path)
	return base64.RawURLEncoding.EncodeToString(append(s.sum(content), content...))
}

// sum authenticates the content of a key.
func (s *signer) sum(content []byte) []byte {
	h := hmac.New(sha256.New, s[:])
	h.Write(content)
	return h.Sum(nil)
}

// open returns the download of a key, and false for a key that is forged or has expired.
func (s *signer) open(key string) (d download, ok bool) {
	all, err := base64.RawURLEncoding.DecodeString(key)
	if err != nil || len(all) < sha256.Size || !hmac.Equal(all[:sha256.Size], s.sum(all[sha256.Size:])) {
		return d, false
	}
	part := strings.SplitN(string(all[sha256.Size:]), " ", 4) // four, as key wrote them
	until, err := strconv.ParseInt(part[0], 10, 64)
	if err != nil || time.Now().Unix() >= until {
		return d, false
	}
	return download{time.Unix(until, 0), sandbox.SnapshotID(part[1]), sandbox.WorkspaceID(part[2]), part[3]}, true
}

// DownloadKey returns a key with which anybody may download a directory or file of a snapshot, by
// [Service.OpenDownload], until a time, unless the snapshot is deleted or the server restarts
// before. Errors: NotFound; Invalid, naming path; Forbidden for a caller who may only read.
func (s *Service) DownloadKey(ctx context.Context, c sandbox.Caller, ref, path string) (key string, until time.Time, err error) {
	if c.ReadOnly {
		return "", until, sandbox.Errorf(sandbox.Forbidden, "the files of snapshots may hold keys; who may only look at sandboxes does not get them")
	}
	if len(path) > sandbox.SnapshotPathMax {
		return "", until, sandbox.InvalidField("path", "must be at most %d bytes", sandbox.SnapshotPathMax)
	}
	sn, err := s.Get(ctx, c, ref)
	if err != nil {
		return "", until, err
	}
	until = time.Now().Add(downloadLifetime).Truncate(time.Second)
	return s.signer.key(download{until, sn.ID, c.Workspace, path}), until, nil
}

// OpenDownload packs the files of a key of [Service.DownloadKey] as tar.gz, for any caller. The
// caller closes the reader. Errors: NotFound for a key that is not valid, or no longer;
// QuotaExceeded; Unavailable.
func (s *Service) OpenDownload(ctx context.Context, key string) (io.ReadCloser, sandbox.Snapshot, error) {
	d, ok := s.signer.open(key)
	if !ok {
		return nil, sandbox.Snapshot{}, sandbox.Somewhere("this address is not good, or no longer: ask for another one")
	}
	sn, err := s.Get(ctx, sandbox.Caller{Workspace: d.workspace}, string(d.snapshot))
	if err != nil {
		return nil, sandbox.Snapshot{}, err
	}
	body, err := s.pack(ctx, d.workspace, &sn, d.path, true)
	return body, sn, err
}
