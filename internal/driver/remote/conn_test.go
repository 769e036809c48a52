package remote_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/libp2p/go-yamux/v5"

	"github.com/modbox/modbox/internal/driver/remote"
)

// aborted is a connection into a box that ends as a box does that is killed: with bytes, and then without an end.
type aborted struct {
	net.Conn
	content io.Reader
}

func (a aborted) Read(p []byte) (int, error) {
	n, err := a.content.Read(p)
	if errors.Is(err, io.EOF) {
		err = syscall.ECONNRESET
	}
	return n, err
}

// TestAnAbortLosesNothing checks that bytes that a box sent before it aborted a connection arrive, also when the dialer
// reads them later, and that the dialer learns of the abort.
func TestAnAbortLosesNothing(t *testing.T) {
	near, far := net.Pipe()
	dialer, err := yamux.Client(near, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dialer.Close()
	worker, err := yamux.Server(far, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	stream, err := dialer.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := remote.NewConn(stream, func() {})
	accepted, err := worker.AcceptStream()
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("sent before the end "), 5000)
	inside, outside := net.Pipe()
	defer outside.Close()
	spliced := make(chan struct{})
	go func() { remote.Splice(accepted, aborted{inside, bytes.NewReader(content)}); close(spliced) }()

	time.Sleep(100 * time.Millisecond) // a reset of the stream would arrive before the first read
	got, err := io.ReadAll(c)
	if !errors.Is(err, syscall.ECONNRESET) || !bytes.Equal(got, content) {
		t.Errorf("ReadAll() = %d bytes, %v; want %d bytes, and then a reset", len(got), err, len(content))
	}
	_ = c.Close()
	<-spliced
}
