package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/sandbox"
	"github.com/modbox/modbox/client/wire"
)

// server answers requests by "METHOD /path", and records them with their bodies.
type server struct {
	t       *testing.T
	answers map[string]http.HandlerFunc

	mu    sync.Mutex
	calls []string // guarded by mu
}

// serve returns a server with these answers, and the sandboxes of its client.
func serve(t *testing.T, answers map[string]http.HandlerFunc) (*server, *sandbox.Sandboxes) {
	t.Helper()
	s := &server{t: t, answers: answers}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, "mbx_test", client.WithAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	return s, sandbox.On(c)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	key := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1")
	s.mu.Lock()
	s.calls = append(s.calls, key+" "+string(body))
	s.mu.Unlock()
	h, ok := s.answers[key]
	if !ok {
		s.t.Errorf("unexpected request %s", key)
		http.NotFound(w, r)
		return
	}
	h(w, r)
}

// called returns the requests whose method and path begin so.
func (s *server) called(prefix string) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if strings.HasPrefix(c, prefix) {
			list = append(list, c)
		}
	}
	return list
}

// say answers v as JSON.
func say(v any) http.HandlerFunc { return sayStatus(http.StatusOK, v) }

// sayStatus answers v as JSON, with an HTTP status.
func sayStatus(status int, v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
}

