package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

func startExecution(t *testing.T, s *apitest.Server, body wire.StartExecution) wire.Execution {
	t.Helper()
	var e wire.Execution
	s.Want(201, "POST", "/v1/sandboxes/x/executions", body).Into(t, &e)
	return e
}

func waitExecution(t *testing.T, s *apitest.Server, id string) wire.Execution {
	t.Helper()
	var e wire.Execution
	s.Want(200, "GET", "/v1/executions/"+id+"?wait_seconds=180", nil).Into(t, &e)
	return e
}

// stream sends a request about a stream, without a token.
func stream(t *testing.T, s *apitest.Server, method, id, query, body string, header http.Header) (int, string, http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.URL+"/v1/streams/"+id+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := s.HTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s after %q: %v", method, r.URL, data, err)
	}
	return resp.StatusCode, string(data), resp.Header
}

func TestExecutionOverTheAPI(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	e := startExecution(t, s, wire.StartExecution{
		ExecutionCommand: wire.ExecutionCommand{Kind: "job", Shell: "cat file; echo oops >&2; exit 4", Cwd: "/in",
			Files: []wire.ExecutionFile{{Path: "file", Content: []byte("0123456789\n")}}},
		WaitSeconds: 180,
	})
	if e.State != "failed" || e.ExitCode == nil || *e.ExitCode != 4 || e.Stdout.SizeBytes != 11 || e.Stderr.SizeBytes != 5 {
		t.Fatalf("execution %+v, want a failed job with exit code 4 and 11 and 5 bytes", e)
	}
	var list wire.Page[wire.Execution]
	s.Want(200, "GET", "/v1/sandboxes/x/executions?kind=job", nil).Into(t, &list)
	if len(list.Items) != 1 || list.Items[0].ID != e.ID {
		t.Errorf("jobs: %+v", list)
	}
	s.Want(200, "GET", "/v1/sandboxes/x/executions?kind=exec", nil).Into(t, &list)
	if len(list.Items) != 0 {
		t.Errorf("executions that are no jobs: %+v", list)
	}
	if p := problem(t, s.Want(404, "GET", "/v1/executions/"+string(sandbox.NewExecutionID()), nil)); p.Code != sandbox.NotFound {
		t.Errorf("unknown execution: %+v", p)
	}
}

