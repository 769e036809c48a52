package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
)

// attach opens a WebSocket and starts a command on it.
func attach(t *testing.T, s *apitest.Server, start wire.AttachStart) *websocket.Conn {
	t.Helper()
	c, resp, err := websocket.Dial(t.Context(), s.URL+"/v1/sandboxes/x/exec/attach", &websocket.DialOptions{
		HTTPClient: s.HTTP, HTTPHeader: http.Header{"Authorization": {"Bearer " + s.Token}},
	})
	if err != nil {
		t.Fatalf("dial: %v, %+v", err, resp)
	}
	t.Cleanup(func() { c.CloseNow() })
	c.SetReadLimit(1 << 20)
	if err := wsjson.Write(t.Context(), c, start); err != nil {
		t.Fatal(err)
	}
	return c
}

// finish reads a WebSocket to its end: output by channel and the last message.
func finish(t *testing.T, c *websocket.Conn) (out [3]string, last wire.StreamMessage) {
	t.Helper()
	for {
		kind, b, err := c.Read(t.Context())
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			return out, last
		}
		if err != nil {
			t.Fatalf("after %+v: %v", last, err)
		}
		if kind == websocket.MessageBinary {
			out[b[0]] += string(b[1:])
			continue
		}
		last = wire.StreamMessage{}
		if err := json.Unmarshal(b, &last); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAttach(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	c := attach(t, s, wire.AttachStart{Shell: "cat; echo err >&2; exit 5", Stdin: true})
	for _, msg := range []string{"hello ", "there"} {
		if err := c.Write(t.Context(), websocket.MessageBinary, append([]byte{wire.ChannelStdin}, msg...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := wsjson.Write(t.Context(), c, wire.AttachControl{Type: "stdin_eof"}); err != nil {
		t.Fatal(err)
	}
	out, last := finish(t, c)
	if out[1] != "hello there" || out[2] != "err\n" || last.Type != "exit" || *last.ExitCode != 5 {
		t.Errorf("output %q, last %+v", out, last)
	}
}

// Long messages come in pieces; what no message can be is passed over.
func TestAttachLongMessages(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	c := attach(t, s, wire.AttachStart{Command: []string{"cat"}, Stdin: true})
	want := strings.Repeat("0123456789abcde\n", 40_000)
	garbage := strings.Repeat("x", 500_000)
	for _, m := range []struct {
		kind websocket.MessageType
		data string
	}{
		{websocket.MessageBinary, "\x00" + want},
		{websocket.MessageBinary, ""},
		{websocket.MessageBinary, "\x07" + garbage},
		{websocket.MessageText, `{"type":"stdin_eof","rest":"` + garbage + `"}`},
		{websocket.MessageBinary, "\x00end"},
		{websocket.MessageText, `{"type":"stdin_eof"}`},
	} {
		if err := c.Write(t.Context(), m.kind, []byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	if out, last := finish(t, c); out[1] != want+"end" || last.Type != "exit" {
		t.Errorf("%d bytes of output, want %d; last %+v", len(out[1]), len(want)+3, last)
	}
}

func TestAttachTerminal(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	c := attach(t, s, wire.AttachStart{Shell: "stty size; read x; stty size; echo got $x", TTY: &wire.TTYSize{Rows: 33, Cols: 77}})
	var seen strings.Builder
	for !strings.Contains(seen.String(), "33 77") {
		kind, b, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if kind == websocket.MessageBinary {
			seen.Write(b[1:])
		}
	}
	if err := wsjson.Write(t.Context(), c, wire.AttachControl{Type: "resize", Rows: 40, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), websocket.MessageBinary, []byte("\x00word\n")); err != nil {
		t.Fatal(err)
	}
	out, last := finish(t, c)
	if !strings.Contains(out[1], "40 100") || !strings.Contains(out[1], "got word") || last.Type != "exit" {
		t.Errorf("output %q, last %+v", out, last)
	}
}

func TestAttachSignalAndErrors(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	c := attach(t, s, wire.AttachStart{Shell: "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"})
	for {
		if kind, _, err := c.Read(t.Context()); err != nil {
			t.Fatal(err)
		} else if kind == websocket.MessageBinary {
			break
		}
	}
	if err := wsjson.Write(t.Context(), c, wire.AttachControl{Type: "signal", Signal: 15}); err != nil {
		t.Fatal(err)
	}
	if _, last := finish(t, c); last.Type != "exit" || *last.ExitCode != 9 {
		t.Errorf("after SIGTERM: %+v", last)
	}
	for _, tc := range []struct {
		start wire.AttachStart
		code  string
	}{
		{wire.AttachStart{}, "invalid"},
		{wire.AttachStart{Command: []string{"no-such-program"}}, "program_not_found"},
		{wire.AttachStart{Command: []string{"true"}, Cwd: "/no/such/directory"}, "file_not_found"},
	} {
		if _, last := finish(t, attach(t, s, tc.start)); last.Type != "error" || last.Code != tc.code {
			t.Errorf("start %+v: %+v, want %s", tc.start, last, tc.code)
		}
	}
}

func TestAttachedCommandDiesWithItsClient(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	path, pid := pidFile(t)
	c := attach(t, s, wire.AttachStart{Shell: "echo $$ >" + path + "; exec sleep 1000"})
	p := pid()
	c.CloseNow()
	eventually(t, "the command is killed", func() bool { return gone(p) })
}

// fill writes stdin until the server takes no more, and goes away. When a write is only
// slow the client is gone a little early.
func fill(t *testing.T, c *websocket.Conn) {
	t.Helper()
	data := make([]byte, 256<<10) // the first byte is the channel of stdin
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := c.Write(ctx, websocket.MessageBinary, data)
		cancel()
		if err != nil {
			c.CloseNow()
			return
		}
	}
}

// TestAttachedCommandThatTakesNoInput: that its client is gone is seen although the
// server, which cannot get rid of stdin, reads nothing more of it.
func TestAttachedCommandThatTakesNoInput(t *testing.T) {
	s := apitest.NewWith(t, func(c *api.Config, _ *api.Deps) { c.Ping = 10 * time.Millisecond })
	running(t, s, "x")
	path, pid := pidFile(t)
	c := attach(t, s, wire.AttachStart{Shell: "echo $$ >" + path + "; exec sleep 1000", Stdin: true})
	p := pid()
	fill(t, c)
	eventually(t, "the command is killed", func() bool { return gone(p) })
}