// refuse answers an error of the code.
func refuse(status int, code client.Code) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"code":%q,"detail":"refused"}`, code)
	}
}

func record(state client.State) client.Sandbox {
	return client.Sandbox{ID: "s1", Name: "one", State: state, Cause: &client.Cause{Code: "oom", Message: "it used too much"}}
}

// running returns a server with a running sandbox, and the object of the sandbox.
func running(t *testing.T, answers map[string]http.HandlerFunc) (*server, *sandbox.Sandbox) {
	t.Helper()
	answers["GET /sandboxes/one"] = say(record(client.Running))
	s, all := serve(t, answers)
	sbx, err := all.Connect(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	return s, sbx
}

func TestCreate(t *testing.T) {
	s, all := serve(t, map[string]http.HandlerFunc{"POST /sandboxes": say(record(client.Running))})
	for ttl, want := range map[time.Duration]string{0: `"ttl_seconds":900`, time.Hour: `"ttl_seconds":3600`, sandbox.NoTTL: ""} {
		sbx, err := all.Create(t.Context(), sandbox.Options{Image: "modbox/data", TTL: ttl})
		if err != nil || sbx.ID != "s1" || sbx.Name != "one" || sbx.Info().State != client.Running {
			t.Fatalf("Create = %+v, %v", sbx, err)
		}
		calls := s.called("POST /sandboxes")
		body := calls[len(calls)-1]
		if !strings.Contains(body, `"wait_seconds":60`) || !strings.Contains(body, want) || want == "" && strings.Contains(body, "ttl_seconds") {
			t.Errorf("ttl %s: request %s, want a wait of 60 s and %q", ttl, body, want)
		}
	}
}

func TestCreateReportsTheImage(t *testing.T) {
	step := client.Event{Seq: 7, Type: "image_building", Message: "its image is being made: installing", Data: map[string]string{"phase": "installing"}}
	for _, o := range []sandbox.Options{{}, {WaitUpTo: 10 * time.Minute}} {
		s, all := serve(t, map[string]http.HandlerFunc{
			"POST /sandboxes": say(record(client.Provisioning)),
			"GET /sandboxes/s1/events": func(w http.ResponseWriter, r *http.Request) {
				list := wire.Page[client.Event]{Items: []client.Event{}}
				if r.URL.Query().Get("after_seq") == "" {
					list.Items = []client.Event{{Seq: 6, Type: "created"}, step}
				}
				say(list)(w, r)
			},
			"GET /sandboxes/s1/wait": say(record(client.Running)),
		})
		var seen []client.Event
		sbx, err := all.OnProgress(func(e client.Event) { seen = append(seen, e) }).Create(t.Context(), o)
		if err != nil || sbx.Info().State != client.Running {
			t.Fatalf("Create = %+v, %v", sbx, err)
		}
		if len(seen) != 1 || seen[0].Message != step.Message || !strings.Contains(s.called("POST")[0], `"wait_seconds":5`) {
			t.Errorf("events %+v, request %s; want one event of the image and a first wait of 5 s", seen, s.called("POST"))
		}
	}
}

func TestCreateThatFails(t *testing.T) {
	_, all := serve(t, map[string]http.HandlerFunc{"POST /sandboxes": say(record(client.Failed))})
	_, err := all.Create(t.Context(), sandbox.Options{})
	var failed *sandbox.FailedError
	if !errors.As(err, &failed) || failed.Sandbox.ID != "s1" || !strings.Contains(err.Error(), "oom: it used too much") || !errors.Is(err, client.Ended) {
		t.Errorf("Create of a sandbox that fails: %v, want a FailedError with the cause", err)
	}
	for status, deletes := range map[int]int{http.StatusCreated: 1, http.StatusOK: 0} { // OK: an equal request made it
		s, all := serve(t, map[string]http.HandlerFunc{
			"POST /sandboxes": sayStatus(status, record(client.Provisioning)), "DELETE /sandboxes/s1": say(record(client.Destroyed)),
		})
		if _, err = all.Create(t.Context(), sandbox.Options{WaitUpTo: time.Second}); !errors.Is(err, client.Timeout) || len(s.called("DELETE")) != deletes {
			t.Errorf("Create of a sandbox that is not ready, answered by %d: %v, calls %v; want code timeout, and %d deleted", status, err, s.called("DELETE"), deletes)
		}
	}
	_, all = serve(t, map[string]http.HandlerFunc{"POST /sandboxes": refuse(429, client.QuotaExceeded)})
	if _, err = all.Create(t.Context(), sandbox.Options{}); !errors.Is(err, client.QuotaExceeded) {
		t.Errorf("Create without quota: %v, want code quota_exceeded", err)
	}
}

func TestConnect(t *testing.T) {
	s, all := serve(t, map[string]http.HandlerFunc{
		"GET /sandboxes/one": say(record(client.Paused)), "POST /sandboxes/s1/resume": say(record(client.Running)),
		"GET /sandboxes/gone": say(record(client.Destroyed)),
	})
	if sbx, err := all.Connect(t.Context(), "one"); err != nil || sbx.Info().State != client.Running || len(s.called("POST")) != 1 {
		t.Errorf("Connect to a paused sandbox: %+v, %v; want it resumed", sbx, err)
	}
	if _, err := all.Connect(t.Context(), "gone"); !errors.Is(err, client.Ended) {
		t.Errorf("Connect to an ended sandbox: %v, want code ended", err)
	}
}

func TestRun(t *testing.T) {
	s, sbx := running(t, map[string]http.HandlerFunc{"POST /sandboxes/s1/exec": say(client.ExecResult{ExitCode: 3, Stdout: []byte("3\n"), Stderr: []byte("no\n")})})
	res, err := sbx.Run(t.Context(), "ls -la | wc -l")
	if err != nil || res.ExitCode != 3 || res.Stdout != "3\n" {
		t.Fatalf("Run = %+v, %v; want its result, and no error", res, err)
	}
	var failed *sandbox.CommandError
	if err := res.Err(); !errors.As(err, &failed) || failed.Result.ExitCode != 3 || !strings.HasSuffix(err.Error(), "exit code 3: no\nstdout: 3") {
		t.Errorf("Err() = %v, want a CommandError with exit code and output", err)
	}
	long := strings.Repeat("x", 600)
	for want, r := range map[string]sandbox.Result{
		"the command ended with exit code 1":                                  {ExitCode: 1, Stdout: " \n"},
		"the command ended with exit code 1: out":                             {ExitCode: 1, Stdout: "out\n"},
		"the command ended with exit code 1: err":                             {ExitCode: 1, Stderr: "err\n"},
		"the command ended with exit code 1: ..." + long[:512]:                {ExitCode: 1, Stderr: long, Stdout: "out"},
		"the command ended with exit code 1: err\nstdout: ..." + long[:512-3]: {ExitCode: 1, Stderr: "err", Stdout: long},
	} {
		if got := r.Err().Error(); got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
	if _, err := sbx.Command("ls", "-la").Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := s.called("POST /sandboxes/s1/exec")
	if !strings.Contains(calls[0], `"shell":"ls -la | wc -l"`) || !strings.Contains(calls[1], `"command":["ls","-la"]`) {
		t.Errorf("requests %q, want a command line, and a program with arguments", calls)
	}
	if (&sandbox.Result{}).Err() != nil {
		t.Error("Err() of a command that succeeded")
	}
}

func TestRunStreams(t *testing.T) {
	_, sbx := running(t, map[string]http.HandlerFunc{"POST /sandboxes/s1/exec/stream": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"type":"stdout","data":"YQ=="}`+"\n"+`{"type":"stderr","data":"Yg=="}`+"\n"+`{"type":"exit","exit_code":0,"duration_ms":5}`+"\n")
	}})
	var out bytes.Buffer
	cmd := sbx.Shell("make")
	cmd.Stdout = &out
	res, err := cmd.Run(t.Context())
	if err != nil || out.String() != "a" || res.Stdout != "" || res.Stderr != "b" || res.Duration != 5*time.Millisecond {
		t.Errorf("Run = %+v, %v, written %q; want stdout in the writer and stderr in the result", res, err, out.String())
	}
}

