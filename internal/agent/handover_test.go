package agent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent"
	"github.com/modbox/modbox/internal/agentapi"
)

// directConn is a connection as the driver makes it. It records what is sent first on it.
type directConn struct {
	net.Conn
	e     *directEnv
	begun bool
}

func (*directConn) Direct() bool { return true }

func (c *directConn) Write(p []byte) (int, error) {
	if !c.begun {
		c.begun = true
		line, _, _ := strings.Cut(string(p), "\r\n")
		c.e.mu.Lock()
		c.e.first = append(c.e.first, line)
		c.e.mu.Unlock()
	}
	return c.Conn.Write(p)
}

// directEnv is an agent to which connections are handed over.
type directEnv struct {
	*env
	host  *os.File
	mu    sync.Mutex
	first []string // guarded by mu; the first line of each connection
}

// firstLines returns the first lines of the connections until now.
func (e *directEnv) firstLines() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.first)
}

// handOver sends a message of that kind with a new connection.
func (e *directEnv) handOver(kind byte) (net.Conn, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(ends[1])
	ours := os.NewFile(uintptr(ends[0]), "ours")
	defer ours.Close()
	if err := unix.Sendmsg(int(e.host.Fd()), []byte{kind}, unix.UnixRights(ends[1]), nil, 0); err != nil {
		return nil, err
	}
	return net.FileConn(ours)
}

// startDirect runs an agent to which connections are handed over.
func startDirect(t *testing.T) *directEnv {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	host := os.NewFile(uintptr(fds[0]), "host")
	stdin := os.NewFile(uintptr(fds[1]), "stdin")
	t.Cleanup(func() { host.Close() })
	e := &directEnv{env: &env{root: t.TempDir()}, host: host}
	e.agent = agent.New(agent.Options{Version: "test", Root: e.root})
	l, err := agent.Handover(stdin)
	if err != nil || l == nil {
		t.Fatalf("Handover = %v, %v", l, err)
	}
	stdin.Close()
	served := make(chan error, 1)
	go func() { served <- e.agent.Serve(l) }()
	e.Client = agentapi.NewClient(func(context.Context) (net.Conn, error) {
		conn, err := e.handOver(agentapi.Connection)
		return &directConn{Conn: conn, e: e}, err
	})
	t.Cleanup(func() {
		e.Client.Close()
		e.agent.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve() = %v", err)
		}
		e.killLeft()
	})
	return e
}

// random returns bytes that do not compress.
func random(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{7}), n) }

// TestDirectTransfers transfers content of sizes around the limits of both ways.
func TestDirectTransfers(t *testing.T) {
	e := startDirect(t)
	for _, size := range []int64{0, 1, agentapi.LargeTransfer - 1, agentapi.LargeTransfer, agentapi.LargeTransfer + 1, 5<<20 + 3} {
		for _, hint := range []int64{size, -1, 0} {
			want, got := sha256.New(), sha256.New()
			info, err := e.WriteFile(t.Context(), "/file", io.TeeReader(random(size), want), agentapi.WriteOptions{Size: hint})
			if err != nil || info.Size != size {
				t.Fatalf("WriteFile of %d bytes, hint %d = %d bytes, %v", size, hint, info.Size, err)
			}
			for offset := range min(size, 2) {
				r, info, err := e.ReadFile(t.Context(), "/file", offset, -1)
				if err != nil || info.Size != size {
					t.Fatalf("ReadFile of %d bytes from %d = %d, %v", size, offset, info.Size, err)
				}
				got.Reset()
				if offset > 0 {
					first := make([]byte, offset)
					_, _ = io.ReadFull(random(size), first)
					got.Write(first)
				}
				n, err := io.Copy(got, r)
				r.Close()
				if err != nil || n != size-offset || !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
					t.Fatalf("read %d of %d bytes from %d, %v, want those that were written", n, size, offset, err)
				}
			}
		}
	}
	packed, err := e.PackArchive(t.Context(), "/file", agentapi.FormatTar)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	if err := e.UnpackArchive(t.Context(), "/there", packed, agentapi.ArchiveOptions{Format: agentapi.FormatTar}); err != nil {
		t.Fatal(err)
	}
	first, err1 := os.ReadFile(filepath.Join(e.root, "file"))
	second, err2 := os.ReadFile(filepath.Join(e.root, "there/file"))
	if err := errors.Join(err1, err2); err != nil || !bytes.Equal(first, second) {
		t.Errorf("the unpacked file differs: %v", err)
	}
}

