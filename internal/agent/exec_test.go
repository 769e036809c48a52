package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/agent"
	"github.com/modbox/modbox/internal/agentapi"
)

func TestExecSeparatesOutputs(t *testing.T) {
	e := start(t)
	got := e.sh(t, "echo out; echo err >&2; exit 3")
	if got.stdout != "out\n" || got.stderr != "err\n" || got.exit.Code != 3 || got.exit.Signal != 0 {
		t.Errorf("sh = %+v", got)
	}
}

func TestExecIsBinarySafe(t *testing.T) {
	e := start(t)
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i * 7)
	}
	s := e.exec(t, agentapi.Command{Argv: []string{"cat"}, Stdin: true})
	wrote := make(chan error, 1)
	go func() {
		_, err := s.Write(data)
		wrote <- errors.Join(err, s.CloseStdin())
	}()
	got := collect(t, s)
	if err := <-wrote; err != nil {
		t.Fatalf("Write() = %v", err)
	}
	if !bytes.Equal([]byte(got.stdout), data) {
		t.Errorf("cat gave %d bytes back, want the same %d", len(got.stdout), len(data))
	}
}

func TestExecWithoutStdinReadsNothing(t *testing.T) {
	e := start(t)
	if got := collect(t, e.exec(t, agentapi.Command{Argv: []string{"cat"}})); got.stdout != "" || got.exit.Code != 0 {
		t.Errorf("cat = %+v", got)
	}
}

func TestExecEnvironment(t *testing.T) {
	e := start(t)
	if err := e.Configure(t.Context(), agentapi.Config{Env: map[string]string{"A": "configured", "B": "configured"}}); err != nil {
		t.Fatal(err)
	}
	s := e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", `echo "$A $B $LANG $HOME $PWD"`}, Env: map[string]string{"B": "own"}})
	got := collect(t, s)
	if want := "configured own C.UTF-8 /root " + e.root + "\n"; got.stdout != want {
		t.Errorf("environment = %q, want %q", got.stdout, want)
	}
}

func TestExecErrors(t *testing.T) {
	e := start(t)
	script := filepath.Join(e.root, "plain")
	if err := os.WriteFile(script, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 64)
	for name, tc := range map[string]struct {
		cmd  agentapi.Command
		want agentapi.ErrorCode
	}{
		"empty":        {agentapi.Command{}, agentapi.CodeInvalid},
		"noProgram":    {agentapi.Command{Argv: []string{"no-such-program"}}, agentapi.CodeNoProgram},
		"notExec":      {agentapi.Command{Argv: []string{script}}, agentapi.CodeDenied},
		"noDirectory":  {agentapi.Command{Argv: []string{"true"}, Cwd: "/none"}, agentapi.CodeNoCwd},
		"relativeDir":  {agentapi.Command{Argv: []string{"true"}, Cwd: "none"}, agentapi.CodeInvalid},
		"noUser":       {agentapi.Command{Argv: []string{"true"}, User: "nobody-here"}, agentapi.CodeInvalid},
		"badEnv":       {agentapi.Command{Argv: []string{"true"}, Env: map[string]string{"A=B": "c"}}, agentapi.CodeInvalid},
		"zeroByte":     {agentapi.Command{Argv: []string{"true", "a\x00b"}}, agentapi.CodeInvalid},
		"badID":        {agentapi.Command{Argv: []string{"true"}, ID: "a/b"}, agentapi.CodeInvalid},
		"mainID":       {agentapi.Command{Argv: []string{"true"}, ID: agentapi.MainID}, agentapi.CodeInvalid},
		"longID":       {agentapi.Command{Argv: []string{"true"}, ID: long + "x"}, agentapi.CodeInvalid},
		"tooManyBytes": {agentapi.Command{Argv: []string{strings.Repeat("x", agentapi.MaxStart)}}, agentapi.CodeInvalid},
		"argsTooLong":  {agentapi.Command{Argv: []string{"true", strings.Repeat("x", 200<<10)}}, agentapi.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.Exec(t.Context(), tc.cmd)
			if got := code(t, err); got != tc.want {
				t.Errorf("Exec() = %v (%s), want %s", err, got, tc.want)
			}
		})
	}
}