func TestStart(t *testing.T) {
	code := 7
	offsets := []string{}
	s, sbx := running(t, map[string]http.HandlerFunc{
		"POST /sandboxes/s1/executions": say(client.Execution{ID: "e1", SandboxID: "s1", State: client.ExecutionRunning, StdinStreamID: "in", Stdout: client.OutputStream{StreamID: "out"}}),
		"GET /streams/out": func(w http.ResponseWriter, r *http.Request) {
			offsets = append(offsets, r.URL.Query().Get("offset"))
			if r.URL.Query().Get("offset") == "" {
				w.Header().Set("Content-Length", "100") // the connection breaks after 3 bytes
				_, _ = io.WriteString(w, "one")
				return
			}
			_, _ = io.WriteString(w, "two")
		},
		"PUT /streams/in":            func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"GET /executions/e1":         say(client.Execution{ID: "e1", SandboxID: "s1", State: client.ExecutionFailed, ExitCode: &code}),
		"POST /executions/e1/cancel": say(client.Execution{ID: "e1"}),
		"GET /executions/e2":         say(client.Execution{ID: "e2", SandboxID: "another"}),
	})
	cmd := sbx.Shell("cat; exit 7")
	cmd.Stdin, cmd.Input = []byte("first"), true
	p, err := cmd.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(p.Write(t.Context(), []byte("more")), p.CloseInput(t.Context()), p.Stop(t.Context()), p.Kill(t.Context()))
	if err != nil {
		t.Error(err)
	}
	if got := s.called("PUT"); !slices.Equal(got, []string{"PUT /streams/in first", "PUT /streams/in more", "PUT /streams/in "}) {
		t.Errorf("input %q", got)
	}
	if got := s.called("POST /executions"); len(got) != 2 || strings.Contains(got[0], "true") || !strings.Contains(got[1], `"force":true`) {
		t.Errorf("Stop and Kill requested %q", got)
	}
	r := p.Stdout(t.Context())
	out, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || string(out) != "onetwo" || !slices.Equal(offsets, []string{"", "3"}) {
		t.Errorf("output %q, %v, read at %q; want it whole over a broken connection", out, err, offsets)
	}
	if got, err := p.Wait(t.Context()); err != nil || got != 7 {
		t.Errorf("Wait = %d, %v, want 7", got, err)
	}
	if _, err := sbx.Process(t.Context(), "e2"); !errors.Is(err, client.NotFound) {
		t.Errorf("Process of another sandbox: %v, want code not_found", err)
	}
}

