package kernel_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/kernel"
	"github.com/modbox/modbox/internal/kernelapi"
)

// server is a supervisor that answers over HTTP.
type server struct {
	t   *testing.T
	url string
	ids int
}

func start(t *testing.T) *server {
	t.Helper()
	s := kernel.New(t.TempDir())
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		s.Close()
		h.Close()
	})
	return &server{t: t, url: h.URL}
}

// do sends a request, decodes the answer into v and returns the status.
func (s *server) do(method, path string, body, v any) int {
	s.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(data))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if v != nil {
		if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
			s.t.Fatalf("%s %s = %d, %v", method, path, resp.StatusCode, err)
		}
	}
	return resp.StatusCode
}

// events is a run under way.
type events struct {
	t    *testing.T
	id   string
	body io.ReadCloser
	r    *bufio.Reader
}

func (s *server) begin(run kernelapi.Run) *events {
	s.t.Helper()
	s.ids++
	return s.attach(fmt.Sprintf("run-%d", s.ids), 0, run)
}

func (s *server) attach(id string, after int, run kernelapi.Run) *events {
	s.t.Helper()
	data, err := json.Marshal(run)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.Post(fmt.Sprintf("%s/runs/%s?after=%d", s.url, id, after), "application/json", bytes.NewReader(data))
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		message, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("run %q = %d, %s", run.Code, resp.StatusCode, message)
	}
	return &events{t: s.t, id: id, body: resp.Body, r: bufio.NewReaderSize(resp.Body, 1<<20)}
}

// next returns the next event; false at the end.
func (e *events) next() (kernelapi.Event, bool) {
	e.t.Helper()
	line, err := e.r.ReadBytes('\n')
	if err == io.EOF && len(line) == 0 {
		e.body.Close()
		return kernelapi.Event{}, false
	}
	var ev kernelapi.Event
	if err == nil {
		err = json.Unmarshal(line, &ev)
	}
	if err != nil {
		e.t.Fatalf("event %q: %v", line, err)
	}
	return ev, true
}

// until reads events until one of a type comes.
func (e *events) until(kind kernelapi.EventType) {
	e.t.Helper()
	var before []kernelapi.Event
	for {
		ev, ok := e.next()
		if !ok {
			e.t.Fatalf("run %s ended without an event %s: %+v", e.id, kind, before)
		}
		if before = append(before, ev); ev.Type == kind {
			return
		}
	}
}

// interrupt interrupts what a context executes.
func (s *server) interrupt(context string) {
	s.t.Helper()
	if code := s.do("POST", "/contexts/"+context+"/interrupt", nil, nil); code != http.StatusOK {
		s.t.Errorf("interrupt = %d", code)
	}
}

// summary has the events of a run, by type.
type summary struct {
	Stdout, Stderr string
	Results        []string // "main " or "display " and the text/plain
	Error          string
	Status         kernelapi.Status
	Restarted      bool
	Truncated      bool
}

// rest reads a run to its end.
func (e *events) rest() summary {
	e.t.Helper()
	var s summary
	for {
		ev, ok := e.next()
		if !ok {
			if s.Status == "" {
				e.t.Fatal("the events ended without an end")
			}
			return s
		}
		switch ev.Type {
		case kernelapi.Started:
			s.Restarted = ev.Restarted
		case kernelapi.Stdout:
			s.Stdout += ev.Text
		case kernelapi.Stderr:
			s.Stderr += ev.Text
		case kernelapi.Result:
			kind := "display "
			if ev.Main {
				kind = "main "
			}
			var text string
			_ = json.Unmarshal(ev.Data["text/plain"], &text) // none stays ""
			s.Results = append(s.Results, kind+text)
		case kernelapi.Failure:
			s.Error = ev.Name + ": " + ev.Value
		case kernelapi.End:
			s.Status, s.Truncated = ev.Status, ev.Truncated
		}
	}
}

// run runs code to its end and compares.
func (s *server) run(context, code string, want summary) {
	s.t.Helper()
	if want.Status == "" {
		want.Status = kernelapi.OK
	}
	got := s.begin(kernelapi.Run{Language: context, Code: code}).rest()
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("%s %q (-want +got):\n%s", context, code, diff)
	}
}

