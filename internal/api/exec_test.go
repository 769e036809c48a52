package api_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestExec(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	for _, tc := range []struct {
		name string
		body map[string]any
		want wire.ExecResult
	}{
		{"argv", map[string]any{"command": []string{"printf", "%s|", "a b", "$HOME"}}, wire.ExecResult{Stdout: "a b|$HOME|"}},
		{"shell", map[string]any{"shell": "echo out; echo err >&2; exit 3"}, wire.ExecResult{ExitCode: 3, Stdout: "out\n", Stderr: "err\n"}},
		{"env", map[string]any{"shell": "echo $A", "env": map[string]string{"A": "1"}}, wire.ExecResult{Stdout: "1\n"}},
		{"stdin", map[string]any{"shell": "wc -c", "stdin": strings.Repeat("x", 300_000)}, wire.ExecResult{Stdout: "300000\n"}},
		{"no_stdin", map[string]any{"command": []string{"cat"}}, wire.ExecResult{}},
		{"unread_stdin", map[string]any{"command": []string{"true"}, "stdin": strings.Repeat("x", 1<<20)}, wire.ExecResult{}},
		{"signal", map[string]any{"shell": "kill -9 $$"}, wire.ExecResult{ExitCode: 137, Signal: 9}},
		{"timeout", map[string]any{"shell": "sleep 100", "timeout_seconds": 1}, wire.ExecResult{ExitCode: 143, Signal: 15, TimedOut: true}},
		{"binary", map[string]any{"shell": `printf '\377\000a'`}, wire.ExecResult{Stdout: "\uFFFD\x00a"}},
		{"base64", map[string]any{"shell": `printf '\377\000a'`, "encoding": "base64"}, wire.ExecResult{Stdout: base64.StdEncoding.EncodeToString([]byte("\xff\x00a"))}},
		{
			"capped", map[string]any{"shell": "head -c 5000000 /dev/zero | tr '\\0' x; echo done >&2", "max_output_bytes": 10},
			wire.ExecResult{Stdout: "xxxxxxxxxx", StdoutTruncated: true, Stderr: "done\n"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got wire.ExecResult
			s.Want(200, "POST", "/v1/sandboxes/x/exec", tc.body).Into(t, &got)
			if got.DurationMS < 0 {
				t.Errorf("duration %d", got.DurationMS)
			}
			got.DurationMS = 0
			if got != tc.want {
				t.Errorf("got %.300v, want %.300v", got, tc.want)
			}
		})
	}
	if p := problem(t, s.Do("POST", "/v1/sandboxes/x/exec", map[string]any{"command": []string{"no-such-program"}})); p.Code != sandbox.ProgramNotFound {
		t.Errorf("a program that does not exist: %+v", p)
	}
	p := problem(t, s.Want(404, "POST", "/v1/sandboxes/x/exec", map[string]any{"command": []string{"true"}, "cwd": "/no/such/directory"}))
	if p.Code != sandbox.FileNotFound || len(p.Errors) != 1 || p.Errors[0].Location != "cwd" {
		t.Errorf("a working directory that does not exist: %+v", p)
	}
}