func TestMainCommand(t *testing.T) {
	of := func(list ...client.Execution) http.HandlerFunc { return say(wire.Page[client.Execution]{Items: list}) }
	main := client.Execution{ID: "e1", SandboxID: "s1", Kind: client.KindMain, Stdout: client.OutputStream{StreamID: "out"}}
	s, sbx := running(t, map[string]http.HandlerFunc{
		"GET /sandboxes/s1/executions": of(main),
		"GET /streams/out":             func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "begun\n") },
	})
	p, err := sbx.MainCommand(t.Context())
	if err != nil || p.ID != "e1" {
		t.Fatalf("MainCommand = %+v, %v, want e1", p, err)
	}
	r := p.Stdout(t.Context())
	defer r.Close()
	if out, err := io.ReadAll(r); err != nil || string(out) != "begun\n" {
		t.Errorf("its output = %q, %v", out, err)
	}
	if len(s.called("GET /sandboxes/s1/executions")) != 1 {
		t.Errorf("calls %v", s.called(""))
	}
	_, sbx = running(t, map[string]http.HandlerFunc{"GET /sandboxes/s1/executions": of()})
	if _, err := sbx.MainCommand(t.Context()); !errors.Is(err, client.NotFound) {
		t.Errorf("MainCommand without one: %v, want not_found", err)
	}
}

func TestFiles(t *testing.T) {
	_, sbx := running(t, map[string]http.HandlerFunc{"GET /sandboxes/s1/files/stat": refuse(404, client.FileNotFound)})
	if ok, err := sbx.Files.Exists(t.Context(), "/none"); ok || err != nil {
		t.Errorf("Exists = %v, %v; want false", ok, err)
	}
}

const codeEvents = `{"type":"started","context_id":"python","restarted":true}
{"type":"stdout","text":"a"}
{"type":"result","result":{"main":false,"display_id":"d","data":{"text/plain":"0%"}}}
{"type":"result","update":true,"result":{"main":false,"display_id":"d","data":{"text/plain":"100%"}}}
{"type":"result","result":{"main":true,"data":{"text/plain":"<Figure>","image/png":"iVBORw=="}}}
{"type":"end","status":"ok","duration_ms":12}
`

func TestRunCode(t *testing.T) {
	_, sbx := running(t, map[string]http.HandlerFunc{
		"POST /sandboxes/s1/code": say(wire.CodeResult{
			Status: "ok", Stdout: "out", ContextID: "python",
			Results: []wire.CodeOutput{
				{Data: map[string]any{"text/html": "<b>", "application/json": map[string]any{"a": 1}}},
				{Main: true, Data: map[string]any{"text/plain": "21", "image/png": "iVBORw=="}},
			},
		}),
		"POST /sandboxes/s1/code/stream": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, codeEvents) },
	})
	res, err := sbx.RunCode(t.Context(), "x + 1")
	if err != nil || res.Err() != nil || res.Text() != "21" || res.HTML() != "<b>" || string(res.PNG()) != "\x89PNG" || res.Stdout != "out" {
		t.Errorf("RunCode = %+v, %v", res, err)
	}
	var v struct{ A int }
	if ok, err := res.Results[0].JSON(&v); !ok || err != nil || v.A != 1 {
		t.Errorf("JSON = %v, %v, %+v", ok, err, v)
	}
	var texts []string
	res, err = sbx.RunCodeWith(t.Context(), "plot()", sandbox.CodeOptions{
		OnStdout: func(text string) { texts = append(texts, text) },
		OnResult: func(o sandbox.CodeOutput) { texts = append(texts, o.Text()) },
	})
	if err != nil || res.Stdout != "a" || res.Text() != "<Figure>" || !res.Restarted || len(res.Results) != 2 || res.Results[0].Text() != "100%" || res.Duration != 12*time.Millisecond {
		t.Errorf("RunCodeWith = %+v, %v", res, err)
	}
	if want := []string{"a", "0%", "100%", "<Figure>"}; !slices.Equal(texts, want) {
		t.Errorf("as they came: %q, want %q", texts, want)
	}
}

