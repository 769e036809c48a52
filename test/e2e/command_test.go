package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// signalled is a buffer that can be awaited to grow.
type signalled struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	grew chan struct{}
}

func newSignalled() *signalled { return &signalled{grew: make(chan struct{}, 1)} }

func (s *signalled) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.grew <- struct{}{}:
	default:
	}
	return s.buf.Write(p)
}

func (s *signalled) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func (s *signalled) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Len()
}

// await waits until it holds n bytes. Only one goroutine may wait.
func (s *signalled) await(ctx context.Context, n int) error {
	for s.len() < n {
		select {
		case <-s.grew:
		case <-ctx.Done():
			return fmt.Errorf("%d bytes came, want %d: %w", s.len(), n, ctx.Err())
		}
	}
	return nil
}

// counted is the output of a script that counts from 0 to below n, with the given line ends.
func counted(n int, end string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d%s", i, end)
	}
	return b.String()
}

// TestCommandsGoOnOverCheckpoints saves a sandbox, for a checkpoint and for a
// fork, in the middle of commands that somebody waits for. They print without a pause until both are made.
func TestCommandsGoOnOverCheckpoints(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	const script = `i=0; until [ -e /tmp/saved ]; do echo $i; i=$((i+1)); done; echo last; exit 5`
	// whole is the output of a script that printed as many lines as out has.
	whole := func(out, end string) string { return counted(strings.Count(out, end)-1, end) + "last" + end }
	type end struct {
		what string
		exit *client.Exit
		out  *signalled
		want func(out string) string
		err  error
	}
	lines := func(out string) string { return whole(out, "\n") }
	ends := make(chan end, 4)

	stream, err := s.Sandboxes.ExecStream(ctx, sb.ID, client.Command{Shell: script})
	if err != nil {
		t.Fatal(err)
	}
	streamed := newSignalled()
	go func() {
		exit, err := stream.Copy(streamed, io.Discard)
		ends <- end{"exec", exit, streamed, lines, err}
	}()

	tty, err := s.Sandboxes.Attach(ctx, sb.ID, client.Command{Shell: script}, client.AttachOptions{TTY: &client.Size{Rows: 24, Cols: 80}})
	if err != nil {
		t.Fatal(err)
	}
	shown := newSignalled()
	go func() {
		exit, err := tty.Copy(shown, io.Discard)
		ends <- end{"terminal", exit, shown, func(out string) string { return whole(out, "\r\n") }, err}
	}()

	cat, err := s.Sandboxes.Attach(ctx, sb.ID, client.Command{Shell: "cat; exit 5"}, client.AttachOptions{Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	echoed, saved, typed := newSignalled(), make(chan struct{}), make(chan string, 1)
	go func() {
		var all strings.Builder
		for done := false; !done; {
			select {
			case <-saved:
				done = true
			case <-ctx.Done():
				done = true
			case <-time.After(time.Millisecond): // no more than memory holds
			}
			part := strings.Repeat(strconv.Itoa(all.Len())+"\n", 100)
			all.WriteString(part)
			_, _ = io.WriteString(cat, part) // bytes that did not arrive are missing in the output
		}
		typed <- all.String()
		_ = cat.CloseStdin()
	}()
	go func() {
		exit, err := cat.Copy(echoed, io.Discard)
		ends <- end{"stdin", exit, echoed, func(string) string { return <-typed }, err}
	}()

	e, err := s.Executions.Start(ctx, sb.ID, client.Command{Shell: script}, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	log, err := s.Streams.Read(ctx, e.Stdout.StreamID, client.StreamOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	followed := newSignalled()
	go func() {
		_, err := io.Copy(followed, log)
		if err == nil {
			e, err = s.Executions.Get(ctx, e.ID, 5*time.Minute)
		}
		exit := &client.Exit{}
		if err == nil && e.ExitCode != nil {
			exit.ExitCode = *e.ExitCode
		}
		ends <- end{"log", exit, followed, lines, err}
	}()

	// goesOn waits for further output of each command.
	goesOn := func(when string) {
		t.Helper()
		for what, out := range map[string]*signalled{"exec": streamed, "terminal": shown, "stdin": echoed, "log": followed} {
			if err := out.await(ctx, out.len()+1000); err != nil {
				t.Fatalf("%s, output of %s: %v", when, what, err)
			}
		}
	}
	goesOn("before the checkpoint")
	if _, err := s.Sandboxes.Checkpoints.Create(ctx, sb.ID, "middle"); err != nil {
		t.Fatal(err)
	}
	goesOn("after the checkpoint")
	children, err := s.Sandboxes.Fork(ctx, sb.ID, client.ForkOptions{Count: 1})
	if err != nil || children[0].Err != nil {
		t.Fatal(err, children)
	}
	goesOn("after the fork")
	close(saved)
	s.Bash(sb.ID, "touch /tmp/saved", time.Minute)
	for range cap(ends) {
		got := <-ends
		out := got.out.String()
		t.Logf("%s: %d bytes of output", got.what, len(out))
		if want := got.want(out); got.err != nil || got.exit.ExitCode != 5 || out != want {
			t.Errorf("%s: exit %+v, error %v, %d bytes of output, as printed: %v; want exit code 5 and %d bytes",
				got.what, got.exit, got.err, len(out), out == want, len(want))
		}
	}
}

// TestPauseEndsCommandsThatSomebodyWaitsFor pauses a sandbox in the middle of one.
func TestPauseEndsCommandsThatSomebodyWaitsFor(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	stream, err := s.Sandboxes.ExecStream(t.Context(), sb.ID, client.Command{Shell: "echo up; exec sleep 600"})
	if err != nil {
		t.Fatal(err)
	}
	out, ended := newSignalled(), make(chan error, 1)
	go func() {
		_, err := stream.Copy(out, io.Discard)
		ended <- err
	}()
	if err := out.await(t.Context(), len("up\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	var coded *client.Error
	if err := <-ended; !errors.As(err, &coded) || coded.Code != "not_running" || !strings.Contains(coded.Message, "paused") {
		t.Errorf("the command's end: %v, want not_running, naming the pause", err)
	}
	if out := s.Bash(sb.ID, "echo on", time.Minute); string(out.Stdout) != "on\n" {
		t.Errorf("the next command: %q", out.Stdout)
	}
}

func TestCommandRightAfterACreate(t *testing.T) {
	s := testserver.StartSmall(t)
	for range 3 {
		sb, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Image: image})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "echo ran"}); err != nil || string(r.Stdout) != "ran\n" {
			t.Errorf("a command right after the create = %+v, %v", r, err)
		}
	}
}
