package hostile_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// serve runs a Python program in the sandbox that listens on 8080, and returns when it does.
func (r *rig) serve(sb *client.Sandbox, program string) {
	r.t.Helper()
	if _, err := r.Sandboxes.Files.Write(r.t.Context(), sb.ID, "/workspace/serve.py", strings.NewReader(program), client.WriteOptions{}); err != nil {
		r.t.Fatal(err)
	}
	res := r.Bash(sb.ID, `setsid nohup python3 /workspace/serve.py >/dev/null 2>&1 & until (exec 3<>/dev/tcp/127.0.0.1/8080) 2>/dev/null; do sleep 0.1; done`, time.Minute)
	if res.ExitCode != 0 {
		r.t.Fatalf("the server in the sandbox does not listen: %+v", res)
	}
}

// listener is the head of every hostile server: accept for ever, each connection in a thread.
const listener = `
import socket, threading, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", 8080)); s.listen(64)
def loop():
    while True:
        c, _ = s.accept()
        threading.Thread(target=run, args=(c,), daemon=True).start()
def run(c):
    try: answer(c)
    except OSError: pass
    finally: c.close()
`

func TestHostileServersBehindTheURL(t *testing.T) {
	cases := []struct{ name, answer string }{
		{"garbage", `c.recv(4096); c.sendall(b"\x00\xff" * 5000)`},
		{"closes", `pass`},
		{"endless_header", `
        c.recv(4096); c.sendall(b"HTTP/1.1 200 OK\r\n")
        while True: c.sendall(b"X-A: " + b"a" * 4000 + b"\r\n")`},
		{"lies_about_length", `c.recv(4096); c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nshort")`},
		{"two_lengths", `c.recv(4096); c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\nhello")`},
		{"upgrade_nobody_asked_for", `c.recv(4096); c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")`},
	}
	r := newRig(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			sb := r.MustCreate(client.CreateOptions{})
			r.serve(sb, listener+"def answer(c):\n    if True:\n        "+tc.answer+"\nloop()\n")
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, sb.URL+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_, readErr := io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<20))
				resp.Body.Close()
				if resp.StatusCode != http.StatusBadGateway && resp.StatusCode != http.StatusOK {
					t.Errorf("status %d, want 502 or a cut answer", resp.StatusCode)
				}
				if resp.StatusCode == http.StatusOK && readErr == nil {
					t.Errorf("a server that answers wrongly gave a whole 200")
				}
			} else if ctx.Err() != nil {
				t.Errorf("no answer in two minutes: %v", err)
			}
			r.healthy()
			if _, err := r.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestServerThatNeverAnswers(t *testing.T) {
	r := newRig(t)
	sb := r.MustCreate(client.CreateOptions{Name: "victim"})
	r.serve(sb, listener+"def answer(c):\n    time.sleep(600)\nloop()\n")
	// Many callers wait for it; giving up must free what they held, and exec must not be held up.
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, sb.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("status %d from a server that never answers", resp.StatusCode)
		}
		cancel()
	}
	r.alive(sb.ID)
	r.gone(sb.ID)
}

func TestFullBacklogDoesNotBlockTheSandbox(t *testing.T) {
	r := newRig(t)
	sb := r.MustCreate(client.CreateOptions{Name: "victim"})
	// It listens and never accepts: new connections hang in the guest's kernel.
	r.serve(sb, `
import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 8080)); s.listen(1)
time.sleep(600)
`)
	for range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, sb.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
		cancel()
	}
	r.alive(sb.ID)
	r.gone(sb.ID)
}
