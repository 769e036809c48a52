package lifecycle_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

func (s *server) startExecution(ref string, req execution.Request) sandbox.Execution {
	s.t.Helper()
	e, err := s.Executions().Start(s.t.Context(), s.caller, ref, req)
	if err != nil {
		s.t.Fatalf("StartExecution(%v): %v", req.Argv, err)
	}
	return e
}

// ended waits for the end of an execution.
func (s *server) ended(id sandbox.ExecutionID) sandbox.Execution {
	s.t.Helper()
	e, err := s.Executions().Wait(s.t.Context(), s.caller, id, testTimeout)
	if err != nil || !e.State.Ended() {
		s.t.Fatalf("execution %s is %s (%s), error %v; want its end", id, e.State, e.Error, err)
	}
	return e
}

// read returns what a stream holds, from an offset to its end.
func (s *server) read(id sandbox.StreamID, offset int64) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testTimeout)
	defer cancel()
	r, _, err := s.Executions().OpenStream(ctx, string(id), offset, true)
	if err != nil {
		s.t.Fatalf("OpenStream(%s): %v", id, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		s.t.Fatalf("read stream %s after %q: %v", id, data, err)
	}
	return string(data)
}

func shell(script string) execution.Request {
	return execution.Request{Argv: []string{"/bin/sh", "-c", script}}
}

func TestExecutionKeepsItsResultAndOutput(t *testing.T) {
	s := newEnv(t).start()
	sb := s.run(lifecycle.CreateRequest{Name: "a"})
	req := shell(`cat in; echo "$GREETING" >&2; exit 3`)
	req.Cwd = "/work"
	req.Files = []execution.File{{Path: "in", Content: []byte("from a file\n")}}
	req.Env = map[string]string{"GREETING": "hello"}
	e := s.ended(s.startExecution("a", req).ID)
	if e.State != sandbox.ExecutionCompleted || e.ExitCode == nil || *e.ExitCode != 3 || e.Stdout.Bytes != 12 || e.Stderr.Bytes != 6 {
		t.Errorf("execution = %+v, want completed with exit code 3 and 12 and 6 bytes", e)
	}
	s.destroy("a")
	if got := s.read(e.Stdout.ID, 0) + s.read(e.Stderr.ID, 2); got != "from a file\nllo\n" {
		t.Errorf("streams after the sandbox's end: %q", got)
	}
	list, err := s.Executions().List(t.Context(), s.caller, string(sb.ID), "", page.Request{})
	if err != nil || len(list.Items) != 1 || list.Items[0].ID != e.ID {
		t.Errorf("Executions = %v, %v, want the one", list, err)
	}
	other := sandbox.Caller{User: s.caller.User, Workspace: sandbox.NewWorkspaceID()}
	if _, err := s.Executions().Get(t.Context(), other, e.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("another workspace's execution: %v, want not_found", err)
	}
}

// TestHostsOfDevelopmentServers runs a command on a server without and with a domain for sandboxes.
func TestHostsOfDevelopmentServers(t *testing.T) {
	for name, c := range map[string]struct{ domain, want string }{
		"without_domain": {"", "none"},
		"with_domain":    {"box.test", ".box.test"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.cfg.Domain = c.domain
			s := e.start()
			s.run(lifecycle.CreateRequest{Name: "a"})
			printed := s.ended(s.startExecution("a", shell(`printf %s "${__VITE_ADDITIONAL_SERVER_ALLOWED_HOSTS-none}"`)).ID)
			if got := s.read(printed.Stdout.ID, 0); got != c.want {
				t.Errorf("allowed hosts %q, want %q", got, c.want)
			}
		})
	}
}

func TestExecutionStates(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	job := func(r execution.Request) execution.Request { r.Kind = sandbox.Job; return r }
	slow := shell("sleep 60")
	slow.Timeout = 50 * time.Millisecond
	for name, tt := range map[string]struct {
		req  execution.Request
		want sandbox.ExecutionState
		code bool
	}{
		"exec that fails":   {shell("exit 1"), sandbox.ExecutionCompleted, true},
		"job that fails":    {job(shell("exit 1")), sandbox.ExecutionFailed, true},
		"job that succeeds": {job(shell("true")), sandbox.ExecutionCompleted, true},
		"time is up":        {slow, sandbox.ExecutionTimeout, true},
		"no such program":   {execution.Request{Argv: []string{"/no/such/program"}}, sandbox.ExecutionFailed, false},
	} {
		e := s.ended(s.startExecution("a", tt.req).ID)
		if e.State != tt.want || (e.ExitCode != nil) != tt.code || (e.Error != "") == tt.code {
			t.Errorf("%s: state %s, exit code %v, error %q; want state %s", name, e.State, e.ExitCode, e.Error, tt.want)
		}
	}
}

