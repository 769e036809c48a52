package agentapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// source is a caller's reader that is read no further than the call needs, and remembers the
// reader's error.
type source struct {
	r io.Reader

	mu    sync.Mutex
	ended bool  // guarded by mu
	err   error // guarded by mu
}

var errSourceEnded = errors.New("the call has ended")

// Read reads from the reader unless the call has ended.
func (s *source) Read(p []byte) (int, error) {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended {
		return 0, errSourceEnded
	}
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return n, err
}

// end stops the reading and returns the reader's own error, if it had one. A blocked read may still
// be in progress.
func (s *source) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.err
}

// body returns the source as the body of an attempt. It reads the source only as far as the body is
// read. Closing it ends a read of the body at once, even while the source blocks: only then does
// HTTP/2 tell the agent that the call has ended.
func (s *source) body() io.ReadCloser {
	r, w := io.Pipe()
	return &sourceBody{PipeReader: r, pump: func() {
		_, err := io.CopyBuffer(w, s, make([]byte, 64<<10))
		w.CloseWithError(err)
	}}
}

type sourceBody struct {
	*io.PipeReader
	once sync.Once
	pump func()
}

func (b *sourceBody) Read(p []byte) (int, error) {
	b.once.Do(func() { go b.pump() })
	return b.PipeReader.Read(p)
}

// parseInfoHeader returns the FileInfo in the header of an answer.
func parseInfoHeader(h http.Header) (FileInfo, error) {
	var info FileInfo
	if err := json.Unmarshal([]byte(h.Get(InfoHeader)), &info); err != nil {
		return FileInfo{}, fmt.Errorf("%w: file description: %w", ErrBadAnswer, err)
	}
	return info, nil
}