func TestStreams(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	e := startExecution(t, s, wire.StartExecution{ExecutionCommand: wire.ExecutionCommand{Command: []string{"cat"}, Stdin: true}})
	if status, body, _ := stream(t, s, "PUT", e.StdinStreamID, "?eof=false", "one\n", nil); status != 204 {
		t.Fatalf("PUT = %d %s", status, body)
	}
	if status, body, _ := stream(t, s, "PUT", e.StdinStreamID, "", "two\n", nil); status != 204 {
		t.Fatalf("PUT = %d %s", status, body)
	}
	if _, body, _ := stream(t, s, "GET", e.Stdout.StreamID, "?follow=true", "", nil); body != "one\ntwo\n" {
		t.Errorf("followed to its end: %q", body)
	}
	if e := waitExecution(t, s, e.ID); e.State != "completed" {
		t.Errorf("execution %+v", e)
	}
	status, body, _ := stream(t, s, "GET", e.Stdout.StreamID, "", "", http.Header{"Range": {"bytes=2-4"}})
	if status != 206 || body != "e\nt" {
		t.Errorf("range: %d %q", status, body)
	}
	status, body, header := stream(t, s, "GET", e.Stdout.StreamID, "?offset=4", "", nil)
	if status != 200 || body != "two\n" || header.Get("Modbox-Stream-Ended") != "true" {
		t.Errorf("from an offset: %d %q %v", status, body, header)
	}
	_, body, _ = stream(t, s, "GET", e.Stdout.StreamID, "?timestamps=true", "", nil)
	for line := range strings.Lines(body) {
		at, text, _ := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, at); err != nil || text != "one\n" && text != "two\n" {
			t.Errorf("with timestamps: %q", line)
		}
	}
	for query, want := range map[string]int{"?offset=9": 422, "?offset=x": 422, "?follow=maybe": 422} {
		if status, body, _ := stream(t, s, "GET", e.Stdout.StreamID, query, "", nil); status != want && status != 400 {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	for _, id := range []string{"x", "..%2Fmodbox.db", string(sandbox.NewStreamID())} {
		if status, body, _ := stream(t, s, "GET", id, "", "", nil); status != 404 {
			t.Errorf("stream %s: %d %s", id, status, body)
		}
	}
}

func TestCreateOneShotWithCommand(t *testing.T) {
	s := apitest.New(t)
	var sb wire.Sandbox
	s.Want(201, "POST", "/v1/sandboxes", wire.CreateSandbox{Name: "x", Mode: "oneshot", Command: &wire.ExecutionCommand{Command: []string{"echo", "hi"}}}).Into(t, &sb)
	var list wire.Page[wire.Execution]
	s.Want(200, "GET", "/v1/sandboxes/"+sb.ID+"/executions", nil).Into(t, &list)
	if len(list.Items) != 1 {
		t.Fatalf("executions right after the create: %+v", list)
	}
	e := waitExecution(t, s, list.Items[0].ID)
	if e.State != "completed" || !e.OneShot {
		t.Errorf("execution %+v", e)
	}
	s.Want(200, "GET", "/v1/sandboxes/"+sb.ID+"/wait?state=destroyed&timeout_seconds=20", nil).Into(t, &sb)
	if sb.Cause == nil || sb.Cause.Code != "completed" {
		t.Errorf("sandbox %+v, want its end with cause completed", sb)
	}
	if _, body, _ := stream(t, s, "GET", e.Stdout.StreamID, "", "", nil); body != "hi\n" {
		t.Errorf("output after the end: %q", body)
	}
}

func TestReattachToATerminal(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	e := startExecution(t, s, wire.StartExecution{ExecutionCommand: wire.ExecutionCommand{
		Command: []string{"/bin/sh", "-c", "stty -echo; echo ready; read line; echo got $line"}, TTY: &wire.TTYSize{Rows: 24, Cols: 80},
	}})
	dial := func(query string) *websocket.Conn {
		c, _, err := websocket.Dial(t.Context(), s.URL+"/v1/sandboxes/x/executions/"+e.ID+"/attach"+query, &websocket.DialOptions{
			HTTPHeader: http.Header{"Authorization": {"Bearer " + s.Token}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := dial("")
	if out := output(t, first, "ready\r\n"); out != "ready\r\n" {
		t.Fatalf("first connection: %q", out)
	}
	first.CloseNow()
	second := dial("?offset=7")
	defer second.CloseNow()
	if err := wsjson.Write(t.Context(), second, wire.AttachControl{Type: "resize", Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	if err := second.Write(t.Context(), websocket.MessageBinary, []byte("\x00hello\n")); err != nil {
		t.Fatal(err)
	}
	if out := output(t, second, "got hello\r\n"); out != "got hello\r\n" {
		t.Errorf("after attaching again: %q", out)
	}
	if e := waitExecution(t, s, e.ID); e.ExitCode == nil || *e.ExitCode != 0 {
		t.Errorf("execution %+v", e)
	}
}

// output reads output until it ends with want.
func output(t *testing.T, c *websocket.Conn, want string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out := ""
	for !strings.HasSuffix(out, want) {
		kind, data, err := c.Read(ctx)
		if err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		if kind == websocket.MessageBinary {
			out += string(data[1:])
		}
	}
	return out
}

func TestUpdateEnvOverTheAPI(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	var env wire.Env
	s.Want(200, "PATCH", "/v1/sandboxes/x/env", map[string]any{"A": "1", "B": "2"})
	s.Want(200, "PATCH", "/v1/sandboxes/x/env", map[string]any{"A": nil}).Into(t, &env)
	if len(env.Env) != 1 || env.Env["B"] != "2" {
		t.Errorf("env %v, want B=2", env.Env)
	}
}