func TestPython(t *testing.T) {
	s := start(t)
	s.run("python", "x = 20\nx + 1", summary{Results: []string{"main 21"}})
	s.run("python", "print('a'); x *= 2; x", summary{Stdout: "a\n", Results: []string{"main 40"}})
	s.run("python", "import sys; print('é', file=sys.stderr)", summary{Stderr: "é\n"})
	s.run("python", "1/0", summary{Error: "ZeroDivisionError: division by zero", Status: kernelapi.Failed})
	s.run("python", "import subprocess; r = subprocess.run('echo out; cat', shell=True)", summary{Stdout: "out\n"})
	// Characters that come in several reads, and bytes that are no text, after which output still arrives.
	s.run("python", `r = subprocess.run('yes é | head -n 70000', shell=True)`, summary{Stdout: strings.Repeat("é\n", 70000)})
	s.run("python", `r = subprocess.run(r"printf 'a\377\303' >&2", shell=True)`, summary{Stderr: "a\uFFFD\uFFFD"})
	s.run("python", `import os; r = os.system('echo out; echo err >&2')`, summary{Stdout: "out\n", Stderr: "err\n"})
	s.run("python", "from IPython.display import display, HTML\ndisplay(HTML('<b>x</b>'))", summary{Results: []string{"display <IPython.core.display.HTML object>"}})
	s.run("python", "os._exit(3)", summary{Error: "InterpreterEnded: the interpreter ended: exit status 3", Status: kernelapi.Lost})
	s.run("python", "'x' in globals()", summary{Restarted: true, Results: []string{"main False"}})
}

// TestTextUnderWay ends code while a thread of ipykernel has text of the code that it has not sent yet.
func TestTextUnderWay(t *testing.T) {
	s := start(t)
	s.run("python", `import sys, threading, time
taken, rotate = threading.Event(), sys.stdout._rotate_buffer
def slowly():
    buffer = rotate()
    if not taken.is_set():
        taken.set()
        time.sleep(0.2)
        sys.stdout.flush()  # as a finalizer may
    return buffer
sys.stdout._rotate_buffer = slowly`, summary{})
	var got []kernelapi.EventType
	run := s.begin(kernelapi.Run{Language: "python", Code: "taken.clear(); print('text'); _ = taken.wait(); 7"})
	for ev, ok := run.next(); ok; ev, ok = run.next() {
		got = append(got, ev.Type)
	}
	if want := []kernelapi.EventType{kernelapi.Started, kernelapi.Stdout, kernelapi.Result, kernelapi.End}; !slices.Equal(got, want) {
		t.Errorf("the events are %q, want %q: the text was written before the result", got, want)
	}
}

// TestForkedPrint prints in child processes, which have none of the threads of their parent, and text of the parent that
// they would print again.
func TestForkedPrint(t *testing.T) {
	s := start(t)
	want := summary{Stdout: "parent\n", Stderr: strings.Repeat("é 3\n", 20)}
	for n := range 20 {
		want.Stdout += fmt.Sprintf("text %d\n", n)
	}
	s.run("python", `import os, sys
print('parent')
for n in range(20):
    if os.fork() == 0:
        sys.stdout.flush()
        print('text', n)
        print('é', 3, file=sys.stderr)
        os._exit(n)
    _ = os.wait()`, want)
	s.run("python", `import multiprocessing
def work(n): print('work', n)
for n in range(2):
    p = multiprocessing.get_context('fork').Process(target=work, args=(n,))
    p.start(); p.join()`, summary{Stdout: "work 0\nwork 1\n"})
}

func TestPlot(t *testing.T) {
	s := start(t)
	e := s.begin(kernelapi.Run{Code: "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]);"})
	found := false
	for {
		ev, ok := e.next()
		if !ok {
			break
		}
		found = found || len(ev.Data["image/png"]) > 1000
	}
	if !found {
		t.Error("the run has no image of its plot")
	}
}

func TestBash(t *testing.T) {
	s := start(t)
	s.run("bash", "x=3; cd /usr; f() { echo \"f $x\"; }", summary{})
	s.run("bash", "f; pwd; echo err >&2; cat", summary{Stdout: "f 3\n/usr\n", Stderr: "err\n"})
	s.run("bash", "echo a\n(exit 4)", summary{Stdout: "a\n", Error: "ExitStatus: 4", Status: kernelapi.Failed})
	s.run("bash", "cat <<'E'\n$x `!`\nE", summary{Stdout: "$x `!`\n"})
	s.run("bash", "exit 5", summary{Stderr: "exit\n", Error: "InterpreterEnded: the interpreter ended: exit status 5", Status: kernelapi.Lost})
	s.run("bash", "echo ${x-none}", summary{Restarted: true, Stdout: "none\n"})
}