// TestDirectRefusals: the error of a call arrives although the agent did not read the content.
func TestDirectRefusals(t *testing.T) {
	e := startDirect(t)
	for range 10 {
		_, err := e.WriteFile(t.Context(), "/missing/file", random(30<<20), agentapi.WriteOptions{Size: -1})
		var refused *agentapi.Error
		if !errors.As(err, &refused) || refused.Code != agentapi.CodeNoFile {
			t.Fatalf("WriteFile without a parent = %v", err)
		}
		err = e.UnpackArchive(t.Context(), "/", random(30<<20), agentapi.ArchiveOptions{Format: agentapi.FormatTar})
		if !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
			t.Fatalf("UnpackArchive of no archive = %v", err)
		}
		if _, _, err := e.ReadFile(t.Context(), "/missing", 0, -1); !errors.As(err, &refused) || refused.Code != agentapi.CodeNoFile {
			t.Fatalf("ReadFile = %v", err)
		}
	}
}

// TestDirectEnds: a transfer that its caller gives up, or cannot continue, ends, and leaves no file.
func TestDirectEnds(t *testing.T) {
	e := startDirect(t)
	broken := errors.New("the client is gone")
	content := io.MultiReader(random(3<<20), errorReader{broken})
	if _, err := e.WriteFile(t.Context(), "/file", content, agentapi.WriteOptions{Size: -1}); !errors.Is(err, broken) {
		t.Errorf("WriteFile = %v, want the error of the reader", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	content, more := io.Pipe()
	defer more.Close()
	go func() {
		_, _ = io.Copy(more, random(3<<20))
		cancel()
	}()
	if _, err := e.WriteFile(ctx, "/file", content, agentapi.WriteOptions{Size: -1}); !errors.Is(err, context.Canceled) {
		t.Errorf("WriteFile = %v, want the context's error", err)
	}
	eventually(t, "nothing of the files is left", func() bool {
		left, err := os.ReadDir(e.root)
		return err == nil && len(left) == 0
	})
	if _, err := e.WriteFile(t.Context(), "/file", random(40<<20), agentapi.WriteOptions{Size: -1}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	r, _, err := e.ReadFile(ctx, "/file", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cancel()
	if n, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) || n == 40<<20 {
		t.Errorf("read %d bytes, %v, want the context's error", n, err)
	}
}

// TestDirectProtocols: a large transfer speaks HTTP/1.1, on a connection of its own; other calls speak HTTP/2.
func TestDirectProtocols(t *testing.T) {
	for size, own := range map[int64]bool{0: false, agentapi.LargeTransfer - 1: false, agentapi.LargeTransfer: true, -1: true} {
		e := startDirect(t)
		if _, err := e.WriteFile(t.Context(), "/file", random(3<<20), agentapi.WriteOptions{Size: size}); err != nil {
			t.Fatal(err)
		}
		lines := e.firstLines() // of a health call also, if it took long
		if got := slices.Contains(lines, "PUT /files?path=%2Ffile HTTP/1.1"); got != own || !own && !slices.Equal(lines, []string{"PRI * HTTP/2.0"}) {
			t.Errorf("connections of a write of size %d began with %q; want HTTP/1.1 %v", size, lines, own)
		}
	}
}

// TestDirectHangUp: when the host hangs up, the agent closes every connection, also during a call, and takes new connections.
func TestDirectHangUp(t *testing.T) {
	e := startDirect(t)
	content, more := io.Pipe()
	defer more.Close()
	written := make(chan error, 1)
	go func() {
		_, err := e.WriteFile(t.Context(), "/file", content, agentapi.WriteOptions{Size: -1})
		written <- err
	}()
	if _, err := more.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	closed, err := e.handOver(agentapi.HangUp)
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	if n, err := closed.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("read %d bytes, %v, of the connection that comes with the hang-up, want that it is closed", n, err)
	}
	if err := <-written; !errors.Is(err, agentapi.ErrUnreachable) {
		t.Errorf("WriteFile = %v, want that the connection broke", err)
	}
	if _, err := e.Health(t.Context()); err != nil {
		t.Errorf("Health afterwards = %v", err)
	}
}

// TestDirectPort: an agent understands HTTP/1.1 only where connections are handed over to it.
func TestDirectPort(t *testing.T) {
	e := start(t)
	c, err := e.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprint(c, "GET /health HTTP/1.1\r\nHost: agent\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(c)
	if strings.Contains(string(answer), "200 OK") {
		t.Errorf("the agent answered %q on its port", answer)
	}
}