func TestCommandLineAsProgram(t *testing.T) {
	e := start(t)
	for program, hint := range map[string]bool{"ls -la": true, "a|b": true, "/no/such program": true, "no-such-program": false} {
		_, err := e.Exec(t.Context(), agentapi.Command{Argv: []string{program}})
		if code(t, err) != agentapi.CodeNoProgram || strings.Contains(err.Error(), "needs a shell") != hint {
			t.Errorf("Exec(%q) = %v, want a hint: %v", program, err, hint)
		}
	}
}

func TestExecTwiceWithOneIDRunsOnce(t *testing.T) {
	e := start(t)
	cmd := agentapi.Command{ID: "once", Argv: []string{"sh", "-c", "echo x >> count; cat count"}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := e.Exec(t.Context(), cmd)
			if err != nil {
				t.Errorf("Exec() = %v", err)
				return
			}
			if got := collect(t, s); got.stdout != "x\n" {
				t.Errorf("output = %q", got.stdout)
			}
		})
	}
	wg.Wait()
}

func TestExitBySignal(t *testing.T) {
	e := start(t)
	s := e.exec(t, agentapi.Command{Argv: []string{"sleep", "1000"}})
	if err := s.Signal(int(syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	got := collect(t, s).exit
	if got.Code != 128+15 || got.Signal != 15 || got.TimedOut {
		t.Errorf("exit = %+v", got)
	}
	if err := e.Signal(t.Context(), s.Info().ID, 15); code(t, err) != agentapi.CodeNotFound {
		t.Errorf("Signal() of an ended process = %v", err)
	}
}

// alive reports whether the process whose pid is in a file still runs.
func (e *env) alive(t *testing.T, file string) bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(e.root, file))
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		t.Fatalf("pid file %s: %v %q", file, err, data)
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(data)) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// family starts processes in every relation to the first: a child, a child in its own process
// group, and a child in its own session; all ignore SIGTERM.
const family = `trap '' TERM
sleep 1000 & echo $! > child
set -m; sleep 1001 & echo $! > group; set +m
setsid sh -c 'echo $$ > session; sleep 1002; true' &
while [ ! -s session ]; do sleep 0.01; done
echo ready; while true; do sleep 1; done`

func TestTimeoutEndsTheWholeFamily(t *testing.T) {
	var e *env
	for limit := 500 * time.Millisecond; ; limit *= 4 { // a busy machine may need long to start the family
		e = start(t)
		s := e.exec(t, agentapi.Command{Argv: []string{"bash", "-c", family}, Timeout: limit, Grace: 50 * time.Millisecond})
		got := collect(t, s)
		if !got.exit.TimedOut || got.exit.Signal != 9 {
			t.Fatalf("family = %+v", got)
		}
		if got.stdout == "ready\n" {
			break
		}
		if limit > time.Minute {
			t.Fatalf("in %v the family has not started", limit)
		}
	}
	for _, file := range []string{"child", "group", "session"} {
		eventually(t, file+" is gone", func() bool { return !e.alive(t, file) })
	}
}

func TestKillEndsTheWholeFamily(t *testing.T) {
	e := start(t)
	s := e.exec(t, agentapi.Command{Argv: []string{"bash", "-c", family}})
	if f, err := s.Next(); err != nil || string(f.Data) != "ready\n" {
		t.Fatalf("Next() = %q, %v", f.Data, err)
	}
	if err := s.Signal(9); err != nil {
		t.Fatal(err)
	}
	if got := collect(t, s); got.exit.Signal != 9 || got.exit.TimedOut {
		t.Errorf("exit = %+v", got.exit)
	}
	for _, file := range []string{"child", "group", "session"} {
		eventually(t, file+" is gone", func() bool { return !e.alive(t, file) })
	}
}