func TestJavaScript(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Fatal("this test needs Node.js")
	}
	s := start(t)
	s.run("javascript", "const x = await Promise.resolve(20); x + 1", summary{Results: []string{"main 21"}})
	s.run("javascript", "const x = 5; function f() { return x * 2 }\nconsole.log('a'); console.error('b'); f()", summary{Stdout: "a\n", Stderr: "b\n", Results: []string{"main 10"}})
	s.run("javascript", "f(); undefined", summary{})
	s.run("javascript", "({ a: [1, 2] })", summary{Results: []string{"main { a: [ 1, 2 ] }"}})
	s.run("javascript", "null.x", summary{Error: "TypeError: Cannot read properties of null (reading 'x')", Status: kernelapi.Failed})
	s.run("javascript", "throw 3", summary{Error: "Error: 3", Status: kernelapi.Failed})
	s.run("javascript", "let y = ;", summary{Error: "SyntaxError: Unexpected token ';'", Status: kernelapi.Failed})
	s.run("javascript", "import os, { EOL as eol } from 'node:os'\nimport * as p from 'path'\n[typeof os.cpus, eol, p.sep, (await import('fs')).constants.F_OK]", summary{Results: []string{`main [ 'function', '\n', '/', 0 ]`}})
	s.run("javascript", "display({a: 1}); require('child_process').execSync('echo x', {stdio: 'inherit'}); -0", summary{Stdout: "x\n", Results: []string{"display { a: 1 }", "main -0"}})
	s.run("javascript", "process.exit(3)", summary{Error: "InterpreterEnded: the interpreter ended: exit status 3", Status: kernelapi.Lost})
	s.run("javascript", "typeof f", summary{Restarted: true, Results: []string{"main 'undefined'"}})
}

func TestJava(t *testing.T) {
	if _, err := exec.LookPath("jshell"); err != nil {
		t.Fatal("this test needs a JDK with jshell")
	}
	s := start(t)
	s.run("java", "int x = 20; // é\nx + 1", summary{Results: []string{"main 21"}})
	s.run("java", "int twice(int a) {\n  return a * 2;\n}\nSystem.out.print(\"é\\t😀\"); System.err.println(twice(x));", summary{Stdout: "é\t😀", Stderr: "40\n"})
	s.run("java", "twice(4); \"a\\\"é\\n\"", summary{Results: []string{`main "a\"é\n"`}})
	s.run("java", "record Point(int x, int y) {}\nvar all = List.of(new Point(1, 2)); all", summary{Results: []string{"main [Point[x=1, y=2]]"}})
	s.run("java", "if (x > 3)\n  for (var i : all) System.out.println(i);\n// the end", summary{Stdout: "Point[x=1, y=2]\n"})
	s.run("java", "x = 7; System.out.println(1 / 0); System.out.println(2)", summary{Error: "java.lang.ArithmeticException: / by zero", Status: kernelapi.Failed})
	s.run("java", "int y = ;", summary{Error: "CompilationError: illegal start of expression", Status: kernelapi.Failed})
	s.run("java", "twice(", summary{Error: "CompilationError: reached end of file while parsing", Status: kernelapi.Failed})
	s.run("java", "x", summary{Results: []string{"main 7"}})
	s.run("java", "new ProcessBuilder(\"sh\", \"-c\", \"echo out; cat\").inheritIO().start().waitFor()", summary{Stdout: "out\n", Results: []string{"main 0"}})
	s.run("java", "System.exit(3)", summary{Error: "InterpreterEnded: the interpreter ended: exit status 3", Status: kernelapi.Lost})
	s.run("java", "x", summary{Restarted: true, Error: "CompilationError: cannot find symbol\n  symbol:   variable x\n  location: class ", Status: kernelapi.Failed})
}

