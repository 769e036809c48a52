package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agent"
	"github.com/modbox/modbox/internal/agentapi"
)

// TestMain lets the test program be the agent's program, by which limited commands start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "limited" {
		code, err := agent.Limited(os.Args[2:])
		fmt.Fprintln(os.Stderr, err)
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func TestLimitsEndCommands(t *testing.T) {
	e := start(t)
	for name, tc := range map[string]struct {
		script string
		limits agentapi.Limits
		want   agentapi.LimitName
		signal int
	}{
		"memory":      {"x=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 1000", agentapi.Limits{MemoryBytes: 64 << 20}, agentapi.LimitMemory, 9},
		"cpu":         {"while :; do :; done", agentapi.Limits{CPU: time.Second}, agentapi.LimitCPU, 9},
		"children":    {"(while :; do :; done) & while :; do :; done", agentapi.Limits{CPU: time.Second}, agentapi.LimitCPU, 9},
		"waited":      {"while :; do true; head -c 3000000 /dev/zero | od >/dev/null; done", agentapi.Limits{CPU: time.Second}, agentapi.LimitCPU, 9},
		"processes":   {"for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait", agentapi.Limits{Processes: 4}, agentapi.LimitProcesses, 9},
		"file":        {"exec head -c 2000000 /dev/zero >large", agentapi.Limits{FileSizeBytes: 1 << 20}, agentapi.LimitFileSize, 25},
		"fileOfChild": {"head -c 2000000 /dev/zero >large", agentapi.Limits{FileSizeBytes: 1 << 20}, agentapi.LimitFileSize, 0},
		"keptOpen":    {"trap '' XFSZ; exec 3>kept; head -c 2000000 /dev/zero >&3; sleep 1000", agentapi.Limits{FileSizeBytes: 1 << 20}, agentapi.LimitFileSize, 9},
		"within":      {"sleep 0.1; head -c 1048576 /dev/zero >exact", agentapi.Limits{MemoryBytes: 1 << 30, CPU: time.Minute, FileSizeBytes: 1 << 20, Processes: 8}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := collect(t, e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", tc.script}, Limits: tc.limits, Timeout: 5 * time.Minute}))
			if got.exit.Limit != tc.want || got.exit.TimedOut || tc.want == "" && got.exit.Code != 0 || tc.signal != 0 && got.exit.Signal != tc.signal {
				t.Errorf("exit = %+v, %s; want limit %q and signal %d", got.exit, got.stderr, tc.want, tc.signal)
			}
		})
	}
}

// TestLimitsOfOneCommandLeaveOthersAlone runs a command beside another command, which exceeds its limit.
func TestLimitsOfOneCommandLeaveOthersAlone(t *testing.T) {
	e := start(t)
	other := e.exec(t, agentapi.Command{Argv: []string{"cat"}, Stdin: true, Limits: agentapi.Limits{Processes: 2}})
	got := collect(t, e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", "sleep 1000 & sleep 1000 & sleep 1000 & wait"}, Limits: agentapi.Limits{Processes: 3}}))
	if got.exit.Limit != agentapi.LimitProcesses {
		t.Errorf("exit = %+v, want the limit of processes", got.exit)
	}
	if err := other.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	if got := collect(t, other); got.exit.Code != 0 || got.exit.Limit != "" {
		t.Errorf("the other command: %+v, want that it goes on", got.exit)
	}
}

func TestLimitsKeepTheCommand(t *testing.T) {
	e := start(t)
	script := filepath.Join(e.root, "no-interpreter")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	limits := agentapi.Limits{FileSizeBytes: 1 << 20}
	got := collect(t, e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", `echo "$0 $1 $A"; ulimit -f`, "name", "argument"}, Env: map[string]string{"A": "b"}, Limits: limits}))
	if !strings.HasPrefix(got.stdout, "name argument b\n2048") && !strings.HasPrefix(got.stdout, "name argument b\n1024") { // by the unit of the shell
		t.Errorf("output = %q", got.stdout)
	}
	if got := collect(t, e.exec(t, agentapi.Command{Argv: []string{script}, Limits: limits})); got.exit.Code != 127 || !strings.Contains(got.stderr, "no-interpreter") {
		t.Errorf("without an interpreter: %+v %q, want code 127", got.exit, got.stderr)
	}
	_, err := e.Exec(t.Context(), agentapi.Command{Argv: []string{"true"}, Limits: agentapi.Limits{Processes: -1}})
	if code(t, err) != agentapi.CodeInvalid {
		t.Errorf("a negative limit: %v, want it refused", err)
	}
}
