package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// startCommand starts a command for a caller who stays connected.
func (s *server) startCommand(ref string, cmd agentapi.Command) *guest.Command {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	c, err := s.Guest().Exec(ctx, s.caller, ref, cmd)
	if err != nil {
		cancel()
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = c.Close()
		cancel()
	})
	return c
}

// output reads a command to its exit, calling at with all output so far.
func output(t *testing.T, c *guest.Command, at func(out []byte)) ([]byte, *agentapi.Exit) {
	t.Helper()
	var out []byte
	for {
		f, err := c.Next()
		switch {
		case err != nil:
			t.Fatalf("after %d bytes: %v", len(out), err)
		case f.Exit != nil:
			return out, f.Exit
		}
		out = append(out, f.Data...)
		at(out)
	}
}

func TestCommandGoesOnOverCheckpoints(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	c := s.startCommand("a", agentapi.Command{Argv: []string{"sh", "-c", "cat; exit 7"}, Stdin: true})
	want := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{1}).Read(want)
	wrote := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, bytes.NewReader(want))
		wrote <- err
		_ = c.CloseStdin()
	}()
	saves := 0
	out, exit := output(t, c, func(out []byte) {
		for saves < 4 && len(out) > saves*500_000 {
			saves++
			if _, err := s.Checkpoints().Create(t.Context(), s.caller, "a", ""); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err := <-wrote; err != nil {
		t.Errorf("write stdin: %v", err)
	}
	if saves != 4 || !bytes.Equal(out, want) || exit.Code != 7 {
		t.Errorf("after %d checkpoints: %d bytes, the same %v, exit code %d; want 4, %d bytes, the same, 7",
			saves, len(out), bytes.Equal(out, want), exit.Code, len(want))
	}
	if _, err := c.Next(); err != io.EOF {
		t.Errorf("after the exit: %v, want io.EOF", err)
	}
	eventually(t, "the end is noted", func() bool {
		types := s.eventTypes("a")
		return types[len(types)-1] == sandbox.EventExec
	})
}

// TestCommandWaitsForItsTurn saves a sandbox while too much is under way to connect to
// its command again.
func TestCommandWaitsForItsTurn(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	c := s.startCommand("a", agentapi.Command{Argv: []string{"sh", "-c", "echo up; read line; echo $line"}, Stdin: true})
	if f, err := c.Next(); err != nil || string(f.Data) != "up\n" {
		t.Fatalf("first output %q, %v", f.Data, err)
	}
	enough, end := s.crowd()
	defer end()
	go func() {
		<-enough
		end()
		_, _ = c.Write([]byte("down\n")) // without it there is no output
	}()
	s.checkpoint("a", "c")
	out, exit := output(t, c, func([]byte) {})
	if string(out) != "down\n" || exit.Code != 0 {
		t.Errorf("then output %q and exit code %d, want what was typed and 0", out, exit.Code)
	}
}

// TestSavingThatTakesLong has a sandbox stand still to be saved for longer than its
// agent may not answer.
func TestSavingThatTakesLong(t *testing.T) {
	for what, save := range map[string]func(*server) error{
		"checkpoint": func(s *server) error {
			_, err := s.Checkpoints().Create(t.Context(), s.caller, "a", "")
			return err
		},
		"snapshot": func(s *server) error {
			_, err := s.Snapshots().Create(t.Context(), s.caller, "a", snapshot.Request{})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) { savedForLong(t, save) })
	}
}

func savedForLong(t *testing.T, save func(*server) error) {
	e := newEnv(t)
	e.cfg = e.cfg.AgentTimeout(100 * time.Millisecond)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	flag := filepath.Join(t.TempDir(), "flag")
	req := shell("echo up; until test -e " + flag + "; do sleep 0.05; done; echo done")
	x := s.startExecution("a", req)
	c := s.startCommand("a", agentapi.Command{Argv: req.Argv})
	if f, err := c.Next(); err != nil || string(f.Data) != "up\n" {
		t.Fatalf("first output %q, %v", f.Data, err)
	}
	eventually(t, "the execution's first output", func() bool {
		now, err := s.Executions().Get(t.Context(), s.caller, x.ID)
		return err == nil && now.Stdout.Bytes == int64(len("up\n"))
	})
	began, release, saved := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	wait := func(context.Context, sandbox.ID) error {
		close(began)
		<-release
		return nil
	}
	e.host.SetFaults(fake.Faults{Checkpoint: wait, WriteLayer: wait})
	go func() { saved <- save(s) }()
	<-began
	var attempts atomic.Int64
	enough := make(chan struct{})
	f := s.driver.faults
	f.mu.Lock()
	f.dial = func() (net.Conn, error) {
		if attempts.Add(1) == 40 { // a quarter would be all
			close(enough)
		}
		return nil, errors.New("it stands still")
	}
	for _, conn := range f.open {
		conn.Close()
	}
	f.mu.Unlock()
	go func() {
		defer close(release)
		select {
		case <-enough:
		case <-t.Context().Done():
		}
		f.mu.Lock()
		f.dial = nil
		f.mu.Unlock()
		if err := os.WriteFile(flag, nil, 0o600); err != nil {
			t.Error(err)
		}
	}()
	if out, exit := output(t, c, func([]byte) {}); string(out) != "done\n" || exit.Code != 0 {
		t.Errorf("the command's output %q and exit code %d", out, exit.Code)
	}
	if now := s.ended(x.ID); now.State != sandbox.ExecutionCompleted || now.Stdout.Bytes != int64(len("up\ndone\n")) {
		t.Errorf("execution %+v, want completed", now)
	}
	if err := <-saved; err != nil {
		t.Error(err)
	}
}

func TestCommandOfASandboxThatIsPausedOrTakenBack(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	if _, err := s.Checkpoints().Create(t.Context(), s.caller, "a", "before"); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func(){
		"paused":             func() { s.pause("a") },
		"paused and resumed": func() { s.pause("a"); s.resume("a") },
		"taken back": func() {
			if _, err := s.Checkpoints().Restore(t.Context(), s.caller, "a", "before"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		c := s.startCommand("a", agentapi.Command{Argv: []string{"sh", "-c", "echo up; exec sleep 600"}})
		if f, err := c.Next(); err != nil || string(f.Data) != "up\n" {
			t.Fatalf("%s: first output %q, %v", what, f.Data, err)
		}
		do()
		for range 2 {
			_, err := c.Next()
			if sandbox.CodeOf(err) != sandbox.NotRunning || !strings.Contains(err.Error(), "while the command ran") {
				t.Errorf("%s: %v, want not_running, saying why", what, err)
			}
		}
	}
}