// TestInterrupt interrupts code that has begun, in each language, after which the state is still there.
func TestInterrupt(t *testing.T) {
	s := start(t)
	for _, tc := range []struct{ language, set, code, get, want string }{
		{"python", "v = 7", "import time\nprint('go', flush=True)\nwhile True: time.sleep(0.01)", "print(v)", "7\n"},
		{"bash", "v=7", "echo go; sleep 1000; echo on", "echo $v", "7\n"},
		{"bash", "v=8", "echo go; while :; do :; done", "echo $v", "8\n"},
		{"javascript", "let v = 7", "console.log('go'); while (true);", "console.log(v)", "7\n"},
		{"javascript", "v = 8", "setTimeout(() => console.log('go'), 50); await new Promise(() => {})", "console.log(v)", "8\n"},
		{"javascript", "v = 9", "console.log('go'); require('child_process').execSync('sleep 1000')", "console.log(v)", "9\n"},
		{"java", "int v = 7;", "System.out.println(\"go\"); while (true); System.out.println(\"on\");", "System.out.println(v);", "7\n"},
		{"java", "v = 8;", "System.out.println(\"go\"); Thread.sleep(1000000);", "System.out.println(v);", "8\n"},
		{"java", "v = 10;", "System.out.println(\"go\"); new ProcessBuilder(\"sleep\", \"1000\").start().waitFor()", "System.out.println(v);", "10\n"},
	} {
		s.begin(kernelapi.Run{Language: tc.language, Code: tc.set}).rest()
		e := s.begin(kernelapi.Run{Language: tc.language, Code: tc.code})
		e.until(kernelapi.Stdout)
		s.interrupt(tc.language)
		if got := e.rest(); got.Status != kernelapi.Interrupted {
			t.Errorf("%s %q = %+v, want it interrupted", tc.language, tc.code, got)
		}
		s.run(tc.language, tc.get, summary{Stdout: tc.want})
	}
}

func TestTimeout(t *testing.T) {
	s := start(t)
	got := s.begin(kernelapi.Run{Code: "while True: pass", Timeout: 50 * time.Millisecond}).rest()
	if got.Status != kernelapi.TimedOut || !strings.HasPrefix(got.Error, "KeyboardInterrupt") {
		t.Errorf("run = %+v, want timed_out by a KeyboardInterrupt", got)
	}
	// Code that does not let itself be interrupted loses its interpreter.
	got = s.begin(kernelapi.Run{Code: "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", Timeout: 50 * time.Millisecond}).rest()
	if got.Status != kernelapi.TimedOut || got.Error != "InterpreterEnded: the interpreter ended: signal: killed" {
		t.Errorf("run = %+v, want timed_out by the end of the interpreter", got)
	}
	s.run("python", "1", summary{Restarted: true, Results: []string{"main 1"}})
}

