package lifecycle_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// startCommand starts a command for a caller who stays connected.
func (s *server) startCommand(ref string, cmd agentapi.Command) *lifecycle.Command {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	c, err := s.Exec(ctx, s.caller, ref, cmd)
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
func output(t *testing.T, c *lifecycle.Command, at func(out []byte)) ([]byte, *agentapi.Exit) {
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
			if _, err := s.CreateCheckpoint(t.Context(), s.caller, "a", ""); err != nil {
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

func TestCommandOfASandboxThatIsPausedOrTakenBack(t *testing.T) {
	s := newEnv(t).start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	if _, err := s.CreateCheckpoint(t.Context(), s.caller, "a", "before"); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func(){
		"paused":             func() { s.pause("a") },
		"paused and resumed": func() { s.pause("a"); s.resume("a") },
		"taken back": func() {
			if _, err := s.RestoreCheckpoint(t.Context(), s.caller, "a", "before"); err != nil {
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
