package remote

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/libp2p/go-yamux/v5"
)

// conn is the dialer's end of a connection into a box. Each direction is a body of chunks. The end of the dialer's
// body ends this direction only: the end of the stream says that the connection is closed, also when nothing is sent
// any more. A body of the box without its end says that the box aborted the connection; a reset of the
// stream would say so too, and drop what was not read yet.
type conn struct {
	*yamux.Stream
	once  sync.Once
	ended atomic.Bool
	freed func() // is called when nothing remains

	reading sync.Mutex
	in      chunkReader // guarded by reading

	writing sync.Mutex
	out     chunkWriter // guarded by writing
	failed  error       // guarded by writing; a chunk was cut off, or this direction has ended
}

func newConn(s *yamux.Stream, freed func()) *conn {
	return &conn{Stream: s, freed: freed, in: chunkReader{r: s}, out: chunkWriter{w: s}}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.ended.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.in.Read(p)
	return n, c.named(err)
}

// Write implements net.Conn. After an error nothing more can be written.
func (c *conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.failed != nil {
		return 0, c.failed
	}
	n, err := c.out.Write(p)
	c.failed = c.named(err)
	return n, c.failed
}

// CloseWrite ends this direction.
func (c *conn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.failed != nil {
		return c.failed
	}
	if err := c.named(c.out.end()); err != nil {
		c.failed = err
		return err
	}
	c.failed = syscall.EPIPE
	return nil
}

// named gives errors the names of package net.
func (c *conn) named(err error) error {
	switch {
	case err == nil || errors.Is(err, io.EOF) && !errors.Is(err, yamux.ErrStreamReset):
		return err
	case c.ended.Load():
		return net.ErrClosed
	case errors.Is(err, yamux.ErrTimeout):
		return os.ErrDeadlineExceeded
	}
	return fmt.Errorf("connection into a box: %w", syscall.ECONNRESET)
}

// Close closes the connection in the background, so that what was written still arrives.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.ended.Store(true)
		_ = c.SetDeadline(time.Now()) // wakes readers and writers
		go func() {
			defer c.freed()
			c.writing.Lock() // the writer has ended, and does not take the next deadline for its own
			_ = c.SetWriteDeadline(time.Now().Add(lingerTimeout))
			if c.failed == nil {
				_ = c.out.end()
				c.failed = net.ErrClosed
			}
			c.writing.Unlock()
			_ = c.Stream.CloseWrite()
			c.reading.Lock() // so has the reader
			_ = c.SetReadDeadline(time.Now().Add(lingerTimeout))
			c.reading.Unlock()
			_, _ = io.Copy(io.Discard, c.Stream)
			_ = c.Stream.Reset()
		}()
	})
	return nil
}

// splice connects the stream of a [conn] and a connection into a box until both directions have ended or one side
// closes, and closes both.
func splice(stream *yamux.Stream, inside net.Conn) {
	defer inside.Close()
	defer stream.Reset()
	var in sync.WaitGroup
	in.Go(func() {
		defer inside.Close() // the dialer has closed the connection
		ofTo, err := transfer(inside, &chunkReader{r: stream})
		if half, ok := inside.(interface{ CloseWrite() error }); err == nil && ok {
			_ = half.CloseWrite()
		} else if !ofTo {
			return
		}
		_, _ = io.Copy(io.Discard, stream)
	})
	out := chunkWriter{w: stream}
	ofTo, err := transfer(&out, inside)
	switch {
	case err == nil:
		_ = out.end()
	case !ofTo: // the box has ended, or aborts it; a dialer that does not read learns it later
		defer time.AfterFunc(lingerTimeout, func() { _ = stream.Reset() }).Stop()
	}
	_ = stream.CloseWrite()
	in.Wait()
}

// transfer copies from one to the other until the end of from. ofTo is whether an error is of to.
func transfer(to io.Writer, from io.Reader) (ofTo bool, err error) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return true, err
			}
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}
