package client_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/sandbox"
)

func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL+"/", "mbx_test", client.WithWorkspace("ws"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The types whose shape is the client's own: every value of the server's type, filled whole, must be taken by
// the client's type without a field left over, and come out the same.
func TestOwnTypesMatchTheWire(t *testing.T) {
	for name, tc := range map[string]struct{ server, client any }{
		"page":      {&wire.Page[wire.Sandbox]{}, &client.Page[client.Sandbox]{}},
		"exec":      {&wire.ExecResult{}, &client.ExecResult{}},
		"fileevent": {&wire.FileEvent{}, &fileLine{}},
	} {
		t.Run(name, func(t *testing.T) {
			fill(t, tc.server)
			sent, err := json.Marshal(tc.server)
			if err != nil {
				t.Fatal(err)
			}
			dec := json.NewDecoder(bytes.NewReader(sent))
			dec.DisallowUnknownFields()
			if err := dec.Decode(tc.client); err != nil {
				t.Fatalf("decode %s: %v", sent, err)
			}
			back, err := json.Marshal(tc.client)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(generic(t, sent), generic(t, back)); diff != "" {
				t.Errorf("%s (-server +client):\n%s", name, diff)
			}
		})
	}
}

func generic(t *testing.T, data []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCodesAreTheServers(t *testing.T) {
	var want []client.Code
	for _, c := range sandbox.Codes {
		want = append(want, client.Code(c))
	}
	if diff := cmp.Diff(want, client.Codes); diff != "" {
		t.Errorf("codes (-server +client):\n%s", diff)
	}
}

func TestErrorsRoundTrip(t *testing.T) {
	for _, code := range sandbox.Codes {
		t.Run(string(code), func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Request-Id", "req")
				apierror.New(&sandbox.Error{Code: code, Field: "env.X", Message: "is wrong"}, "req").Write(w)
			})
			_, err := c.Sandboxes.Exec(t.Context(), "x", client.Command{Shell: "true"})
			var e *client.Error
			if !errors.As(err, &e) || !client.IsCode(err, client.Code(code)) || e.RequestID != "req" {
				t.Fatalf("Exec error = %#v, want code %s of request req", err, code)
			}
			if code != sandbox.Internal && !strings.Contains(e.Error(), "env.X") {
				t.Errorf("error %q does not name the field", e)
			}
		})
	}
}

func TestErrorOfAProxy(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "<html>nope", http.StatusRequestEntityTooLarge)
	})
	_, err := c.Sandboxes.Files.Write(t.Context(), "x", "/f", strings.NewReader("data"), client.WriteOptions{})
	if !client.IsCode(err, client.TooLarge) {
		t.Errorf("WriteFile error = %v, want code too_large", err)
	}
}

func TestRequestsCarryIdentityAndEscapeNames(t *testing.T) {
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"), r.Header.Get("X-Workspace-Id"), r.URL.EscapedPath())
		fmt.Fprint(w, `{}`)
	})
	if _, err := c.Sandboxes.Get(t.Context(), "a/b ?ü"); err != nil {
		t.Fatal(err)
	}
	want := []string{"Bearer mbx_test", "ws", "/v1/sandboxes/a%2Fb%20%3F%C3%BC"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestRetries(t *testing.T) {
	unavailable := func(w http.ResponseWriter) {
		apierror.New(sandbox.Errorf(sandbox.Unavailable, "busy"), "").Write(w)
	}
	t.Run("create_keeps_its_key", func(t *testing.T) {
		var keys []string
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			if len(keys) < 3 {
				unavailable(w)
				return
			}
			fmt.Fprint(w, `{"id":"i"}`)
		})
		sb, err := c.Sandboxes.Create(t.Context(), client.CreateOptions{})
		if err != nil || sb.ID != "i" {
			t.Fatalf("Create = %v, %v", sb, err)
		}
		if len(keys) != 3 || keys[0] == "" || keys[0] != keys[2] {
			t.Errorf("keys = %q, want the same three times", keys)
		}
	})
	t.Run("commands_are_not_repeated", func(t *testing.T) {
		calls := 0
		c := serve(t, func(w http.ResponseWriter, r *http.Request) { calls++; unavailable(w) })
		if _, err := c.Sandboxes.Exec(t.Context(), "x", client.Command{Shell: "true"}); !client.IsCode(err, client.Unavailable) {
			t.Errorf("Exec error = %v, want unavailable", err)
		}
		if calls != 1 {
			t.Errorf("server was called %d times, want once", calls)
		}
	})
	t.Run("refusals_are_not_repeated", func(t *testing.T) {
		calls := 0
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			calls++
			apierror.New(sandbox.Errorf(sandbox.NotFound, "no"), "").Write(w)
		})
		if _, err := c.Sandboxes.Get(t.Context(), "x"); !client.IsCode(err, client.NotFound) || calls != 1 {
			t.Errorf("Get error = %v after %d calls, want not_found after one", err, calls)
		}
	})
	t.Run("end_with_the_context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := serve(t, func(w http.ResponseWriter, r *http.Request) { cancel(); unavailable(w) })
		if _, err := c.Sandboxes.Get(ctx, "x"); err == nil {
			t.Error("Get succeeded")
		}
	})
}

