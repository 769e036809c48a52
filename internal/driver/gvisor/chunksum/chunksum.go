// Package chunksum computes and verifies digests of files in chunks, so that damage is found while
// a file is read and not only at its end.
//
// The digests find damage: flipped bits, missing or displaced parts. They do not find tampering,
// because an attacker could replace the digests beside the file as well. So the hash is XXH3 with
// 128 bits, which is as fast as memory is read: six times as fast as BLAKE3 and nine times as fast
// as SHA-256 on a processor with AVX2 and SHA extensions.
package chunksum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"
)

const (
	// ChunkBytes is the size of a chunk; the last chunk of a file may be shorter.
	ChunkBytes = 1 << 20
	// DigestBytes is the size of a digest.
	DigestBytes = 16

	readBytes  = 256 << 10 // fits into the processor's cache
	maxWorkers = 4
)

// Sums are the digests of a file.
type Sums struct {
	// Size of the file in bytes.
	Size int64 `json:"size"`
	// Digests are the digests of its chunks, concatenated in order.
	Digests []byte `json:"digests"`
}

// Mismatch reports that a file does not match its digests.
type Mismatch struct {
	// Offset is where the damaged chunk begins, or where the file ends too early or should have
	// ended.
	Offset int64
	reason string
}

func (m *Mismatch) Error() string { return fmt.Sprintf("%s at byte %d", m.reason, m.Offset) }

// errNoSums reports that the Sums themselves are damaged.
var errNoSums = errors.New("the digests are damaged themselves")

// Digest returns the digest of data.
func Digest(data []byte) [DigestBytes]byte { return xxh3.Hash128(data).Bytes() }

// Of returns the digests of the first size bytes of f. Errors: f's, an
// [io.ErrUnexpectedEOF] when it is shorter, and the context's.
func Of(ctx context.Context, f io.ReaderAt, size int64) (Sums, error) {
	s := Sums{Size: size, Digests: make([]byte, chunks(size)*DigestBytes)}
	err := eachChunk(ctx, f, size, func(i int, digest []byte) error {
		copy(s.Digests[i*DigestBytes:], digest)
		return nil
	})
	return s, err
}

// Verify reads f and compares. Errors: a [*Mismatch] for damage; f's, and the context's.
func (s Sums) Verify(ctx context.Context, f io.ReaderAt) error {
	if err := s.check(); err != nil {
		return err
	}
	err := eachChunk(ctx, f, s.Size, func(i int, digest []byte) error {
		if !bytes.Equal(digest, s.at(i)) {
			return mismatch(i)
		}
		return nil
	})
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &Mismatch{Offset: s.Size, reason: "the file ends before its size"}
	}
	if err != nil {
		return err
	}
	if n, _ := f.ReadAt(make([]byte, 1), s.Size); n > 0 {
		return &Mismatch{Offset: s.Size, reason: "the file is longer than its size"}
	}
	return nil
}

// Reader returns the content of r, each chunk only after it was compared. Reading damaged data
// returns a [*Mismatch].
func (s Sums) Reader(r io.Reader) io.Reader { return &reader{sums: s, from: r} }

func chunks(size int64) int { return int((size + ChunkBytes - 1) / ChunkBytes) }

func mismatch(chunk int) error {
	return &Mismatch{Offset: int64(chunk) * ChunkBytes, reason: "the content differs from its digest"}
}

func (s Sums) check() error {
	if s.Size < 0 || len(s.Digests) != chunks(s.Size)*DigestBytes {
		return errNoSums
	}
	return nil
}

func (s Sums) at(i int) []byte { return s.Digests[i*DigestBytes : (i+1)*DigestBytes] }

// eachChunk calls found with the digest of every chunk of f, from several goroutines.
func eachChunk(ctx context.Context, f io.ReaderAt, size int64, found func(i int, digest []byte) error) error {
	n := chunks(size)
	workers := min(n, maxWorkers, runtime.GOMAXPROCS(0))
	g, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		g.Go(func() error {
			buf, h := make([]byte, readBytes), xxh3.New()
			for i := w; i < n; i += workers {
				h.Reset()
				begin := int64(i) * ChunkBytes
				if err := read(ctx, f, begin, min(begin+ChunkBytes, size), buf, h); err != nil {
					return err
				}
				digest := h.Sum128().Bytes()
				if err := found(i, digest[:]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// read writes the bytes of f from begin to end to h.
func read(ctx context.Context, f io.ReaderAt, begin, end int64, buf []byte, h *xxh3.Hasher) error {
	for begin < end {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		part := buf[:min(int64(len(buf)), end-begin)]
		n, err := f.ReadAt(part, begin)
		if n < len(part) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		_, _ = h.Write(part) // a hash never fails
		begin += int64(n)
	}
	return nil
}

// reader is [Sums.Reader].
type reader struct {
	sums  Sums
	from  io.Reader
	chunk int    // next
	buf   []byte // made at the first read
	ready []byte // compared and not read yet
	err   error
}

func (r *reader) Read(p []byte) (int, error) {
	if len(r.ready) == 0 && r.err == nil {
		r.ready, r.err = r.next()
	}
	if len(r.ready) == 0 {
		return 0, r.err
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

// next returns the next chunk, or io.EOF when the file has ended where it should.
func (r *reader) next() ([]byte, error) {
	if err := r.sums.check(); err != nil {
		return nil, err
	}
	if r.buf == nil {
		r.buf = make([]byte, min(ChunkBytes, r.sums.Size+1)) // + 1 to notice bytes after an empty file
	}
	begin := int64(r.chunk) * ChunkBytes
	if begin >= r.sums.Size {
		if n, err := io.ReadFull(r.from, r.buf[:1]); n > 0 {
			return nil, &Mismatch{Offset: r.sums.Size, reason: "the file is longer than its size"}
		} else if !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, io.EOF
	}
	data := r.buf[:min(ChunkBytes, r.sums.Size-begin)]
	n, err := io.ReadFull(r.from, data)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &Mismatch{Offset: begin + int64(n), reason: "the file ends before its size"}
	case err != nil:
		return nil, err
	}
	if digest := Digest(data); !bytes.Equal(digest[:], r.sums.at(r.chunk)) {
		return nil, mismatch(r.chunk)
	}
	r.chunk++
	return data, nil
}
