// Package content answers HTTP requests with the content of a file in a sandbox:
// whole or in ranges, streamed, with one call into the sandbox for a whole file.
package content

import (
	"errors"
	"io"
	"net/http"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/edge"
)

// Open opens a file and returns length bytes from offset on, all that follow
// when length is negative.
type Open func(offset, length int64) (io.ReadCloser, agentapi.FileInfo, error)

// Serve answers r with the file. An error means that nothing was answered. When
// the file cannot be read to its end the connection is broken off, so that the
// client does not take a part for the whole.
func Serve(w http.ResponseWriter, r *http.Request, open Open) error {
	f := &file{open: open}
	length := int64(-1)
	if r.Header.Get("Range") != "" {
		length = 0 // only to learn the size
	}
	body, info, err := open(0, length)
	if err != nil {
		return err
	}
	f.body, f.size = body, info.Size
	defer f.close()
	if length == 0 {
		f.close()
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if info.Size == 0 && f.body != nil {
		// Files of /proc and the like have no size and content all the same.
		if _, err := io.Copy(w, f.body); err != nil {
			edge.LogBroken(r.Context(), err)
			panic(http.ErrAbortHandler)
		}
		return nil
	}
	http.ServeContent(w, r, "", info.ModTime, f)
	if f.failed != nil {
		edge.LogBroken(r.Context(), f.failed)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// file implements the interface for http.ServeContent. Reading opens it at the offset of the last
// seek.
type file struct {
	open   Open
	size   int64
	body   io.ReadCloser // nil until read
	at     int64         // where body is
	pos    int64         // where the reader wants to be
	failed error         // of the first read that failed
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.pos
	case io.SeekEnd:
		offset += f.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start of the file")
	}
	f.pos = offset
	return offset, nil
}

func (f *file) Read(p []byte) (int, error) {
	if f.body == nil || f.at != f.pos {
		f.close()
		body, _, err := f.open(f.pos, -1)
		if err != nil {
			f.failed = err
			return 0, err
		}
		f.body, f.at = body, f.pos
	}
	n, err := f.body.Read(p)
	f.at += int64(n)
	f.pos = f.at
	if f.failed == nil && err != io.EOF {
		f.failed = err
	}
	return n, err
}

func (f *file) close() {
	if f.body != nil {
		_ = f.body.Close()
		f.body = nil
	}
}
