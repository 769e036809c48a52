package client

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
)

// upload is the content of a request, which the client reads anew for each attempt.
type upload struct {
	r     io.ReadSeeker
	start int64    // where the content begins
	last  *attempt // the attempt before, nil before the first
}

// newUpload returns the upload of what r has from its present position on, nil if r can be read only once.
func newUpload(r io.Reader) *upload {
	s, ok := r.(io.ReadSeeker)
	if !ok {
		return nil
	}
	start, err := s.Seek(0, io.SeekCurrent)
	if err != nil { // as of pipes and terminals, which have the method
		return nil
	}
	return &upload{r: s, start: start}
}

// again reports whether another attempt may help: not if the content itself could not be read.
func (u *upload) again() bool { return u.last == nil || !u.last.broken() }

// next returns the content for an attempt, and its size, -1 if that is unknown.
func (u *upload) next() (io.ReadCloser, int64, error) {
	if u.last != nil {
		u.last.Close() // the transport may still read for an attempt that has ended
		if _, err := u.r.Seek(u.start, io.SeekStart); err != nil {
			return nil, 0, err
		}
	}
	u.last = &attempt{r: u.r}
	switch r := u.r.(type) {
	case *bytes.Reader:
		return u.last, int64(r.Len()), nil
	case *strings.Reader:
		return u.last, int64(r.Len()), nil
	}
	return u.last, -1, nil
}

// attempt is the content as the body of one request. Close does not close the content.
type attempt struct {
	mu     sync.Mutex
	r      io.Reader // guarded by mu; nil when it is closed
	failed bool      // guarded by mu; r itself failed
}

var errClosed = errors.New("the attempt has ended")

func (a *attempt) Read(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.r == nil {
		return 0, errClosed
	}
	n, err := a.r.Read(p)
	if err != nil && err != io.EOF {
		a.failed = true
	}
	return n, err
}

// Close returns when the content is not being read, and is not read again.
func (a *attempt) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.r = nil
	return nil
}

func (a *attempt) broken() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}