// TestAttach reads the events of a run again from the middle, as after a broken connection.
func TestAttach(t *testing.T) {
	s := start(t)
	goOn := filepath.Join(t.TempDir(), "go-on")
	if err := syscall.Mkfifo(goOn, 0o600); err != nil {
		t.Fatal(err)
	}
	run := kernelapi.Run{Language: "bash", Code: "echo a; read < " + goOn + "; echo b"}
	e := s.begin(run)
	for range 2 { // started, a
		if _, ok := e.next(); !ok {
			t.Fatal("the run ended")
		}
	}
	e.body.Close()
	attached := s.attach(e.id, 2, run)
	if err := os.WriteFile(goOn, []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if got := attached.rest(); got.Stdout != "b\n" || got.Status != kernelapi.OK {
		t.Errorf("the rest = %+v, want b", got)
	}
	if again := s.attach(e.id, 0, run).rest(); again.Stdout != "a\nb\n" {
		t.Errorf("all = %+v, want a, b", again)
	}
}

func TestContexts(t *testing.T) {
	s := start(t)
	var c kernelapi.Context
	if code := s.do("POST", "/contexts", kernelapi.ContextSpec{ID: "c1", Language: "sh", Cwd: "/usr", Env: map[string]string{"V": "w"}}, &c); code != http.StatusOK {
		t.Fatalf("create = %d", code)
	}
	if c.ID != "c1" || c.Language != "bash" || c.State != kernelapi.Idle {
		t.Errorf("context = %+v", c)
	}
	in := func(context, code string) summary {
		return s.begin(kernelapi.Run{Context: context, Code: code}).rest()
	}
	if got := in("c1", "pwd; echo $V; x=1"); got.Stdout != "/usr\nw\n" {
		t.Errorf("run = %+v", got)
	}
	s.run("bash", "echo ${x-none}", summary{Stdout: "none\n"})
	var all []kernelapi.Context
	if s.do("GET", "/contexts", nil, &all); len(all) != 2 || all[0].ID != "c1" || all[1].ID != "bash" {
		t.Errorf("contexts = %+v", all)
	}
	if s.do("POST", "/contexts/c1/restart", nil, &c); c.Restarts != 1 || c.State != kernelapi.Idle {
		t.Errorf("restarted = %+v", c)
	}
	if got := in("c1", "echo ${x-none}"); got.Stdout != "none\n" {
		t.Errorf("after a restart: %+v", got)
	}
	if code := s.do("DELETE", "/contexts/c1", nil, nil); code != http.StatusOK {
		t.Errorf("delete = %d", code)
	}
	var refused kernelapi.Error
	if code := s.do("POST", "/runs/late", kernelapi.Run{Context: "c1"}, &refused); code != http.StatusNotFound || refused.Code != kernelapi.CodeNotFound {
		t.Errorf("a run in a deleted context = %d %+v", code, refused)
	}
	for field, spec := range map[string]kernelapi.ContextSpec{"language": {ID: "a", Language: "cobol"}, "": {ID: "a/b", Language: "bash"}, "cwd": {ID: "a", Language: "bash", Cwd: "/does/not/exist"}} {
		refused = kernelapi.Error{}
		if code := s.do("POST", "/contexts", spec, &refused); code != http.StatusBadRequest || refused.Code != kernelapi.CodeInvalid || refused.Field != field {
			t.Errorf("create %+v = %d %+v, want it refused for the field %q", spec, code, refused, field)
		}
	}
}

// TestNotInstalled has a PATH without interpreters.
func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s := start(t)
	for language, want := range map[string]string{"javascript": "apt_packages nodejs", "r": "apt_packages r-cran-irkernel", "bash": "apt_packages bash", "java": "apt_packages default-jdk-headless"} {
		var refused kernelapi.Error
		code := s.do("POST", "/contexts", kernelapi.ContextSpec{ID: "c", Language: language}, &refused)
		if code != http.StatusNotImplemented || refused.Code != kernelapi.CodeNotInstalled || !strings.Contains(refused.Message, want) {
			t.Errorf("create %s = %d %+v, want %q in it", language, code, refused, want)
		}
	}
}

// TestBounds has more output, and larger results, than a run may have.
func TestBounds(t *testing.T) {
	s := start(t)
	got := s.begin(kernelapi.Run{Language: "bash", Code: "head -c 30000000 /dev/zero | tr '\\0' x; echo end"}).rest()
	if got.Status != kernelapi.OK || !got.Truncated || len(got.Stdout) > kernelapi.MaxEvents {
		t.Errorf("%d bytes of output, truncated: %v, %s", len(got.Stdout), got.Truncated, got.Status)
	}
	e := s.begin(kernelapi.Run{Code: "from IPython.display import display\ndisplay({'text/plain': 'small', 'text/html': 'x' * 5000000}, raw=True)"})
	for {
		ev, ok := e.next()
		if !ok {
			t.Fatal("the run has no result")
		}
		if ev.Type == kernelapi.Result {
			if diff := cmp.Diff(kernelapi.Lines{"text/html"}, ev.Omitted); diff != "" || string(ev.Data["text/plain"]) != `"small"` {
				t.Errorf("omitted (-want +got):\n%s\ndata %v", diff, ev.Data)
			}
			break
		}
	}
	e.rest()
	s.run("python", "1", summary{Results: []string{"main 1"}})
}

