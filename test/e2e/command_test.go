package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// signalled is a buffer that signals when it has held that many bytes.
type signalled struct {
	buf  bytes.Buffer
	at   int
	full chan struct{}
}

func heldAt(n int) *signalled { return &signalled{at: n, full: make(chan struct{})} }

func (s *signalled) Write(p []byte) (int, error) {
	before := s.buf.Len()
	n, err := s.buf.Write(p)
	if before < s.at && s.buf.Len() >= s.at {
		close(s.full)
	}
	return n, err
}

// counted is the output of a script that counts to n, with the given line ends.
func counted(n int, end string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d%s", i, end)
	}
	return b.String()
}

// TestCommandsGoOnOverCheckpoints saves a sandbox, for a checkpoint and for a
// fork, in the middle of commands that somebody waits for.
func TestCommandsGoOnOverCheckpoints(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	const lines = 15_000
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); done; until [ -e /tmp/saved ]; do sleep 0.05; done; exit 5`, lines)
	type end struct {
		what string
		exit *client.Exit
		out  *signalled
		want string
		err  error
	}
	ends := make(chan end, 4)

	stream, err := s.Sandboxes.ExecStream(ctx, sb.ID, client.Command{Shell: script})
	if err != nil {
		t.Fatal(err)
	}
	streamed := heldAt(1000)
	go func() {
		exit, err := stream.Copy(streamed, io.Discard)
		ends <- end{"exec", exit, streamed, counted(lines, "\n"), err}
	}()

	tty, err := s.Sandboxes.Attach(ctx, sb.ID, client.Command{Shell: script}, client.AttachOptions{TTY: &client.Size{Rows: 24, Cols: 80}})
	if err != nil {
		t.Fatal(err)
	}
	shown := heldAt(1000)
	go func() {
		exit, err := tty.Copy(shown, io.Discard)
		ends <- end{"terminal", exit, shown, counted(lines, "\r\n"), err}
	}()

	cat, err := s.Sandboxes.Attach(ctx, sb.ID, client.Command{Shell: "cat; exit 5"}, client.AttachOptions{Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	typed, echoed, saved := counted(lines*5, "\n"), heldAt(1000), make(chan struct{})
	go func() {
		_, _ = io.Copy(cat, strings.NewReader(typed)) // bytes that did not arrive are missing in the output
		<-saved
		_ = cat.CloseStdin()
	}()
	go func() {
		exit, err := cat.Copy(echoed, io.Discard)
		ends <- end{"stdin", exit, echoed, typed, err}
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
	followed := heldAt(1000)
	go func() {
		_, err := io.Copy(followed, log)
		if err == nil {
			e, err = s.Executions.Get(ctx, e.ID, 5*time.Minute)
		}
		exit := &client.Exit{}
		if err == nil && e.ExitCode != nil {
			exit.ExitCode = *e.ExitCode
		}
		ends <- end{"log", exit, followed, counted(lines, "\n"), err}
	}()

	for what, out := range map[string]*signalled{"exec": streamed, "terminal": shown, "stdin": echoed, "log": followed} {
		select {
		case <-out.full:
		case <-ctx.Done():
			t.Fatalf("%s: nothing came", what)
		}
	}
	if _, err := s.Sandboxes.Checkpoints.Create(ctx, sb.ID, "middle"); err != nil {
		t.Fatal(err)
	}
	children, err := s.Sandboxes.Fork(ctx, sb.ID, client.ForkOptions{Count: 1})
	if err != nil || children[0].Err != nil {
		t.Fatal(err, children)
	}
	close(saved)
	s.Bash(sb.ID, "touch /tmp/saved", time.Minute)
	for range cap(ends) {
		got := <-ends
		if got.err != nil || got.exit.ExitCode != 5 || got.out.buf.String() != got.want {
			t.Errorf("%s: exit %+v, error %v, %d bytes of output, as printed: %v; want exit code 5 and %d bytes",
				got.what, got.exit, got.err, got.out.buf.Len(), got.out.buf.String() == got.want, len(got.want))
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
	out, ended := heldAt(3), make(chan error, 1)
	go func() {
		_, err := stream.Copy(out, io.Discard)
		ended <- err
	}()
	<-out.full
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