func TestBackgroundProcessesOutliveTheirCommand(t *testing.T) {
	e := start(t)
	got := e.sh(t, `(while true; do echo noise; sleep 0.01; done) & echo $! > noisy; echo done`)
	if !strings.HasPrefix(strings.ReplaceAll(got.stdout, "noise\n", ""), "done\n") || got.exit.Code != 0 {
		t.Errorf("sh = %q, %+v", got.stdout, got.exit)
	}
	if got := e.sh(t, "sleep 0.1; kill $(cat noisy)"); got.exit.Code != 0 {
		t.Errorf("the background process is gone: %+v", got)
	}
}

func TestOutputBeforeTheExitIsWhole(t *testing.T) {
	e := start(t)
	// The pipe is full at the exit and stays open, and the reader arrives late.
	s := e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", "sleep 1000 & head -c 120000 /dev/zero; echo end; kill -9 $$"}})
	eventually(t, "the process has exited", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", s.Info().PID))
		return err != nil
	})
	<-time.After(300 * time.Millisecond) // longer than the agent waits for more output
	got := collect(t, s)
	if len(got.stdout) != 120004 || !strings.HasSuffix(got.stdout, "end\n") {
		t.Errorf("got %d bytes, want 120004", len(got.stdout))
	}
}

func TestSlowReaderHoldsTheProcess(t *testing.T) {
	e := start(t)
	const total = 8 << 20
	s := e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero; touch finished", total)}})
	// Other calls proceed while this stream is blocked.
	for range 20 {
		if got := e.sh(t, "echo hi"); got.stdout != "hi\n" {
			t.Fatalf("sh = %+v", got)
		}
	}
	if _, err := os.Stat(filepath.Join(e.root, "finished")); err == nil {
		t.Errorf("%d bytes went somewhere while nobody read", total)
	}
	if got := collect(t, s); len(got.stdout) != total {
		t.Errorf("got %d bytes, want %d", len(got.stdout), total)
	}
}

func TestManyStalledStreamsStopNobody(t *testing.T) {
	e := start(t)
	var stalled []*agentapi.Stream
	for range 24 {
		stalled = append(stalled, e.exec(t, agentapi.Command{Argv: []string{"head", "-c", "2000000", "/dev/zero"}}))
	}
	if got := e.sh(t, "echo hi"); got.stdout != "hi\n" {
		t.Errorf("sh = %+v", got)
	}
	for _, s := range stalled {
		if got := collect(t, s); len(got.stdout) != 2000000 {
			t.Errorf("got %d bytes", len(got.stdout))
		}
	}
}