func TestExecKeepsBytes(t *testing.T) {
	raw := []byte("a\xff\x00\n")
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var body wire.Exec
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Encoding != "base64" || body.TimeoutSeconds != 2 {
			t.Errorf("request %+v, %v", body, err)
		}
		_ = json.NewEncoder(w).Encode(wire.ExecResult{ExitCode: 3, Stdout: base64.StdEncoding.EncodeToString(raw)})
	})
	res, err := c.Sandboxes.Exec(t.Context(), "x", client.Command{Argv: []string{"x"}, Timeout: 1500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 3 || !bytes.Equal(res.Stdout, raw) {
		t.Errorf("Exec = %d %q, want 3 %q", res.ExitCode, res.Stdout, raw)
	}
}

func TestStream(t *testing.T) {
	stream := func(lines ...wire.StreamMessage) *client.Client {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			for _, l := range lines {
				_ = json.NewEncoder(w).Encode(l)
			}
		})
	}
	run := func(c *client.Client) (string, string, *client.Exit, error) {
		s, err := c.Sandboxes.ExecStream(t.Context(), "x", client.Command{Shell: "x"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var out, errOut bytes.Buffer
		exit, err := s.Copy(&out, &errOut)
		return out.String(), errOut.String(), exit, err
	}
	code, ms := 7, int64(5)
	started := wire.StreamMessage{Type: "started", PID: 1}
	outLine := wire.StreamMessage{Type: "stdout", Data: []byte("o\xff")}
	out, errOut, exit, err := run(stream(started, outLine, wire.StreamMessage{Type: wire.StreamPing}, wire.StreamMessage{Type: "stderr", Data: []byte("e")},
		wire.StreamMessage{Type: "exit", ExitCode: &code, DurationMS: &ms}))
	if err != nil || out != "o\xff" || errOut != "e" || exit.ExitCode != 7 || exit.DurationMS != 5 {
		t.Errorf("Copy = %q %q %+v %v", out, errOut, exit, err)
	}
	if _, _, exit, err = run(stream(started, outLine)); !errors.Is(err, client.ErrCut) || exit != nil {
		t.Errorf("Copy of a cut stream = %v, %v, want ErrCut", exit, err)
	}
	if _, _, _, err = run(stream(started, wire.StreamMessage{Type: "error", Code: "ended", Message: "gone"})); !client.IsCode(err, client.Ended) {
		t.Errorf("Copy of an error = %v, want ended", err)
	}
}

func TestAttach(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			t.Error("no token")
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		var start wire.AttachStart
		_, data, err := conn.Read(r.Context())
		if err != nil || json.Unmarshal(data, &start) != nil || start.TTY == nil || start.TTY.Rows != 24 || !start.Stdin {
			t.Errorf("start = %s, %v", data, err)
		}
		var seen []string
		for {
			kind, data, err := conn.Read(r.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if kind == websocket.MessageBinary {
				seen = append(seen, fmt.Sprintf("%d:%s", data[0], data[1:]))
				continue
			}
			var ctl wire.AttachControl
			if err := json.Unmarshal(data, &ctl); err != nil {
				t.Error(err)
			}
			seen = append(seen, fmt.Sprintf("%s %d %d %d", ctl.Type, ctl.Rows, ctl.Cols, ctl.Signal))
			if ctl.Type == wire.StreamStdinEOF {
				break
			}
		}
		_ = conn.Write(r.Context(), websocket.MessageBinary, append([]byte{wire.ChannelStdout}, strings.Join(seen, ",")...))
		_ = conn.Write(r.Context(), websocket.MessageBinary, append([]byte{wire.ChannelStderr}, "err"...))
		_ = conn.Write(r.Context(), websocket.MessageText, []byte(`{"type":"exit","exit_code":130,"signal":2}`))
		_, _, _ = conn.Read(r.Context()) // until the client closes
	})
	s, err := c.Sandboxes.Attach(t.Context(), "x", client.Command{Argv: []string{"sh"}}, client.AttachOptions{TTY: &client.Size{Rows: 24, Cols: 80}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := io.WriteString(s, "in"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Resize(client.Size{Rows: 1, Cols: 2}), s.Signal(15), s.CloseStdin()); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	exit, err := s.Copy(&out, &errOut)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "0:in,resize 1 2 0,signal 0 0 15,stdin_eof 0 0 0"; got != want {
		t.Errorf("server saw %q, want %q", got, want)
	}
	if errOut.String() != "err" || exit.ExitCode != 130 || exit.Signal != 2 {
		t.Errorf("Copy = %q, %+v", errOut.String(), exit)
	}
}

func TestAttachRefused(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		apierror.New(sandbox.Errorf(sandbox.NotRunning, "wait for it"), "").Write(w)
	})
	_, err := c.Sandboxes.Attach(t.Context(), "x", client.Command{Shell: "x"}, client.AttachOptions{})
	if !client.IsCode(err, client.NotRunning) {
		t.Errorf("Attach error = %v, want not_running", err)
	}
}

