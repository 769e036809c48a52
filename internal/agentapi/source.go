package agentapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// sourceReader reads a caller's reader as a request body and notes the reader's
// own error. Once the call has ended no further read begins; one that blocks may
// still be under way.
type sourceReader struct {
	r io.Reader

	mu    sync.Mutex
	ended bool  // guarded by mu
	err   error // guarded by mu
}

var errSourceEnded = errors.New("the call has ended")

func (s *sourceReader) Read(p []byte) (int, error) {
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

// Close does nothing: the reader is its owner's.
func (s *sourceReader) Close() error { return nil }

// end stops the reading and returns the reader's own error, if it had one.
func (s *sourceReader) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.err
}

// parseInfoHeader returns the FileInfo that came with a file's content.
func parseInfoHeader(h http.Header) (FileInfo, error) {
	var info FileInfo
	if err := json.Unmarshal([]byte(h.Get(InfoHeader)), &info); err != nil {
		return FileInfo{}, fmt.Errorf("%w: file description: %w", ErrBadAnswer, err)
	}
	return info, nil
}