func TestCancelExecution(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	for _, force := range []bool{false, true} {
		req := shell(`trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done`)
		e := s.startExecution("a", req)
		r, _, err := s.Executions().OpenStream(t.Context(), string(e.Stdout.ID), 0, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		r.Close()
		if _, err := s.Executions().Cancel(t.Context(), s.caller, e.ID, force); err != nil {
			t.Fatal(err)
		}
		e = s.ended(e.ID)
		out := s.read(e.Stdout.ID, 3)
		if e.State != sandbox.ExecutionCancelled || force != (out == "") || force == (out == "bye\n") {
			t.Errorf("force %v: state %s, then output %q", force, e.State, out)
		}
	}
}

// TestTerminalOfACallerWhoLeft makes calls on a terminal for somebody who does not
// wait any more, whether the agent answers or not.
func TestTerminalOfACallerWhoLeft(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	req := shell("exec sleep 600")
	req.TTY = &agentapi.Size{Rows: 24, Cols: 80}
	term, err := s.Executions().Terminal(t.Context(), s.caller, s.startExecution("a", req).ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := term.Resize(t.Context(), agentapi.Size{Rows: 25, Cols: 80}); err != nil { // it has begun
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for what, err := range map[string]error{
		"resize": term.Resize(gone, agentapi.Size{Rows: 26, Cols: 80}),
		"signal": term.Signal(gone, 15),
	} {
		if sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("%s: %v, want unavailable", what, err)
		}
	}
}

// TestTerminalOfAnEndedExecution writes to a terminal right after its end was seen.
func TestTerminalOfAnEndedExecution(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	req := shell("exec cat")
	req.TTY = &agentapi.Size{Rows: 24, Cols: 80}
	for range 20 {
		e := s.startExecution("a", req)
		term, err := s.Executions().Terminal(t.Context(), s.caller, e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := term.Signal(t.Context(), 9); err != nil {
			t.Fatal(err)
		}
		s.ended(e.ID)
		if err := term.Write(t.Context(), []byte("late")); sandbox.CodeOf(err) != sandbox.Conflict {
			t.Fatalf("Write after the end: %v, want conflict", err)
		}
	}
}

func TestRecordsKeepTheBeginningOfACommand(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	long := "printf done #" + strings.Repeat("é", 50_000)
	e := s.ended(s.startExecution("a", execution.Request{Argv: []string{"/bin/sh", "-c", long}}).ID)
	if out := s.read(e.Stdout.ID, 0); out != "done" {
		t.Errorf("output %q: the whole command must run", out)
	}
	total := 0
	for _, arg := range e.Argv {
		total += len(arg)
	}
	last := e.Argv[len(e.Argv)-1]
	if total > sandbox.CommandRecordMax+len("…") || total < sandbox.CommandRecordMax-100 || !strings.HasSuffix(last, "é…") || !utf8.ValidString(last) {
		t.Errorf("the record has %d bytes of the command and ends with %q", total, last[max(len(last)-10, 0):])
	}
}

func TestStdinIsStreamed(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	id, err := s.Executions().CreateStream(t.Context(), s.caller)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Executions().WriteStdin(t.Context(), string(id), strings.NewReader("before ")); err != nil {
		t.Fatal(err)
	}
	e := s.startExecution("a", execution.Request{Argv: []string{"cat"}, StdinStream: id})
	if err := s.Executions().WriteStdin(t.Context(), string(id), strings.NewReader("and after")); err != nil {
		t.Fatal(err)
	}
	if err := s.Executions().CloseStdin(t.Context(), string(id)); err != nil {
		t.Fatal(err)
	}
	if got := s.read(e.Stdout.ID, 0); got != "before and after" {
		t.Errorf("output %q", got)
	}
	if err := s.Executions().WriteStdin(t.Context(), string(id), strings.NewReader("late")); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("write after the end: %v, want conflict", err)
	}
	if err := s.Executions().WriteStdin(t.Context(), string(e.Stdout.ID), strings.NewReader("forged")); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("write to an output: %v, want conflict", err)
	}
}

func TestInputStreamsOfAUserAreBounded(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	var ids []sandbox.StreamID
	for range sandbox.InputStreamsMax {
		id, err := s.Executions().CreateStream(t.Context(), s.caller)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	more := func() sandbox.Code {
		_, err := s.Executions().CreateStream(t.Context(), sandbox.Caller{User: s.caller.User, Workspace: sandbox.NewWorkspaceID()})
		return sandbox.CodeOf(err)
	}
	if code := more(); code != sandbox.QuotaExceeded {
		t.Errorf("one more, in another workspace: %q, want quota_exceeded", code)
	}
	if _, err := s.Executions().CreateStream(t.Context(), sandbox.Caller{User: "somebody else", Workspace: s.caller.Workspace}); err != nil {
		t.Errorf("somebody else's: %v", err)
	}
	s.startExecution("a", execution.Request{Argv: []string{"cat"}, Stdin: true})
	s.startExecution("a", execution.Request{Argv: []string{"cat"}, StdinStream: ids[0]})
	if code := more(); code != "" {
		t.Errorf("one more when a command reads one: %q", code)
	}
	if code := more(); code != sandbox.QuotaExceeded {
		t.Errorf("and another: %q, want quota_exceeded", code)
	}
}

func TestExecutionSurvivesARestartOfTheServer(t *testing.T) {
	e := newEnv(t)
	first := e.start()
	first.run(lifecycle.CreateRequest{Name: "a"})
	ex := first.startExecution("a", shell(`i=0; while [ $i -lt 30000 ]; do echo $i; i=$((i+1)); done; exit 7`))
	r, _, err := first.Executions().OpenStream(t.Context(), string(ex.Stdout.ID), 0, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	first.kill()
	second := e.start()
	got := second.ended(ex.ID)
	if got.State != sandbox.ExecutionCompleted || got.ExitCode == nil || *got.ExitCode != 7 {
		t.Fatalf("after the restart: %+v, want completed with exit code 7", got)
	}
	lines := strings.Split(strings.TrimSpace(second.read(ex.Stdout.ID, 0)), "\n")
	if len(lines) != 30000 || lines[0] != "0" || lines[29999] != "29999" || lines[12345] != "12345" {
		t.Errorf("%d lines from %q to %q, want 0 to 29999", len(lines), lines[0], lines[len(lines)-1])
	}
}

func TestExecutionOfASandboxThatEnds(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	e := s.startExecution("a", shell("echo here; sleep 60"))
	s.destroy("a")
	e = s.ended(e.ID)
	if e.State != sandbox.ExecutionFailed || e.ExitCode != nil || !strings.Contains(e.Error, "destroyed") {
		t.Errorf("state %s, exit code %v, error %q; want failed, none, with the cause", e.State, e.ExitCode, e.Error)
	}
	s.read(e.Stdout.ID, 0) // it ends
}

func TestOneShot(t *testing.T) {
	s := newEnv(t).start()
	sb := s.create(lifecycle.CreateRequest{Name: "once", OneShot: true, Command: &execution.Request{Argv: []string{"echo", "done"}}})
	list, err := s.Executions().List(t.Context(), s.caller, string(sb.ID), "", page.Request{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("Executions = %v, %v, want one at once", list, err)
	}
	sb = s.reach(string(sb.ID), sandbox.Destroyed)
	if sb.Cause == nil || sb.Cause.Code != sandbox.CauseCompleted {
		t.Errorf("cause %v, want completed", sb.Cause)
	}
	e := s.ended(list.Items[0].ID)
	if e.ExitCode == nil || *e.ExitCode != 0 || s.read(e.Stdout.ID, 0) != "done\n" {
		t.Errorf("execution %+v", e)
	}
}

func TestUpdateEnv(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a", Env: map[string]string{"KEEP": "1", "GO": "2"}})
	value := "3"
	env, err := s.Environments().Update(t.Context(), s.caller, "a", map[string]*string{"GO": nil, "NEW": &value})
	if err != nil || len(env) != 2 || env["KEEP"] != "1" || env["NEW"] != "3" {
		t.Fatalf("UpdateEnv = %v, %v", env, err)
	}
	e := s.ended(s.startExecution("a", shell(`echo "$KEEP,$GO,$NEW,$MODBOX_SANDBOX_NAME"`)).ID)
	if got := s.read(e.Stdout.ID, 0); got != "1,,3,a\n" {
		t.Errorf("the next command sees %q", got)
	}
	if _, err := s.Environments().Update(t.Context(), s.caller, "a", map[string]*string{"NO=T": &value}); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a bad name: %v, want invalid", err)
	}
}

// The newest executions of a sandbox stay, and all running executions.
func TestOldExecutionsAreForgotten(t *testing.T) {
	e := newEnv(t)
	e.cfg.MaxEndedExecutions = 2
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.run(lifecycle.CreateRequest{Name: "b"})
	live := s.startExecution("a", execution.Request{Argv: []string{"sleep", "1000"}})
	other := s.startExecution("b", execution.Request{Argv: []string{"true"}})
	s.ended(other.ID)
	var ids []sandbox.ExecutionID
	var first sandbox.Execution
	for i := range 4 {
		x := s.startExecution("a", execution.Request{Argv: []string{"echo", "out"}})
		if i == 0 {
			first = x
		}
		s.ended(x.ID)
		ids = append(ids, x.ID)
	}
	s.Purge()
	for i, id := range append(ids, live.ID, other.ID) {
		_, err := s.Executions().Wait(t.Context(), e.caller, id, 0)
		if want := i < 2; want != (sandbox.CodeOf(err) == sandbox.NotFound) {
			t.Errorf("execution %d of the sandboxes: %v, forgotten: want %v", i, err, want)
		}
	}
	if _, _, err := s.Executions().OpenStream(t.Context(), string(first.Stdout.ID), 0, false); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("output of a forgotten execution: %v, want not_found", err)
	}
}

func TestStreamsOfAllTakeOnlySoMuch(t *testing.T) {
	e := newEnv(t)
	e.cfg.StreamTotalBytes = 300_000
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	const print = "head -c 100000 /dev/zero"
	running := s.startExecution("a", shell(print+"; exec sleep 600")) // is older, and stays
	eventually(t, "it has printed", func() bool {
		info, err := s.Executions().Get(t.Context(), s.caller, running.ID)
		return err == nil && info.Stdout.Bytes == 100_000
	})
	var ids []sandbox.ExecutionID
	for range 4 {
		ids = append(ids, s.ended(s.startExecution("a", shell(print)).ID).ID)
	}
	s.Purge()
	for i, id := range append(ids, running.ID) {
		_, err := s.Executions().Get(t.Context(), s.caller, id)
		if gone := sandbox.CodeOf(err) == sandbox.NotFound; gone != (i < 3) {
			t.Errorf("execution %d: %v, want the three that ended first forgotten", i, err)
		}
	}
	kept := s.ended(ids[3])
	if out := s.read(kept.Stdout.ID, 0); len(out) != 100_000 {
		t.Errorf("%d bytes of the newest are kept, want all", len(out))
	}
	s.Purge() // now they take little enough
	if _, err := s.Executions().Get(t.Context(), s.caller, ids[3]); err != nil {
		t.Errorf("the newest after another look: %v", err)
	}
}

// TestWaitForAnExecutionEndsAtAPause: nothing would end before somebody resumes the sandbox.
func TestWaitForAnExecutionEndsAtAPause(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	e := s.startExecution("a", shell("trap 'exit 4' TERM; while :; do sleep 0.01; done"))
	waited := make(chan error, 1)
	go func() {
		_, err := s.Executions().Wait(t.Context(), s.caller, e.ID, time.Hour)
		waited <- err
	}()
	if _, err := s.Pause(t.Context(), s.caller, "a"); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; sandbox.CodeOf(err) != sandbox.NotRunning || !strings.Contains(err.Error(), "resume") {
		t.Errorf("a wait at a pause: %v, want not_running, and how to go on", err)
	}
	if _, err := s.Executions().Wait(t.Context(), s.caller, e.ID, time.Hour); sandbox.CodeOf(err) != sandbox.NotRunning {
		t.Errorf("a wait in a pause: %v, want not_running", err)
	}
	if now, err := s.Executions().Get(t.Context(), s.caller, e.ID); err != nil || now.State != sandbox.ExecutionRunning {
		t.Errorf("get in a pause: %s, %v, want that it is running", now.State, err)
	}
	if _, err := s.Resume(t.Context(), s.caller, "a", lifecycle.ResumeRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Executions().Cancel(t.Context(), s.caller, e.ID, false); err != nil {
		t.Fatal(err)
	}
	if now := s.ended(e.ID); now.ExitCode == nil || *now.ExitCode != 4 {
		t.Errorf("after the resume it ended as %+v, want with exit code 4", now)
	}
}

// TestSilentExecutionOverCheckpoints saves a sandbox more often than connections may
// break without output.
func TestSilentExecutionOverCheckpoints(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	e := s.startExecution("a", shell("trap 'exit 4' TERM; while :; do sleep 0.01; done"))
	f := s.driver.faults
	connections := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.open)
	}
	for i := range 25 {
		before := connections()
		s.checkpoint("a", "c")
		eventually(t, "the execution is connected to again", func() bool { return connections() > before })
		if err := s.Checkpoints().Delete(t.Context(), s.caller, "a", "c"); err != nil {
			t.Fatal(err)
		}
		if now, err := s.Executions().Get(t.Context(), s.caller, e.ID); err != nil || now.State.Ended() {
			t.Fatalf("after %d checkpoints: %+v, %v, want it running", i+1, now, err)
		}
	}
	term, err := s.Executions().Terminal(t.Context(), s.caller, e.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := term.Signal(t.Context(), 15); err != nil {
		t.Fatal(err)
	}
	if now := s.ended(e.ID); now.ExitCode == nil || *now.ExitCode != 4 {
		t.Errorf("it ended as %+v, want with exit code 4", now)
	}
}

// Dial notes the connections to agents, and lets a test take the agent's place.
func (d *faultyDriver) Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error) {
	d.faults.mu.Lock()
	instead := d.faults.dial
	d.faults.mu.Unlock()
	if port == driver.AgentPort && instead != nil {
		return instead()
	}
	conn, err := d.Driver.Dial(ctx, id, port)
	if err == nil {
		d.faults.mu.Lock()
		d.faults.open = append(d.faults.open, conn)
		d.faults.mu.Unlock()
	}
	return conn, err
}

// crowd has agents that are dialed from now on refuse every call until end, because
// too much is under way. enough is closed after some.
func (s *server) crowd() (enough <-chan struct{}, end func()) {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	var refused atomic.Int64
	some := make(chan struct{})
	crowded := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"code":"too_many","message":"come back later"}`)
		if refused.Add(1) == 3 {
			close(some)
		}
	})}
	go crowded.Serve(l)
	f := s.driver.faults
	f.mu.Lock()
	f.dial = func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	f.mu.Unlock()
	return some, sync.OnceFunc(func() {
		f.mu.Lock()
		f.dial = nil
		f.mu.Unlock()
		crowded.Close()
	})
}

// TestExecutionWaitsForItsTurn breaks the connection of an execution while too much else is
// under way to connect again: it waits, and neither fails nor loses output.
func TestExecutionWaitsForItsTurn(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "x"})
	flag := filepath.Join(t.TempDir(), "flag")
	x := s.startExecution("x", shell("echo begun; until test -e "+flag+"; do sleep 0.05; done; echo ended"))
	eventually(t, "the command's first output", func() bool {
		now, err := s.Executions().Get(t.Context(), s.caller, x.ID)
		return err == nil && now.Stdout.Bytes == int64(len("begun\n"))
	})

	enough, end := s.crowd()
	defer end()
	f := s.driver.faults
	f.mu.Lock()
	for _, conn := range f.open {
		conn.Close()
	}
	f.mu.Unlock()
	select {
	case <-enough:
	case <-time.After(testTimeout):
		t.Fatal("it did not try again")
	}
	end()
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.ended(x.ID); got.State != sandbox.ExecutionCompleted {
		t.Errorf("execution %s (%s), want completed", got.State, got.Error)
	}
	if got := s.read(x.Stdout.ID, 0); got != "begun\nended\n" {
		t.Errorf("output %q", got)
	}
}