// pidFile returns a path and a function that waits for the pid a command writes there.
func pidFile(t *testing.T) (string, func() int) {
	path := filepath.Join(t.TempDir(), "pid")
	return path, func() int {
		t.Helper()
		var pid int
		eventually(t, "the command writes its pid", func() bool {
			b, _ := os.ReadFile(path)
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
			return pid > 0
		})
		return pid
	}
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(3 * time.Minute)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestCommandDiesWithItsRequest(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	for _, route := range []string{"exec", "exec/stream"} {
		t.Run(route, func(t *testing.T) {
			path, pid := pidFile(t)
			ctx, cancel := context.WithCancel(t.Context())
			r := s.Request("POST", "/v1/sandboxes/x/"+route, map[string]any{"shell": "echo $$ >" + path + "; exec sleep 1000", "timeout_seconds": 3600})
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp, err := s.HTTP.Do(r.WithContext(ctx)); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			p := pid()
			cancel()
			<-done
			eventually(t, "the command is killed", func() bool { return gone(p) })
		})
	}
}

func TestDestroyExplainsTheEndOfACommand(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	path, pid := pidFile(t)
	answer := make(chan *apitest.Answer)
	go func() {
		answer <- s.Do("POST", "/v1/sandboxes/x/exec", map[string]any{"shell": "echo $$ >" + path + "; sleep 1000", "timeout_seconds": 3600})
	}()
	pid()
	s.Want(200, "DELETE", "/v1/sandboxes/x", nil)
	if p := problem(t, <-answer); p.Code != sandbox.Ended {
		t.Errorf("the command's answer: %+v", p)
	}
}

// lines reads the messages of an exec stream.
func lines(t *testing.T, r io.Reader) (all []wire.StreamMessage) {
	t.Helper()
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var m wire.StreamMessage
		if err := json.Unmarshal(sc.Bytes(), &m); err != nil {
			t.Fatalf("line %q: %v", sc.Text(), err)
		}
		all = append(all, m)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestExecStream(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	a := s.Want(200, "POST", "/v1/sandboxes/x/exec/stream/", map[string]any{"shell": "cat; echo err >&2; exit 4", "stdin": "hello"})
	if ct := a.Header.Get("Content-Type"); ct != "application/x-ndjson" {
		t.Errorf("Content-Type %s", ct)
	}
	all := lines(t, bytes.NewReader(a.Body))
	first, last := all[0], all[len(all)-1]
	if first.Type != "started" || first.PID == 0 || first.ProcessID == "" || first.StartedAt == nil {
		t.Errorf("first message %+v", first)
	}
	if last.Type != "exit" || last.ExitCode == nil || *last.ExitCode != 4 || last.DurationMS == nil {
		t.Errorf("last message %+v", last)
	}
	out := map[string]string{}
	for _, m := range all {
		out[m.Type] += string(m.Data)
	}
	if out["stdout"] != "hello" || out["stderr"] != "err\n" {
		t.Errorf("output %q", out)
	}
}

func TestExecStreamComesAsItHappens(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	fifo := filepath.Join(t.TempDir(), "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	resp, err := s.HTTP.Do(s.Request("POST", "/v1/sandboxes/x/exec/stream", map[string]any{"shell": "echo one; read x <" + fifo + "; echo two"}))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for _, want := range []string{"started", "stdout"} {
		// The command goes on only when this has arrived.
		var m wire.StreamMessage
		line, err := in.ReadBytes('\n')
		if err != nil || json.Unmarshal(line, &m) != nil || m.Type != want {
			t.Fatalf("read %q, %v; want %s", line, err, want)
		}
	}
	if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	rest := lines(t, in)
	if len(rest) != 2 || string(rest[0].Data) != "two\n" || rest[1].Type != "exit" {
		t.Errorf("then %+v", rest)
	}
}

func TestSilentStreamPings(t *testing.T) {
	s := apitest.NewWith(t, func(c *api.Config, _ *api.Deps) { c.Ping = 10 * time.Millisecond })
	running(t, s, "x")
	fifo := filepath.Join(t.TempDir(), "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	resp, err := s.HTTP.Do(s.Request("POST", "/v1/sandboxes/x/exec/stream", map[string]any{"shell": "read x <" + fifo + "; echo $x"}))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for range 1 + 3 { // started, and pings as long as the command says nothing
		if _, err := in.ReadBytes('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(fifo, []byte("word\n"), 0); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, m := range lines(t, in) {
		kinds[m.Type]++
	}
	delete(kinds, wire.StreamPing)
	if diff := cmp.Diff(map[string]int{"stdout": 1, "exit": 1}, kinds); diff != "" {
		t.Errorf("after the silence (-want +got):\n%s", diff)
	}
}

func TestSilentAttachPings(t *testing.T) {
	s := apitest.NewWith(t, func(c *api.Config, _ *api.Deps) { c.Ping = 10 * time.Millisecond })
	running(t, s, "x")
	pinged := make(chan struct{}, 64)
	c, _, err := websocket.Dial(t.Context(), s.URL+"/v1/sandboxes/x/exec/attach", &websocket.DialOptions{
		HTTPClient: s.HTTP, HTTPHeader: http.Header{"Authorization": {"Bearer " + s.Token}},
		OnPingReceived: func(context.Context, []byte) bool {
			select {
			case pinged <- struct{}{}:
			default:
			}
			return true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := wsjson.Write(t.Context(), c, wire.AttachStart{Command: []string{"cat"}, Stdin: true}); err != nil {
		t.Fatal(err)
	}
	go func() {
		<-pinged
		<-pinged
		_ = wsjson.Write(t.Context(), c, wire.AttachControl{Type: wire.StreamStdinEOF})
	}()
	if _, last := finish(t, c); last.Type != wire.StreamExit {
		t.Errorf("after the silence: %+v", last)
	}
}

func TestExecStreamEndsWithErrorWhenTheSandboxEnds(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	resp, err := s.HTTP.Do(s.Request("POST", "/v1/sandboxes/x/exec/stream", map[string]any{"shell": "echo up; sleep 1000"}))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for range 2 {
		if _, err := in.ReadBytes('\n'); err != nil {
			t.Fatal(err)
		}
	}
	s.Want(200, "DELETE", "/v1/sandboxes/x", nil)
	rest := lines(t, in)
	if len(rest) != 1 || rest[0].Type != "error" || rest[0].Code != "ended" || rest[0].Message == "" {
		t.Errorf("then %+v", rest)
	}
}

func TestFiles(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	file := func(path string) string { return "/v1/sandboxes/x/files?path=" + url.QueryEscape(path) }
	data := make([]byte, 3<<20)
	_, _ = rand.Read(data)
	var info wire.FileInfo
	s.Want(200, "PUT", file("/data/sub/a b.bin")+"&parents=true&mode=0600", bytes.NewReader(data)).Into(t, &info)
	if info.SizeBytes != int64(len(data)) || info.Mode != "0600" || info.Path != "/data/sub/a b.bin" || info.Type != "file" {
		t.Errorf("written %+v", info)
	}
	got := s.Want(200, "GET", file("/data/sub/a b.bin"), nil)
	if sha256.Sum256(got.Body) != sha256.Sum256(data) || got.Header.Get("Content-Length") != strconv.Itoa(len(data)) {
		t.Errorf("read %d bytes, or others", len(got.Body))
	}
	for rng, want := range map[string][]byte{"bytes=5-9": data[5:10], "bytes=-7": data[len(data)-7:], "bytes=3145720-": data[3145720:]} {
		r := s.Request("GET", file("/data/sub/a b.bin"), nil)
		r.Header.Set("Range", rng)
		if a := s.Send(r); a.Status != 206 || !bytes.Equal(a.Body, want) {
			t.Errorf("%s: %d, %d bytes", rng, a.Status, len(a.Body))
		}
	}
	s.Want(200, "POST", "/v1/sandboxes/x/files/mkdir", map[string]any{"path": "/data/dir"}).Into(t, &info)
	if info.Type != "directory" {
		t.Errorf("made %+v", info)
	}
	s.Want(200, "POST", "/v1/sandboxes/x/files/move", map[string]any{"from": "/data/sub/a b.bin", "to": "/data/dir/b"}).Into(t, &info)
	if info.Path != "/data/dir/b" {
		t.Errorf("moved %+v", info)
	}
	var list wire.Page[wire.FileInfo]
	s.Want(200, "GET", "/v1/sandboxes/x/files/list?path=/data&limit=1", nil).Into(t, &list)
	if len(list.Items) != 1 || list.NextCursor == nil || list.Items[0].Name != "dir" {
		t.Fatalf("list %+v", list)
	}
	next := *list.NextCursor
	list = wire.Page[wire.FileInfo]{}
	s.Want(200, "GET", "/v1/sandboxes/x/files/list?path=/data&limit=1&cursor="+next, nil).Into(t, &list)
	if len(list.Items) != 1 || list.NextCursor != nil || list.Items[0].Name != "sub" {
		t.Errorf("the next page %+v", list)
	}
	s.Want(200, "GET", "/v1/sandboxes/x/files/stat?path=/data/dir/b", nil)
	if p := problem(t, s.Want(409, "DELETE", file("/data"), nil)); p.Code != sandbox.Conflict {
		t.Errorf("remove a full directory: %+v", p)
	}
	s.Want(204, "DELETE", file("/data")+"&recursive=true", nil)
	s.Want(404, "GET", file("/data/dir/b"), nil)
	s.Want(200, "PUT", file("sub/relative")+"&parents=true", strings.NewReader("r")).Into(t, &info)
	if info.Path != "/root/sub/relative" {
		t.Errorf("a relative path is %s, want it in root's home, where commands run", info.Path)
	}
	s.Want(200, "GET", "/v1/sandboxes/x/files/stat?path=/root/sub/relative", nil)
	metadata := func(m map[string]string) string {
		text, _ := json.Marshal(m)
		return "&metadata=" + url.QueryEscape(string(text))
	}
	info = wire.FileInfo{}
	s.Want(200, "PUT", file("/described")+metadata(map[string]string{"a": "1", "ü": "<2>"}), strings.NewReader("")).Into(t, &info)
	if diff := cmp.Diff(map[string]string{"a": "1", "ü": "<2>"}, info.Metadata); diff != "" {
		t.Errorf("metadata: %s", diff)
	}
	many := map[string]string{}
	for i := range 65 {
		many[strconv.Itoa(i)] = ""
	}
	for field, query := range map[string]string{
		"metadata": "&metadata=%7B%22a%22%3A1%7D", "metadata.b": metadata(map[string]string{"b": "\x00"}), "metadata.": metadata(map[string]string{"": "x"}),
		"metadata.n": "&metadata=%7B%22n%22%3Anull%7D", "metadata.c=d": metadata(map[string]string{"c=d": "x"}),
		sandbox.FieldOf("metadata", strings.Repeat("k", 251)): metadata(map[string]string{strings.Repeat("k", 251): ""}),
	} {
		if p := problem(t, s.Want(422, "PUT", file("/refused")+query, strings.NewReader(""))); len(p.Errors) != 1 || p.Errors[0].Location != field {
			t.Errorf("%s: %+v", field, p)
		}
	}
	for _, m := range []map[string]string{many, {"k": strings.Repeat("v", 4096)}} {
		if p := problem(t, s.Want(422, "PUT", file("/refused")+metadata(m), strings.NewReader(""))); len(p.Errors) != 1 || p.Errors[0].Location != "metadata" {
			t.Errorf("too much metadata: %+v", p)
		}
	}
	s.Want(404, "GET", file("/refused"), nil)
	s.Want(200, "PUT", file("/empty"), strings.NewReader(""))
	if a := s.Want(200, "GET", file("/empty"), nil); len(a.Body) != 0 {
		t.Errorf("an empty file has %q", a.Body)
	}
}
