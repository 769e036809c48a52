package object

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/sandbox"
)

// parallel bounds the blobs in memory, and the requests at the same time, of an upload or a download.
const parallel = 4

// Name is the name of a blob: a digest of its content, which also depends on the store's key.
type Name [32]byte

// String returns the name in hexadecimal.
func (n Name) String() string { return hex.EncodeToString(n[:]) }

// MarshalText implements encoding.TextMarshaler.
func (n Name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Name) UnmarshalText(text []byte) error {
	raw, err := hex.DecodeString(string(text))
	if err != nil || len(raw) != len(n) {
		return fmt.Errorf("%.80q is not the name of a blob", text)
	}
	*n = Name(raw)
	return nil
}

func (n Name) key() string {
	text := n.String()
	return blobsPrefix + text[:2] + "/" + text
}

// nameOf returns the name of the blob with a key.
func nameOf(key string) (n Name, ok bool) {
	ok = n.UnmarshalText([]byte(path.Base(key))) == nil
	return n, ok && n.key() == key
}

// Blob returns the content of a blob, which is verified. Errors: NotFound; Invalid when it is damaged.
func (s *Store) Blob(ctx context.Context, n Name) ([]byte, error) {
	data, err := s.get(ctx, n.key(), MaxBlob)
	if err == nil && s.codec.name(data) != n {
		err = s.damaged(n.key(), errors.New("its content does not have its digest"))
	}
	return data, err
}

// Upload sends files to a store, and waits for all of them in [Upload.Wait]. It must be closed.
type Upload struct {
	s       *Store
	lease   *lease
	group   *errgroup.Group
	ctx     context.Context // ends when a blob could not be sent
	buffers chan []byte

	verify bool

	mu     sync.Mutex
	known  map[Name]origin // in the bucket, or being sent
	counts Counts
}

// origin says why a blob is known to an upload.
type origin uint8

const (
	found origin = iota + 1 // in a list of the bucket
	ours                    // the upload has sent or verified it, or does so
)

// Counts are the blobs of an upload.
type Counts struct {
	Blobs int // all, also the blobs that the bucket had before
	Sent  int
	// SentBytes are the bytes written to the bucket for those, and for blobs that were perhaps written before an error.
	SentBytes int64
}

// NewUpload begins an upload. Until it is closed, the store removes no blob that it uses. Errors: Unavailable
// while a collection is in progress.
func (s *Store) NewUpload(ctx context.Context) (*Upload, error) {
	l, err := s.share(ctx, uploadPrefix)
	if err != nil {
		return nil, err
	}
	known := map[Name]origin{}
	err = s.List(ctx, blobsPrefix, func(o Object) error {
		if n, ok := nameOf(o.Key); ok {
			known[n] = found
		}
		return nil
	})
	if err != nil {
		l.release(ctx)
		return nil, err
	}
	u := &Upload{s: s, lease: l, known: known, buffers: make(chan []byte, parallel)}
	u.group, u.ctx = errgroup.WithContext(ctx)
	for range parallel {
		u.buffers <- nil // made when it is used
	}
	return u, nil
}

// Verify makes the upload read the blobs that the bucket has already, and send damaged blobs again. It is called before File.
func (u *Upload) Verify() { u.verify = true }

// File cuts the next size bytes of r into blobs, and sends the blobs that the bucket lacks. The names are valid
// after Wait.
func (u *Upload) File(r io.Reader, size int64) ([]Name, error) {
	names := make([]Name, (size+ChunkBytes-1)/ChunkBytes)
	for i := range names {
		var buffer []byte
		select {
		case buffer = <-u.buffers:
		case <-u.ctx.Done():
			return nil, context.Cause(u.ctx)
		}
		if buffer == nil {
			buffer = make([]byte, ChunkBytes)
		}
		data := buffer[:min(ChunkBytes, size-int64(i)*ChunkBytes)]
		if _, err := io.ReadFull(r, data); err != nil {
			u.buffers <- buffer
			return nil, err
		}
		u.group.Go(func() error {
			defer func() { u.buffers <- buffer }()
			var err error
			names[i], err = u.send(data)
			return err
		})
	}
	return names, nil
}