func TestAttachReadsOnAfterABreak(t *testing.T) {
	e := start(t)
	const lines = 400_000 // much more than breaks*200_000 bytes and the data in transit
	cmd := agentapi.Command{Argv: []string{"sh", "-c", fmt.Sprintf("seq %d; seq 1000 >&2", lines)}}
	s := e.exec(t, cmd)
	var out, errs bytes.Buffer
	breaks := 0
	for {
		f, err := s.Next()
		if err == io.EOF {
			break
		}
		if errors.Is(err, agentapi.ErrUnreachable) {
			breaks++
			e.Client = agentapi.NewClient(e.dial)
			t.Cleanup(func() { e.Client.Close() })
			if s, err = e.Attach(t.Context(), s.Info().ID, s.Offset()); err != nil {
				t.Fatalf("Attach() = %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		switch f.Type {
		case agentapi.FrameStdout:
			out.Write(f.Data)
		case agentapi.FrameStderr:
			errs.Write(f.Data)
		}
		if s.Offset() > int64(breaks+1)*200_000 && breaks < 5 {
			e.Client.Close()
		}
	}
	var want bytes.Buffer
	for i := 1; i <= lines; i++ {
		fmt.Fprintln(&want, i)
	}
	if !bytes.Equal(out.Bytes(), want.Bytes()) || errs.Len() != 3893 || breaks != 5 {
		t.Errorf("%d breaks, stdout %d bytes (want %d), stderr %d (want 3893)", breaks, out.Len(), want.Len(), errs.Len())
	}
}

func TestAttachOffsets(t *testing.T) {
	e := start(t)
	s := e.exec(t, agentapi.Command{ID: "p", Argv: []string{"sh", "-c", "head -c 1000000 /dev/zero; echo end"}})
	collect(t, s)
	if _, err := e.Attach(t.Context(), "p", 0); code(t, err) != agentapi.CodeOutputGone {
		t.Errorf("Attach(0) = %v", err)
	}
	if _, err := e.Attach(t.Context(), "p", 1000005); code(t, err) != agentapi.CodeInvalid {
		t.Errorf("Attach(behind the end) = %v", err)
	}
	if _, err := e.Attach(t.Context(), "other", 0); code(t, err) != agentapi.CodeNotFound {
		t.Errorf("Attach(other) = %v", err)
	}
	s, err := e.Attach(t.Context(), "p", 1000000)
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(t, s); got.stdout != "end\n" || got.exit.Code != 0 {
		t.Errorf("from byte 1000000 on: %+v", got)
	}
	s, err = e.Attach(t.Context(), "p", -1)
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(t, s); len(got.stdout) < agentapi.ReplayWindow {
		t.Errorf("%d bytes are kept, want at least %d", len(got.stdout), agentapi.ReplayWindow)
	}
}

func TestAbandonedProcessIsKilled(t *testing.T) {
	e := start(t, func(o *agent.Options) { o.DetachGrace = 50 * time.Millisecond })
	for name, tc := range map[string]struct {
		script string
		detach bool
		lives  bool
	}{
		"attached": {"echo $$ > attached; sleep 1000; true", false, false},
		"full":     {"echo $$ > full; yes", false, false},
		"detached": {"echo $$ > detached; yes > /dev/null", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", tc.script}, Detach: tc.detach})
			eventually(t, "it runs", func() bool {
				data, _ := os.ReadFile(filepath.Join(e.root, name))
				return len(data) > 0
			})
			s.Close()
			if tc.lives {
				<-time.After(200 * time.Millisecond)
				if !e.alive(t, name) {
					t.Error("a detached process was killed")
				}
				return
			}
			eventually(t, "it is killed", func() bool { return !e.alive(t, name) })
			eventually(t, "its end is known", func() bool {
				list, err := e.Processes(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range list {
					if p.ID == s.Info().ID {
						return p.Exit != nil
					}
				}
				return false
			})
		})
	}
}

func TestStreamEndsWithItsContext(t *testing.T) {
	e := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := e.Exec(ctx, agentapi.Command{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := s.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("Next() = %v, want the context's error", err)
	}
}

func TestTerminal(t *testing.T) {
	e := start(t)
	s := e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", "tty > tty.txt; stty size; read x; stty size; echo got $x; cat; echo end"}, TTY: &agentapi.Size{Rows: 30, Cols: 100}, Stdin: true})
	f, err := s.Next()
	if err != nil || string(f.Data) != "30 100\r\n" {
		t.Fatalf("Next() = %q, %v", f.Data, err)
	}
	if err := s.Resize(agentapi.Size{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	io.WriteString(s, "hello\n")
	s.CloseStdin()
	got := collect(t, s)
	if want := "hello\r\n40 120\r\ngot hello\r\nend\r\n"; got.stdout != want || got.stderr != "" || got.exit.Code != 0 {
		t.Errorf("terminal = %q, %q, %+v, want %q", got.stdout, got.stderr, got.exit, want)
	}
	if data, _ := os.ReadFile(filepath.Join(e.root, "tty.txt")); !strings.HasPrefix(string(data), "/dev/pts/") {
		t.Errorf("tty = %q", data)
	}
	plain := e.exec(t, agentapi.Command{Argv: []string{"true"}})
	if err := plain.Resize(agentapi.Size{Rows: 1, Cols: 1}); code(t, err) != agentapi.CodeInvalid {
		t.Errorf("Resize() without a terminal = %v", err)
	}
}

func TestTerminalInterrupt(t *testing.T) {
	e := start(t)
	// Not a shell: some lose an interrupt that arrives while they start a command.
	s := e.exec(t, agentapi.Command{Argv: []string{"sleep", "1000"}, TTY: &agentapi.Size{Rows: 24, Cols: 80}, Stdin: true})
	s.Write([]byte{3})
	if got := collect(t, s); got.exit.Signal != 2 {
		t.Errorf("after Ctrl-C: %+v", got)
	}
}

func TestThousandsOfShortCommands(t *testing.T) {
	e := start(t)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 150 {
				want := fmt.Sprintf("%d-%d\n", w, i)
				s, err := e.Exec(t.Context(), agentapi.Command{Argv: []string{"sh", "-c", "echo " + strings.TrimSpace(want) + "; true & exit 7"}})
				if err != nil {
					t.Errorf("Exec() = %v", err)
					return
				}
				if got := collect(t, s); got.stdout != want || got.exit.Code != 7 {
					t.Errorf("got %+v, want %q", got, want)
				}
			}
		})
	}
	wg.Wait()
	// The last processes count as ended shortly after their exits were sent.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var list []agentapi.ProcessInfo
	for {
		kept := len(list)
		var err error
		if list, err = e.Processes(ctx); err != nil {
			t.Fatalf("%v; before it %d ended processes were kept, want at most 256", err, kept)
		}
		if len(list) <= 256 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for _, p := range list {
		if p.Exit == nil {
			t.Errorf("process %s is not known to have ended", p.ID)
		}
	}
	if diff := cmp.Diff([]string{"sh"}, list[0].Argv[:1]); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkExecTrue runs a command on an open connection.
func BenchmarkExecTrue(b *testing.B) {
	e := start(b)
	for b.Loop() {
		s, err := e.Exec(b.Context(), agentapi.Command{Argv: []string{"/bin/true"}})
		if err != nil {
			b.Fatal(err)
		}
		if got := collect(b, s); got.exit.Code != 0 {
			b.Fatal(got)
		}
	}
}

// BenchmarkHealth makes a small call on an open connection.
func BenchmarkHealth(b *testing.B) {
	e := start(b)
	for b.Loop() {
		if _, err := e.Health(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// The answer to a start has the command, which must not exceed the answer's limit.
func TestLongCommand(t *testing.T) {
	e := start(t)
	argument := strings.Repeat("ä", 60<<10)
	if got := collect(t, e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", "echo done", argument, argument}})); got.stdout != "done\n" {
		t.Errorf("output %q, want done", got.stdout)
	}
	list, err := e.Processes(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("processes %v, %v, want one", list, err)
	}
	shown := strings.Join(list[0].Argv, " ")
	if len(shown) > agentapi.ShownArgv || !strings.HasPrefix(shown, "sh -c echo done ää") || !utf8.ValidString(shown) {
		t.Errorf("the list shows %d bytes of the command: %.40q", len(shown), shown)
	}
}

// TestKillWaitsForTheEnd kills many processes, each a second time as soon as the first call has answered.
func TestKillWaitsForTheEnd(t *testing.T) {
	e := start(t)
	for range 50 {
		s := e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", "sleep 1000 & sleep 1000"}, Detach: true})
		if err := e.Signal(t.Context(), s.Info().ID, 9); err != nil {
			t.Fatal(err)
		}
		if err := e.Signal(t.Context(), s.Info().ID, 9); code(t, err) != agentapi.CodeNotFound {
			t.Fatalf("second SIGKILL = %v, want that the process has ended", err)
		}
	}
}
