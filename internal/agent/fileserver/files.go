package fileserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agent/rootdir"
	"github.com/modbox/modbox/internal/agentapi"
)

const (
	// copyBytes is the buffer size for transferring files.
	copyBytes = 64 << 10
	// sendBytes is the same for files of more than copyBytes.
	sendBytes = 256 << 10
	// writeBytes is the buffer size for writing files.
	writeBytes = 256 << 10
	// maxUnsized bounds reading a file that reports size 0, as files of /proc do.
	maxUnsized = 16 << 20
	// maxListBytes keeps the JSON of a listing below agentapi.MaxJSON.
	maxListBytes = 3 << 20
)

var (
	copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}
	sendBuffers = sync.Pool{New: func() any { return new([sendBytes]byte) }}
)

// copyAll is io.Copy with a large buffer.
func copyAll(dst io.Writer, src io.Reader) (int64, error) {
	b := copyBuffers.Get().(*[copyBytes]byte)
	defer copyBuffers.Put(b)
	return io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, b[:])
}

var fileWriters = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, writeBytes) }}

// save writes all of src to a file in large pieces, however small the reads are: a system call in a
// sandbox costs much more than copying.
func save(f io.Writer, src io.Reader) (int64, error) {
	w := fileWriters.Get().(*bufio.Writer)
	defer func() {
		w.Reset(nil)
		fileWriters.Put(w)
	}()
	w.Reset(struct{ io.Writer }{f})
	n, err := w.ReadFrom(src)
	if err == nil {
		err = w.Flush()
	}
	return n, err
}

// Read serves GET /files: the content of a file, or a part of it.
func (s *Server) Read(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	offset, err1 := strconv.ParseInt(q.Get("offset"), 10, 64)
	length, err2 := strconv.ParseInt(q.Get("length"), 10, 64)
	if err1 != nil || err2 != nil || offset < 0 {
		return answer.Invalid("offset and length are not valid numbers")
	}
	p, err := s.queryPlace(q)
	if err != nil {
		return err
	}
	defer p.close()
	f, err := openRegular(p)
	if errors.Is(err, rootdir.ErrNotRegular) {
		return answer.Invalid("%s is not a regular file", p.path)
	}
	if err != nil {
		return p.escapes(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if offset > info.Size() {
		return answer.Invalid("%s has only %d bytes", p.path, info.Size())
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	described, err := json.Marshal(p.describeAs(info))
	if err != nil {
		return err
	}
	w.Header().Set(agentapi.InfoHeader, string(described))
	w.Header().Set("Content-Type", "application/octet-stream")
	if info.Size() == 0 {
		if length < 0 || length > maxUnsized {
			length = maxUnsized
		}
		return sendFile(w, f, p.path, length, false)
	}
	if rest := info.Size() - offset; length < 0 || length > rest {
		length = rest
	}
	if most, err := strconv.ParseInt(q.Get("most"), 10, 64); err == nil && length > most {
		w.Header().Set(agentapi.LargeHeader, "true")
		return nil
	}
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	return sendFile(w, f, p.path, length, true)
}

// sendFile sends length bytes, or with all false possibly fewer. A file that cannot be read at all,
// such as the memory of a process, is refused before the answer begins.
func sendFile(w http.ResponseWriter, f *os.File, path string, length int64, all bool) error {
	var b []byte
	if length > copyBytes {
		buffer := sendBuffers.Get().(*[sendBytes]byte)
		defer sendBuffers.Put(buffer)
		b = buffer[:]
	} else {
		buffer := copyBuffers.Get().(*[copyBytes]byte)
		defer copyBuffers.Put(buffer)
		b = buffer[:]
	}
	first, err := f.Read(b[:min(length, int64(len(b)))])
	if err != nil && err != io.EOF {
		w.Header().Del(agentapi.InfoHeader)
		w.Header().Del("Content-Length")
		return answer.Invalid("%s cannot be read: %v", path, errors.Unwrap(err))
	}
	if _, err := w.Write(b[:first]); err != nil {
		return answer.ErrAborted
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{io.LimitReader(f, length-int64(first))}, b)
	if err != nil || all && int64(first)+n != length {
		return answer.ErrAborted
	}
	return nil
}

// Stat serves GET /files/stat: the attributes of a file or directory.
func (s *Server) Stat(w http.ResponseWriter, r *http.Request) error {
	p, err := s.queryPlace(r.URL.Query())
	if err != nil {
		return err
	}
	defer p.close()
	info, err := p.describe(r.URL.Query().Get("metadata") == "true")
	if err != nil {
		return p.escapes(err)
	}
	return answer.JSON(w, info)
}

// List serves GET /files/list: the entries of a directory.
func (s *Server) List(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 0 {
		return answer.Invalid("limit %q is not a number of entries", q.Get("limit"))
	}
	if limit == 0 || limit > agentapi.MaxListEntries {
		limit = agentapi.MaxListEntries
	}
	p, err := s.queryPlace(q)
	if err != nil {
		return err
	}
	defer p.close()
	d, err := p.tree.OpenFile(p.name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return p.escapes(err)
	}
	defer d.Close()
	names, more, err := firstNames(r, d, q.Get("after"), limit)
	if err != nil {
		return err
	}
	list := agentapi.FileList{Entries: []agentapi.FileInfo{}, Truncated: more}
	size, metadata := 0, q.Get("metadata") == "true"
	for _, name := range names {
		entry := place{tree: p.tree, name: filepath.Join(p.name, name), path: filepath.Join(p.path, name)}
		info, err := entry.describe(metadata)
		if err != nil {
			list.Last = []byte(name)
			continue // removed meanwhile
		}
		encoded, err := json.Marshal(info)
		if err != nil {
			return err
		}
		if size += len(encoded); size > maxListBytes {
			list.Truncated = true
			break
		}
		list.Entries, list.Last = append(list.Entries, info), []byte(name)
	}
	if !list.Truncated {
		list.Last = nil
	}
	return answer.JSON(w, list)
}

// firstNames returns the first limit names of a directory after the name after, sorted, and whether
// there are more. It keeps at most twice as many in memory, however large the directory is.
func firstNames(r *http.Request, d *os.File, after string, limit int) (names []string, more bool, err error) {
	cut := func() {
		slices.Sort(names)
		if len(names) > limit {
			names, more = names[:limit], true
		}
	}
	for r.Context().Err() == nil {
		batch, err := d.Readdirnames(1024)
		for _, name := range batch {
			if name > after {
				names = append(names, name)
			}
		}
		if err == io.EOF {
			cut()
			return names, more, nil
		}
		if err != nil {
			return nil, false, err
		}
		if len(names) > 2*limit {
			cut()
		}
	}
	return nil, false, r.Context().Err()
}

// Remove serves DELETE /files: it removes a file or a tree.
func (s *Server) Remove(_ http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	p, err := s.queryPlace(q)
	if err != nil {
		return err
	}
	defer p.close()
	if p.path == "/" || p.name == "." {
		return answer.Invalid("%s itself cannot be removed", p.path)
	}
	if _, err := p.tree.Lstat(p.name); err != nil {
		return p.escapes(err)
	}
	if q.Get("recursive") == "true" {
		return p.escapes(p.tree.RemoveAll(p.name))
	}
	return p.escapes(p.tree.Remove(p.name))
}