// send sends a blob that the bucket does not have, or not whole.
func (u *Upload) send(data []byte) (Name, error) {
	n := u.s.codec.name(data)
	u.mu.Lock()
	u.counts.Blobs++
	known := u.known[n]
	u.known[n] = ours
	u.mu.Unlock()
	if known == ours || known == found && !u.verify {
		return n, nil
	}
	if known == found {
		_, err := u.s.Blob(u.ctx, n)
		if code := sandbox.CodeOf(err); err == nil || code != sandbox.NotFound && code != sandbox.Invalid {
			return n, err
		}
	}
	body, err := u.s.codec.encode(n.key(), data)
	if err != nil {
		return n, err
	}
	u.mu.Lock()
	u.counts.SentBytes += int64(len(body))
	u.mu.Unlock()
	if err := u.s.write(u.ctx, n.key(), body); err != nil {
		return n, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts.Sent++
	return n, nil
}

// Wait returns nil when all blobs are in the bucket. An object that refers to them must be stored before Close.
func (u *Upload) Wait() (Counts, error) {
	if err := u.group.Wait(); err != nil {
		return u.counts, err
	}
	if err := u.s.Flush(); err != nil {
		return u.counts, err
	}
	return u.counts, u.lease.check()
}

// Close ends the upload.
func (u *Upload) Close() {
	_ = u.group.Wait() // Wait has returned its error
	u.lease.release(u.ctx)
}

// Download writes a file of size bytes, whose blobs have the names, to w. The file is as Upload.File read it: every blob is
// verified. Bytes that are zero may be left unwritten. It returns the errors of Blob, and Invalid when the names do not fit the size.
func (s *Store) Download(ctx context.Context, names []Name, size int64, w io.WriterAt) error {
	if size < 0 || int64(len(names)) != (size+ChunkBytes-1)/ChunkBytes {
		return sandbox.Errorf(sandbox.Invalid, "a file of %d bytes has not %d blobs", size, len(names))
	}
	return s.each(ctx, slices.All(names), func(ctx context.Context, i int, n Name) error {
		at := int64(i) * ChunkBytes
		data, err := s.Blob(ctx, n)
		if err != nil {
			return err
		}
		if want := min(ChunkBytes, size-at); int64(len(data)) != want {
			return s.damaged(n.key(), fmt.Errorf("it has %d bytes, and the file needs %d", len(data), want))
		}
		if zero(data) {
			return nil
		}
		_, err = w.WriteAt(data, at)
		return err
	})
}

// DownloadBytes returns the bytes that Download writes of such a file.
func (s *Store) DownloadBytes(names []Name, size int64) (n int64) {
	zero := s.zeroName()
	for i, name := range names {
		if name != zero {
			n += max(0, min(ChunkBytes, size-int64(i)*ChunkBytes))
		}
	}
	return n
}

// Verify reads blobs, and calls damaged with the missing and the damaged blobs. It calls one at a time.
func (s *Store) Verify(ctx context.Context, names []Name, damaged func(Name, error)) error {
	var mu sync.Mutex
	return s.each(ctx, slices.All(names), func(ctx context.Context, _ int, n Name) error {
		_, err := s.Blob(ctx, n)
		if code := sandbox.CodeOf(err); code == sandbox.NotFound || code == sandbox.Invalid {
			mu.Lock()
			defer mu.Unlock()
			damaged(n, err)
			return nil
		}
		return err
	})
}

// each calls f for each blob, some at the same time, until one fails or ctx ends. All calls of a store share a limit.
func (s *Store) each(ctx context.Context, names iter.Seq2[int, Name], f func(ctx context.Context, i int, n Name) error) error {
	group, within := errgroup.WithContext(ctx)
	for i, n := range names {
		select {
		case s.slots <- struct{}{}:
		case <-within.Done():
			return cmp.Or(group.Wait(), context.Cause(ctx))
		}
		group.Go(func() error {
			defer func() { <-s.slots }()
			return f(within, i, n)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// zero reports whether all bytes are zero.
func zero(data []byte) bool {
	for _, b := range data {
		if b != 0 {
			return false
		}
	}
	return true
}

// partial reports whether a key names a file of an interrupted write to a local bucket.
func partial(key string) bool { return strings.HasSuffix(key, ".tmp") }
