package agent_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
)

// A process with Backpressure loses no output although nobody is attached while it writes more than the
// buffer.
func TestHeldProcessWaitsForItsReader(t *testing.T) {
	e := start(t)
	const lines = 100_000 // 700 kB
	first := e.exec(t, agentapi.Command{ID: "held", Argv: []string{"seq", "-f", "%06.0f", "1", fmt.Sprint(lines)}, Detach: true, Backpressure: true})
	f, err := first.Next()
	if err != nil {
		t.Fatal(err)
	}
	out := string(f.Data)
	first.Close()
	for len(out) < 7*lines {
		s, err := e.Attach(t.Context(), "held", int64(len(out)))
		if err != nil {
			t.Fatalf("attach at %d: %v", len(out), err)
		}
		f, err := s.Next()
		if err != nil || f.Type != agentapi.FrameStdout {
			t.Fatalf("after %d bytes: %+v, %v", len(out), f, err)
		}
		out += string(f.Data)
		s.Close()
	}
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if want := fmt.Sprintf("%06d", i+1); line != want {
			t.Fatalf("line %d is %q", i, line)
		}
	}
}

// Output that nobody has collected is not discarded, however many processes ended since.
func TestHeldProcessIsRememberedUntilItsEndIsRead(t *testing.T) {
	e := start(t)
	script := "while ! [ -e " + e.root + "/go ]; do sleep 0.01; done; exit 5"
	e.exec(t, agentapi.Command{ID: "kept", Argv: []string{"sh", "-c", script}, Detach: true, Backpressure: true}).Close()
	others := func() {
		for range 300 {
			collect(t, e.exec(t, agentapi.Command{Argv: []string{"true"}}))
		}
	}
	others() // by then the agent has noticed the detach
	if err := os.WriteFile(filepath.Join(e.root, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	others()
	s, err := e.Attach(t.Context(), "kept", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(t, s); got.exit.Code != 5 {
		t.Errorf("exit %+v, want 5", got.exit)
	}
}

func TestStdinAtAnOffsetIsTakenOnce(t *testing.T) {
	e := start(t)
	s := e.exec(t, agentapi.Command{Argv: []string{"cat"}, Stdin: true})
	for _, part := range []struct {
		text   string
		offset int64
	}{{"0123", 0}, {"23", 2}, {"2345", 2}, {"9", 9}, {"0123456", 0}, {"789", 7}} {
		if _, err := s.WriteAt([]byte(part.text), part.offset); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	if got := collect(t, s); got.stdout != "0123456789" {
		t.Errorf("the process read %q, want every byte once", got.stdout)
	}
}

func TestTerminateGivesTimeAndKillsWhatIsLeft(t *testing.T) {
	e := start(t)
	for name, tt := range map[string]struct {
		script string
		grace  time.Duration
		out    string
		signal syscall.Signal
	}{
		"it ends by itself":     {`trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done`, time.Hour, "up\nbye\n", 0},
		"it does not care":      {`trap '' TERM; echo up; while :; do sleep 0.01; done`, 10 * time.Millisecond, "up\n", syscall.SIGKILL},
		"a child does not care": {`(trap '' TERM; while :; do sleep 0.01; done) & echo up; wait`, time.Hour, "up\n", syscall.SIGTERM},
	} {
		s := e.exec(t, agentapi.Command{ID: "p" + fmt.Sprint(len(name)), Argv: []string{"bash", "-c", tt.script}})
		f, err := s.Next()
		if err != nil || string(f.Data) != "up\n" {
			t.Fatalf("%s: %q, %v", name, f.Data, err)
		}
		if err := e.Terminate(t.Context(), s.Info().ID, tt.grace); err != nil {
			t.Fatal(err)
		}
		out, exit := "up\n", agentapi.Exit{}
		for {
			f, err := s.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if f.Exit != nil {
				exit = *f.Exit
			} else if f.Type == agentapi.FrameStdout { // the shell reports its children on stderr
				out += string(f.Data)
			}
		}
		if out != tt.out || exit.Signal != int(tt.signal) || exit.TimedOut {
			t.Errorf("%s: output %q, exit %+v; want %q and signal %d", name, out, exit, tt.out, tt.signal)
		}
	}
}
