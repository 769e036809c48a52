package agent_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agent"
	"github.com/modbox/modbox/internal/agentapi"
)

// env is an agent on a Unix socket, rooted at a directory of the test.
type env struct {
	*agentapi.Client
	agent  *agent.Agent
	root   string
	socket string
}

// start runs an agent until the test ends.
func start(t testing.TB, change ...func(*agent.Options)) *env {
	t.Helper()
	e := &env{root: t.TempDir(), socket: filepath.Join(t.TempDir(), "agent.sock")}
	opts := agent.Options{Version: "test", Root: e.root, DetachGrace: time.Minute}
	for _, f := range change {
		f(&opts)
	}
	a := agent.New(opts)
	e.agent = a
	l, err := net.Listen("unix", e.socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	e.Client = agentapi.NewClient(e.dial)
	t.Cleanup(func() {
		e.Client.Close()
		a.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve() = %v", err)
		}
		e.killLeft()
	})
	return e
}

// killLeft kills processes that commands left running in the background on this machine.
func (e *env) killLeft() {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		cwd, err := os.Readlink(link)
		pid, convErr := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err == nil && convErr == nil && strings.HasPrefix(cwd, e.root) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (e *env) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", e.socket)
}

// result is everything that a stream sent.
type result struct {
	stdout, stderr string
	exit           agentapi.Exit
}

// collect reads a stream to its end.
func collect(t testing.TB, s *agentapi.Stream) result {
	t.Helper()
	defer s.Close()
	var res result
	for {
		f, err := s.Next()
		if err == io.EOF {
			return res
		}
		if err != nil {
			t.Fatalf("Next() after %d bytes = %v", s.Offset(), err)
		}
		switch f.Type {
		case agentapi.FrameStdout:
			res.stdout += string(f.Data)
		case agentapi.FrameStderr:
			res.stderr += string(f.Data)
		case agentapi.FrameExit:
			res.exit = *f.Exit
		}
	}
}

// exec starts a command and fails the test if it does not start.
func (e *env) exec(t testing.TB, cmd agentapi.Command) *agentapi.Stream {
	t.Helper()
	s, err := e.Exec(t.Context(), cmd)
	if err != nil {
		t.Fatalf("Exec(%q) = %v", cmd.Argv, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// sh runs a shell script until it ends.
func (e *env) sh(t testing.TB, script string) result {
	t.Helper()
	return collect(t, e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", script}}))
}

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func code(t testing.TB, err error) agentapi.ErrorCode {
	t.Helper()
	e, ok := err.(*agentapi.Error)
	if !ok {
		t.Fatalf("error is %v (%T), want one of the agent's", err, err)
	}
	return e.Code
}
