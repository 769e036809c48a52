package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/audit"
)

// TestSandboxOfOtherServer: each of several servers answers requests about the sandboxes of the others, by id and by name.
func TestSandboxOfOtherServer(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	for n, owner := range parts {
		name := fmt.Sprint("n", n)
		sb := running(t, owner, name)
		s := parts[1-n]
		for _, ref := range []string{sb.ID, name, sb.ID[:13]} {
			one := "/v1/sandboxes/" + ref
			var got wire.Sandbox
			s.Want(200, "GET", one, nil).Into(t, &got)
			if got.ID != sb.ID || got.State != "running" {
				t.Errorf("%s is %+v", ref, got)
			}
			var res wire.ExecResult
			s.Want(200, "POST", one+"/exec", map[string]any{"shell": "cat", "stdin": strings.Repeat("x", 100<<10)}).Into(t, &res)
			if len(res.Stdout) != 100<<10 {
				t.Errorf("a command in %s has got %d bytes", ref, len(res.Stdout))
			}
			content := strings.Repeat("0123456789abcdef", 1<<16)
			s.Want(200, "PUT", one+"/files?path=/tmp/f", strings.NewReader(content))
			if a := s.Want(200, "GET", one+"/files?path=/tmp/f", nil); string(a.Body) != content {
				t.Errorf("the file in %s has %d bytes", ref, len(a.Body))
			}
			attached(t, s, one)
			var started wire.Execution
			s.Want(201, "POST", one+"/executions", map[string]any{"shell": "echo begun; read line; echo $line", "stdin": true}).Into(t, &started)
			followed(t, s, &started)
		}
		s.Want(200, "GET", "/v1/sandboxes/"+name+"/events", nil)
		s.Want(200, "DELETE", "/v1/sandboxes/"+name, nil)
		var got wire.Sandbox
		s.Want(200, "GET", "/v1/sandboxes/"+sb.ID, nil).Into(t, &got)
		if got.State != "destroyed" {
			t.Errorf("after its end the sandbox is %s", got.State)
		}
	}
}

// attached runs a command over a WebSocket.
func attached(t *testing.T, s *apitest.Server, one string) {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), s.URL+one+"/exec/attach", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + s.Token}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	if err := wsjson.Write(t.Context(), c, wire.AttachStart{Shell: "echo attached"}); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for {
		kind, data, err := c.Read(t.Context())
		if err != nil {
			break
		}
		if kind == websocket.MessageBinary {
			all.Write(data[1:])
		}
	}
	if all.String() != "attached\n" {
		t.Errorf("the command over a WebSocket has written %q", all.String())
	}
}

// followed reads the output of a command while it runs, gives it input, and waits for its end.
func followed(t *testing.T, s *apitest.Server, x *wire.Execution) {
	t.Helper()
	resp, err := s.HTTP.Do(s.Request("GET", "/v1/streams/"+x.Stdout.StreamID+"?follow=true", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); line != "begun\n" {
		t.Fatalf("the output is %q, %v", line, err)
	}
	s.Want(204, "PUT", "/v1/streams/"+x.StdinStreamID, strings.NewReader("typed\n"))
	if rest, err := io.ReadAll(lines); err != nil || string(rest) != "typed\n" {
		t.Fatalf("the rest of the output is %q, %v", rest, err)
	}
	var ended wire.Execution
	s.Want(200, "GET", "/v1/executions/"+x.ID+"?wait_seconds=60", nil).Into(t, &ended)
	if ended.State != "completed" {
		t.Errorf("the execution is %s", ended.State)
	}
	if a := s.Want(200, "GET", "/v1/streams/"+x.Stdout.StreamID, nil); string(a.Body) != "begun\ntyped\n" {
		t.Errorf("the output is %q after the end", a.Body)
	}
}

// TestAuditOfForwarded: an operation is recorded once, by the server that does it.
func TestAuditOfForwarded(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	running(t, parts[1], "n")
	parts[0].Want(200, "POST", "/v1/sandboxes/n/exec", map[string]any{"shell": "true"})
	parts[0].Want(200, "PATCH", "/v1/sandboxes/n", map[string]any{"ttl_seconds": 3600})
	parts[0].Want(200, "DELETE", "/v1/sandboxes/n", nil)
	p, err := parts[0].Store.Audit.AuditRows(t.Context(), audit.Filter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, r := range p.Items {
		var record audit.Record
		if err := json.Unmarshal(r.Record, &record); err != nil {
			t.Fatal(err)
		}
		got[record.Action+" "+record.Outcome]++
	}
	for _, action := range []string{"exec", "update-sandbox", "delete-sandbox"} {
		if got[action+" ok"] != 1 {
			t.Errorf("the records of %s are %v", action, got)
		}
		delete(got, action+" ok")
	}
	for record := range got {
		if !strings.HasSuffix(record, " ok") {
			t.Errorf("there is also a record %s", record)
		}
	}
}

// TestPortOfOtherServer: the URLs of a sandbox and of its ports lead to it at each server.
func TestPortOfOtherServer(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	sb := running(t, parts[1], "n")
	var p wire.PublishedPort
	parts[0].Want(200, "PUT", "/v1/sandboxes/n/ports/3000", nil).Into(t, &p)
	for _, url := range []string{p.URL, sb.URL} {
		path := "/s/" + url[strings.LastIndex(url, "/")+1:]
		for range 100 { // visitors are no guesses
			if a := parts[0].Do("GET", path+"/", nil); a.Status != 502 || a.Header.Get("X-Modbox-Error") != "port_closed" {
				t.Fatalf("%s: %d %s", path, a.Status, a.Body)
			}
		}
	}
	if a := parts[0].Do("GET", "/s/p3000-aaaaaaaaaaaaaaaaaaaa/", nil); a.Status != 404 {
		t.Errorf("a label of no port: %d %s", a.Status, a.Body)
	}
}

// TestBuildOfOtherServer: each server knows the builds of snapshots of the others.
func TestBuildOfOtherServer(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	var b wire.SnapshotBuild
	parts[0].Want(201, "POST", "/v1/snapshot-builds", map[string]any{"runtime": "modbox/code-exec", "name": "b", "content_hash": "h"}).Into(t, &b)
	var at wire.SnapshotBuildProgress
	parts[1].Want(200, "GET", "/v1/snapshot-builds/"+b.ID+"/progress", nil).Into(t, &at)
	if at.ID != b.ID || at.Phase != "begun" {
		t.Errorf("the build is at %+v", at)
	}
	problem(t, parts[1].Want(404, "GET", "/v1/snapshot-builds/none/progress", nil))
}