// TestFormats reads a result with two values in different formats: each field is from the first value that has it.
func TestFormats(t *testing.T) {
	chart, table := map[string]any{"type": "line"}, map[string]any{"total_rows": 2.}
	_, sbx := running(t, map[string]http.HandlerFunc{
		"POST /sandboxes/s1/code": say(wire.CodeResult{Status: "ok", ExecutionCount: 3, Scan: &wire.CodeScan{Truncated: true}, Results: []wire.CodeOutput{
			{Data: map[string]any{"text/markdown": "m", "image/svg+xml": "<svg/>", "image/jpeg": "AQ==", "application/vnd.modbox.chart+json": chart}},
			{Main: true, Data: map[string]any{"text/markdown": "later", "text/latex": "l", "application/pdf": "Ag==", "application/json": []int{7}, "application/vnd.dataresource+json": table}},
		}}),
	})
	res, err := sbx.RunCode(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	if ok, err := res.JSON(&list); !ok || err != nil || !slices.Equal(list, []int{7}) {
		t.Errorf("JSON = %v, %v, %v", ok, err, list)
	}
	got := fmt.Sprint(res.ExecutionCount, res.Scan.Truncated, res.Markdown(), res.LaTeX(), res.SVG(), res.JPEG(), res.PDF(), res.Chart(), res.Table(), res.PNG(), res.HTML())
	if want := fmt.Sprint(3, true, "m", "l", "<svg/>", []byte{1}, []byte{2}, chart, table, []byte(nil), ""); got != want {
		t.Errorf("formats %s, want %s", got, want)
	}
	if res.Results[0].Table() != nil || res.Results[1].Chart() != nil {
		t.Error("a value has a format that another value has")
	}
}

func TestCodeThatFails(t *testing.T) {
	_, sbx := running(t, map[string]http.HandlerFunc{
		"POST /sandboxes/s1/code": say(wire.CodeResult{Status: "error", Error: &wire.CodeError{Name: "NameError", Value: "x"}}),
	})
	res, err := sbx.RunCode(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	var failed *sandbox.CodeError
	if err := res.Err(); !errors.As(err, &failed) || err.Error() != "NameError: x" {
		t.Errorf("Err() = %v, want the code's error", err)
	}
	if err := (&sandbox.CodeResult{Status: "timed_out"}).Err(); err == nil {
		t.Error("Err() = nil for code that was interrupted")
	}
}

func TestLife(t *testing.T) {
	s, sbx := running(t, map[string]http.HandlerFunc{
		"PATCH /sandboxes/s1":       say(record(client.Running)),
		"POST /sandboxes/s1/pause":  say(record(client.Paused)),
		"POST /sandboxes/s1/resume": say(record(client.Running)),
		"DELETE /sandboxes/s1":      say(record(client.Destroyed)),
		"GET /sandboxes/s1":         refuse(404, client.NotFound),
		"GET /sandboxes/s1/ports": say(wire.Page[wire.PublishedPort]{
			Items: []wire.PublishedPort{{Port: 80, URL: "http://private", Access: client.PortPrivate}},
		}),
		"PUT /sandboxes/s1/ports/3000": say(wire.PublishedPort{Port: 3000, URL: "http://new"}),
	})
	if err := sbx.SetTimeout(t.Context(), time.Hour); err != nil || !strings.Contains(s.called("PATCH")[0], `{"ttl_seconds":3600}`) {
		t.Errorf("SetTimeout: %v, %v", err, s.called("PATCH"))
	}
	for port, want := range map[uint16]string{80: "http://private", 3000: "http://new"} {
		if got, err := sbx.URL(t.Context(), port); err != nil || got != want {
			t.Errorf("URL(%d) = %q, %v, want %q", port, got, err, want)
		}
	}
	if ports, err := sbx.Client().Sandboxes.Ports.List(sbx.ID).Collect(t.Context()); err != nil || len(ports) != 1 {
		t.Errorf("the client's ports = %v, %v, want one", ports, err)
	}
	if n := len(s.called("PUT")); n != 1 {
		t.Errorf("%d ports were published, want one: the other is published", n)
	}
	for _, step := range []struct {
		do   func(context.Context) error
		want client.State
	}{{sbx.Pause, client.Paused}, {sbx.Resume, client.Running}, {sbx.Delete, client.Destroyed}} {
		if err := step.do(t.Context()); err != nil || sbx.Info().State != step.want {
			t.Errorf("state %s, %v, want %s", sbx.Info().State, err, step.want)
		}
	}
	if _, err := sbx.Refresh(t.Context()); !errors.Is(err, client.NotFound) || sbx.Info().State != client.Destroyed {
		t.Errorf("Refresh of a sandbox that is gone: %v, and the last record %s", err, sbx.Info().State)
	}
}