func TestAllWalksThePages(t *testing.T) {
	var queries []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.RawQuery)
		switch r.URL.Query().Get("cursor") {
		case "":
			fmt.Fprint(w, `{"items":[{"id":"a"},{"id":"b"}],"next_cursor":"n"}`)
		case "n":
			fmt.Fprint(w, `{"items":[{"id":"c"}],"next_cursor":null}`)
		}
	})
	list := c.Sandboxes.List(client.ListOptions{Name: "x"})
	list.PageSize = 2
	var got []string
	for sb, err := range list.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, sb.ID)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
	if all, err := list.Collect(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("Collect = %v, %v, want 3", all, err)
	}
	page, err := list.Page(t.Context(), client.PageOptions{Limit: 7, Cursor: "n"})
	if err != nil || len(page.Items) != 1 || page.NextCursor != "" {
		t.Errorf("Page = %+v, %v, want the last one", page, err)
	}
	want := []string{"limit=2&name=x", "cursor=n&limit=2&name=x"}
	if diff := cmp.Diff(append(append(want, want...), "cursor=n&limit=7&name=x"), queries); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
}

func TestAllEndsWithAnError(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("cursor") != "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, `{"items":[{"id":"a"}],"next_cursor":"n"}`)
	})
	items, failures := 0, 0
	for _, err := range c.Sandboxes.Checkpoints.List("s").All(t.Context()) {
		if err != nil {
			failures++
		} else {
			items++
		}
	}
	if items != 1 || failures != 1 {
		t.Errorf("All yields %d items and %d errors, want one of each", items, failures)
	}
	if all, err := c.Sandboxes.Checkpoints.List("s").Collect(t.Context()); err == nil || all != nil {
		t.Errorf("Collect = %v, %v, want an error", all, err)
	}
}

func TestWaitGoesOnUntilTheState(t *testing.T) {
	calls := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		if calls == 1 {
			fmt.Fprint(w, `{"state":"provisioning"}`)
			return
		}
		fmt.Fprint(w, `{"state":"failed"}`)
	})
	sb, err := c.Sandboxes.Wait(t.Context(), "x", client.Running)
	if err != nil || sb.State != client.Failed || calls != 2 {
		t.Errorf("Wait = %v, %v after %d calls, want failed after 2", sb, err, calls)
	}
}

func TestAddressOfTheServer(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:7070": `"127.0.0.1:7070" is not an http or https URL; write http://127.0.0.1:7070 or https://127.0.0.1:7070`,
		"ftp://host":     `"ftp://host" is not an http or https URL`,
		"":               `"" is not an http or https URL`,
	} {
		if _, err := client.New(address, "t"); err == nil || err.Error() != want {
			t.Errorf("New(%q) = %v, want %s", address, err, want)
		}
	}
}
