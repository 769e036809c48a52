package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/cli/base"
)

// lineWriter sends each line that is written to it.
type lineWriter struct {
	lines chan string

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu; the line that has not ended
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	for bytes.IndexByte(w.text.Bytes(), '\n') >= 0 {
		line, _ := w.text.ReadString('\n')
		w.lines <- line
	}
	return len(p), nil
}

// TestPortForward forwards two ports to a sandbox; a server listens on one of them only.
func TestPortForward(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "x", "wait_seconds": 180})
	inside, err := net.Listen("tcp", "127.0.0.1:0") // the fake driver's sandboxes have the network of the test
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	go func() {
		for {
			conn, err := inside.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(conn)
			_, _ = conn.Write(append([]byte("got "), b...))
			conn.Close()
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	port := func(a net.Addr) string { return fmt.Sprint(a.(*net.TCPAddr).Port) }

	ctx, cancel := context.WithCancel(t.Context())
	out, errOut := &lineWriter{lines: make(chan string, 10)}, &lineWriter{lines: make(chan string, 10)}
	env := &base.Env{Stdin: strings.NewReader(""), Stdout: out, Stderr: errOut, Environ: []string{"MODBOX_URL=" + s.URL, "MODBOX_API_TOKEN=" + s.Token, "HOME=" + t.TempDir()}}
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, env, []string{"port-forward", "x", ":" + port(inside.Addr()), "0:" + port(closed.Addr())})
	}()
	defer cancel()
	forwarding := regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+) -> (\d+)\n$`)
	dial := func(want string) net.Conn {
		t.Helper()
		found := forwarding.FindStringSubmatch(<-out.lines)
		if found == nil || found[2] != want {
			t.Fatalf("forwarding: %q, want port %s", found, want)
		}
		conn, err := net.Dial("tcp", found[1])
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	conn := dial(port(inside.Addr()))
	defer conn.Close()
	// Both directions at once, and the end of one before the other.
	big := strings.Repeat("0123456789abcdef", 1<<16)
	if _, err := io.WriteString(conn, big); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil || string(b) != "got "+big {
		t.Errorf("%d bytes came back, %v; want %d", len(b), err, len(big)+4)
	}
	refused := dial(port(closed.Addr()))
	defer refused.Close()
	if b, err := io.ReadAll(refused); err != nil || len(b) != 0 {
		t.Errorf("a port without a server: %q, %v", b, err)
	}
	if line := <-errOut.lines; !strings.Contains(line, port(closed.Addr())) {
		t.Errorf("message for a port without a server: %q", line)
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code after an interrupt: %d", code)
	}
}

func TestPortForwardUsage(t *testing.T) {
	for _, arg := range []string{"x", "0", "80:0", "70000", "1:2:3", "-1:80", "80:"} {
		if r := invoke(t, nil, "", "port-forward", "sandbox", "--", arg); r.code != base.ExitUsage || !strings.Contains(r.stderr, "LOCAL:PORT") {
			t.Errorf("%s: %+v", arg, r)
		}
	}
}