// BenchmarkPython is one plus one in a context that runs.
func BenchmarkPython(b *testing.B) {
	s := kernel.New(b.TempDir())
	h := httptest.NewServer(s.Handler())
	defer h.Close()
	defer s.Close()
	for i := 0; b.Loop(); i++ {
		resp, err := http.Post(fmt.Sprintf("%s/runs/b%d", h.URL, i), "", strings.NewReader(`{"language": "python", "code": "1+1"}`))
		if err != nil {
			b.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Contains(data, []byte(`"status":"ok"`)) {
			b.Fatalf("%s, %v", data, err)
		}
	}
}

// inNative has the codes of TestInterruptJavaScript that spend their time in functions of Node.js itself,
// some of which take a termination for a result and abort the process.
var inNative = map[string]bool{
	"for (;;) await import('node:fs')":                 true,
	"for (;;) require('node:vm').runInNewContext('1')": true,
}

// aborted reports whether Node.js has aborted by itself, as docs/run-code.md says it may.
func (s *summary) aborted() bool {
	return s.Status == kernelapi.TimedOut && !s.Restarted && strings.HasPrefix(s.Error, "InterpreterEnded: the interpreter ended: signal: aborted") &&
		(strings.Contains(s.Stderr, "FATAL ERROR: ") || strings.Contains(s.Stderr, "Assertion failed: "))
}

// escaped reports whether Node.js has lost the termination and the interpreter was killed after its grace.
func (s *summary) escaped() bool {
	return s.Status == kernelapi.TimedOut && !s.Restarted && s.Error == "InterpreterEnded: the interpreter ended: signal: killed"
}

// TestInterruptJavaScript interrupts code after a few milliseconds, many times: wherever that is, the
// interpreter keeps its state, unless Node.js aborts in a function of its own, or loses the termination, which
// happens less than once in hundreds of interrupts; then the interpreter is started again.
func TestInterruptJavaScript(t *testing.T) {
	s := start(t)
	const first = "let v = 7; const sleep = (ms) => new Promise((f) => setTimeout(f, ms)); undefined"
	s.run("javascript", first, summary{})
	codes := []string{
		"while (true);",
		"for (;;) await null;",
		"await sleep(1); while (true);",
		"await new Promise(() => {})",
		"for (let i = 0; i < 100; i++) await sleep(1); await new Promise(() => {})",
		"for (;;) JSON.stringify(new Array(1000).fill({ a: 1 }))",
		"for (;;) await import('node:fs')",
		"for (;;) require('node:vm').runInNewContext('1')",
		"for (;;) try { throw 1 } catch {} finally {}",
		"({ get a() { for (;;); }, [Symbol.for('nodejs.util.inspect.custom')]() { for (;;); } })",
		"Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
		"setTimeout(() => { while (true); }, 1); await new Promise(() => {})",
	}
	escaped := 0
	for i := range 10 * len(codes) {
		code := codes[i%len(codes)]
		got := s.begin(kernelapi.Run{Language: "javascript", Code: code, Timeout: time.Duration(1+i%23) * time.Millisecond}).rest()
		if got.escaped() {
			escaped++
		}
		if inNative[code] && got.aborted() || got.escaped() && escaped == 1 {
			t.Logf("%d: %q: %s\n%s", i, code, got.Error, got.Stderr)
			s.run("javascript", "typeof v", summary{Restarted: true, Results: []string{"main 'undefined'"}})
			s.run("javascript", first, summary{})
		} else if got.Status != kernelapi.TimedOut || got.Restarted || got.Error != "Interrupted: the execution was interrupted" {
			t.Errorf("%d: %q = %+v, want it interrupted", i, code, got)
		}
		s.run("javascript", "v", summary{Results: []string{"main 7"}})
		if t.Failed() {
			t.Fatalf("after interrupt %d, of %q", i, code)
		}
	}
}

// TestInterruptEndsInterpreter has an interpreter that an interrupt ends, as Node.js may by itself: the run
// says so, and the next run has a new interpreter.
func TestInterruptEndsInterpreter(t *testing.T) {
	s := start(t)
	s.run("javascript", "let v = 7", summary{})
	// The code waits for a program, until which it cannot be ended, and which kills the interpreter on the interrupt.
	e := s.begin(kernelapi.Run{Language: "javascript", Code: `require('node:child_process').execSync('trap "kill -9 $PPID" INT; echo go; while :; do sleep 0.1; done', { stdio: 'inherit' })`})
	e.until(kernelapi.Stdout)
	s.interrupt("javascript")
	got := e.rest()
	if diff := cmp.Diff(summary{Status: kernelapi.Interrupted, Error: "InterpreterEnded: the interpreter ended: signal: killed"}, got); diff != "" {
		t.Errorf("interrupted run (-want +got):\n%s", diff)
	}
	s.run("javascript", "typeof v", summary{Restarted: true, Results: []string{"main 'undefined'"}})
}
