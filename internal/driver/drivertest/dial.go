package drivertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// usualBulk exceeds all buffers and windows of a connection together.
const usualBulk = 64 << 20

func stringReader(s string) io.Reader { return strings.NewReader(s) }

// source is the stream of bytes that the guest's source sends.
func source() io.Reader { return rand.NewChaCha8([32]byte{1}) }

// closeWrite ends our direction, if the connection can.
func closeWrite(t *testing.T, c net.Conn) {
	t.Helper()
	h, ok := c.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("a connection from Dial() is a %T without CloseWrite", c)
	}
	if err := h.CloseWrite(); err != nil {
		t.Errorf("CloseWrite() = %v", err)
	}
}

func testDialClosedPort(t *testing.T, h *host) {
	b := h.start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free here is assumed to be free there
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	_, err = h.Driver.Dial(within(t), b.id, port)
	wantCode(t, "Dial() of a port nobody listens on", err, sandbox.PortClosed)
}

func testDialOutlivesContext(t *testing.T, h *host) {
	b := h.start(t)
	port, _ := b.serve(t, "echo")
	ctx, cancel := context.WithCancel(t.Context())
	c, err := h.Driver.Dial(ctx, b.id, port)
	if err != nil {
		t.Fatalf("Dial() = %v", err)
	}
	defer c.Close()
	cancel()
	if _, err := c.Write([]byte("still here")); err != nil {
		t.Fatalf("Write() after the context ended = %v", err)
	}
	got := make([]byte, len("still here"))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "still here" {
		t.Errorf("Read() = %q, %v", got, err)
	}
}

func testUpload(t *testing.T, h *host) {
	b := h.start(t)
	port, _ := b.serve(t, "sink")
	c := b.dial(t, port)
	sum := sha256.New()
	if n, err := io.Copy(c, io.TeeReader(io.LimitReader(source(), h.Bulk), sum)); err != nil || n != h.Bulk {
		t.Fatalf("sent %d bytes: %v", n, err)
	}
	closeWrite(t, c)
	got, err := io.ReadAll(c)
	if want := fmt.Sprintf("%d %s", h.Bulk, hex.EncodeToString(sum.Sum(nil))); err != nil || string(got) != want {
		t.Errorf("the server got %q, %v, want %q", got, err, want)
	}
}

func testDownload(t *testing.T, h *host) {
	b := h.start(t)
	port, _ := b.serve(t, "source", fmt.Sprint(h.Bulk))
	wantSource(t, b.dial(t, port), h.Bulk)
}

func testDownloadSlowly(t *testing.T, h *host) {
	b := h.start(t)
	port, _ := b.serve(t, "source", fmt.Sprint(h.Bulk))
	c := b.dial(t, port)
	// All buffers fill up while nothing is read: another call shows that the box got that far and
	// goes on.
	if _, _, err := output(b.run(t, "eat", "1000")); err != nil {
		t.Fatal(err)
	}
	wantSource(t, smallReads{c}, h.Bulk)
}

// smallReads reads in small, odd pieces.
type smallReads struct{ r io.Reader }

func (s smallReads) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), 1021)]) }

// wantSource checks that exactly so many bytes of the source arrive.
func wantSource(t *testing.T, r io.Reader, bulk int64) {
	t.Helper()
	want, got := sha256.New(), sha256.New()
	io.CopyN(want, source(), bulk)
	n, err := io.Copy(got, r)
	if err != nil || n != bulk || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("got %d bytes, %v, right: %v; want %d", n, err, bytes.Equal(got.Sum(nil), want.Sum(nil)), bulk)
	}
}

// lead is the number of bytes that testEcho sends before their echo arrives: less than a receive window. A server
// that reads nothing until it has written fills both directions of its connection, and gVisor's TCP
// stays stuck when a window ends in the middle of a unit of its scale: see
// docs/design/0009-connections-into-a-box.md.
const lead, chunk = 256 << 10, 32 << 10

func testEcho(t *testing.T, h *host) {
	b := h.start(t)
	port, _ := b.serve(t, "echo")
	c := b.dial(t, port)
	if err := c.SetDeadline(time.Now().Add(4 * testTimeout)); err != nil {
		t.Fatal(err)
	}
	ahead := make(chan struct{}, lead/chunk)
	sent := make(chan error, 1)
	go func() { sent <- sendAhead(t.Context(), c, h.Bulk, ahead) }()
	again := source()
	for at := int64(0); at < h.Bulk; at += chunk {
		var got, want [chunk]byte
		if _, err := io.ReadFull(c, got[:]); err != nil {
			t.Fatalf("after %d bytes: %v", at, err)
		}
		if _, err := io.ReadFull(again, want[:]); err != nil || got != want {
			t.Fatalf("the bytes from %d on are others than were sent, %v", at, err)
		}
		<-ahead
	}
	if n, err := io.Copy(io.Discard, c); n > 0 || err != nil {
		t.Errorf("after all that was sent came %d bytes, %v", n, err)
	}
	if err := <-sent; err != nil {
		t.Errorf("sending: %v", err)
	}
}

// sendAhead sends bulk bytes, a chunk for each token that it gets from ahead.
func sendAhead(ctx context.Context, c net.Conn, bulk int64, ahead chan<- struct{}) error {
	from := source()
	for range bulk / chunk {
		select {
		case ahead <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, err := io.CopyN(c, from, chunk); err != nil {
			return err
		}
	}
	return c.(interface{ CloseWrite() error }).CloseWrite()
}

func testServerClosesFirst(t *testing.T, h *host) {
	b := h.start(t)
	port, printed := b.serve(t, "goodbye")
	c := b.dial(t, port)
	if got, err := io.ReadAll(c); err != nil || string(got) != "goodbye" {
		t.Fatalf("ReadAll() = %q, %v", got, err)
	}
	if _, err := c.Write([]byte("i am still talking")); err != nil {
		t.Fatalf("Write() after the server closed its side = %v", err)
	}
	closeWrite(t, c)
	if got := line(t, printed); got != "i am still talking <nil>" {
		t.Errorf("the server got %q", got)
	}
}

func testManyConnections(t *testing.T, h *host) {
	b := h.start(t)
	port, _ := b.serve(t, "echo")
	const connections, each = 50, 100_000
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() {
			c, err := h.Driver.Dial(within(t), b.id, port)
			if err != nil {
				t.Errorf("Dial() = %v", err)
				return
			}
			defer c.Close()
			want := bytes.Repeat([]byte{byte(i)}, each)
			go c.Write(want)
			got := make([]byte, each)
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
				t.Errorf("connection %d: %v, right: %v", i, err, bytes.Equal(got, want))
			}
		})
	}
	wg.Wait()
}

func testStalledConnections(t *testing.T, h *host) {
	b := h.start(t)
	port, _ := b.serve(t, "source", fmt.Sprint(h.Bulk))
	for range 12 {
		b.dial(t, port) // nobody reads them
	}
	if out, _, err := output(b.run(t, "eat", "1000")); err != nil || out != "eaten 1000\n" {
		t.Errorf("beside stalled connections the guest printed %q, %v", out, err)
	}
	wantSource(t, b.dial(t, port), h.Bulk)
}
