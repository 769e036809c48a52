package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// recorded are settings of a log in which only the workspaces "w" and "v" have outputs.
func recorded(most int64) audit.Config {
	return audit.Config{MaxOutputs: most, Outputs: func(_ context.Context, ws sandbox.WorkspaceID) (bool, error) { return ws == "w" || ws == "v", nil }}
}

// print records a command of a workspace that prints pieces of output.
func (f *fixture) print(ws string, env map[string]string, pieces ...string) {
	f.Helper()
	err := f.log.Do(f.Context(), audit.Record{Action: "exec", Workspace: ws}, func(ctx context.Context) error {
		e := audit.FromContext(ctx)
		if err := e.Command(ctx, []string{"print"}, env); err != nil {
			return err
		}
		for _, piece := range pieces {
			e.Output(false, []byte(piece))
		}
		e.Output(true, []byte("oops"))
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
}

func TestOutputs(t *testing.T) {
	env := map[string]string{"DEPLOY": "of-the-sandbox", "HOME": "/home/user", "LINES": "first-line\nsecond-line\n"}
	long := strings.Repeat("word ", audit.OutputMax/5)
	for name, tc := range map[string]struct {
		workspace string
		pieces    []string
		want      string
		more      bool
	}{
		"plain":             {"w", []string{"a\n", "b\t/home/user\n"}, "a\nb\t/home/user\n", false},
		"another workspace": {"x", []string{"a"}, "", false},
		"secret in pieces":  {"w", []string{"say of-the-", "sand", "box!"}, "say [redacted]!", false},
		"token in pieces":   {"w", []string{"mbx_aaaaaaaa", "aaaaaaaaaaaa ok"}, "[redacted] ok", false},
		"password":          {"w", []string{"pass", "word=hunter2 ok"}, "password=[redacted] ok", false},
		"binary":            {"w", []string{"a\x00\xff\x1b[1m\xe2\x82", "\xac"}, "a\uFFFD\uFFFD\uFFFD[1m€", false},
		"terminal":          {"w", []string{"a\r", "\nb\r\n50%\r99%\n"}, "a\nb\n50%\n99%\n", false},
		"secret in lines":   {"w", []string{"first-line\r\nsecond-line\r\n"}, "[redacted]", false},
		"escaped":           {"w", []string{strings.Repeat("<", audit.OutputMax)}, strings.Repeat("<", 2*audit.OutputMax/6), true},
		"long":              {"w", []string{long, "more"}, long, true},
		"cut in a secret":   {"w", []string{long[:audit.OutputMax-11] + "of-the-sandbox"}, long, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, recorded(0))
			f.print(tc.workspace, env, tc.pieces...)
			r := f.records(audit.Filter{})[0]
			good := r.Stdout == tc.want
			if tc.more { // without the end, which may be a part of a secret
				good = len(r.Stdout) >= len(tc.want)-512 && strings.HasPrefix(tc.want, r.Stdout)
			}
			if !good || r.OutputTruncated != tc.more || (r.Stderr == "oops") != (tc.workspace == "w") {
				t.Errorf("stdout %q, more %t, stderr %q; want %q, %t", r.Stdout, r.OutputTruncated, r.Stderr, tc.want, tc.more)
			}
			if strings.Contains(r.Stdout, "of-the") {
				t.Errorf("%q has a part of a secret", r.Stdout)
			}
		})
	}
}

// TestOutputsAreBoundedInSum has a workspace print more than may be recorded of it; another workspace is not affected.
func TestOutputsAreBoundedInSum(t *testing.T) {
	const most = 100_000
	f := newFixture(t, recorded(most))
	for i := range 1000 {
		f.print("w", nil, fmt.Sprint(i), strings.Repeat("<", 1000))
	}
	f.print("v", nil, "fine")
	sum, without := 0, 0
	for _, r := range f.records(audit.Filter{Workspace: "w"}) {
		encoded, err := json.Marshal(r.Stdout + r.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		if sum += len(encoded); r.Stdout == "" {
			without++
			if !strings.HasPrefix(r.Details["output"], "not recorded") {
				t.Errorf("a record without output does not say why: %+v", r)
			}
		}
	}
	if sum > most || sum < most/2 || without == 0 {
		t.Errorf("%d bytes of output, and %d records without output; want %d bytes at most", sum, without, most)
	}
	if r := f.records(audit.Filter{Workspace: "v"})[0]; r.Stdout != "fine" {
		t.Errorf("the output of another workspace = %q", r.Stdout)
	}
}

// TestOutputsOfAllWorkspacesAreBounded has users print as much as they can in their workspaces. There is something left for
// another user, and not more in the log than its part.
func TestOutputsOfAllWorkspacesAreBounded(t *testing.T) {
	const part = 64 << 10
	cfg := recorded(0)
	cfg.MaxBytes = 32 * part
	f := newFixture(t, cfg)
	for _, ws := range []string{"w", "v"} {
		for range 64 {
			f.print(ws, nil, strings.Repeat("x", 2000))
		}
	}
	sum := map[string]int{}
	for _, r := range f.records(audit.Filter{}) {
		sum[r.Workspace] += len(r.Stdout) + len(r.Stderr)
	}
	if sum["w"] < part/3 || sum["w"] > part/2 || sum["v"] < part/6 || sum["v"] > part/4 {
		t.Errorf("bytes of outputs: %v, want at most a half and a quarter of %d", sum, part)
	}
}

// TestOutputsThatAreFiles has a command that sends files.
func TestOutputsThatAreFiles(t *testing.T) {
	f := newFixture(t, recorded(0))
	err := f.log.Do(t.Context(), audit.Record{Action: "exec", Workspace: "w"}, func(ctx context.Context) error {
		e := audit.FromContext(ctx)
		e.WithoutOutput()
		if err := e.Command(ctx, []string{"sftp"}); err != nil {
			return err
		}
		e.Output(false, []byte("content"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := f.records(audit.Filter{})[0]; r.Stdout != "" || r.Command[0] != "sftp" {
		t.Errorf("the record has the output %q of %q", r.Stdout, r.Command)
	}
}

// TestOutputsOfAKilledServer has a server end while a command prints: the next server records the command without output.
func TestOutputsOfAKilledServer(t *testing.T) {
	f := newFixture(t, recorded(0))
	next := audit.Open(f.store.Audit, recorded(0), slog.New(slog.DiscardHandler))
	defer next.Close()
	err := f.log.Do(t.Context(), audit.Record{Action: "exec", Workspace: "w"}, func(ctx context.Context) error {
		e := audit.FromContext(ctx)
		if err := e.Command(ctx, []string{"print"}); err != nil {
			return err
		}
		e.Output(false, []byte("half"))
		return next.Recover(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := f.records(audit.Filter{})[0]; r.Outcome != audit.Interrupted || r.Stdout != "" {
		t.Errorf("after the end of the server: %+v, want interrupted and no output", r)
	}
	if report := f.verify(); report.Problem != "" {
		t.Error(report.Problem)
	}
}

func TestOutputsOfExecutions(t *testing.T) {
	f := newFixture(t, recorded(0))
	x := audit.Execution{Workspace: "w", User: "u", Sandbox: "s", ID: "x", Command: []string{"print", "of-the-sandbox"}, Stdout: []byte("say of-the-sandbox"), Stderr: []byte("oops")}
	if err := f.log.ExecutionEnded(&x); err != nil {
		t.Fatal(err)
	}
	x.Envs = []map[string]string{{"DEPLOY": "of-the-sandbox"}}
	if err := f.log.ExecutionEnded(&x); err != nil {
		t.Fatal(err)
	}
	list := f.records(audit.Filter{})
	if r := list[0]; r.Stdout != "" || len(r.Command) != 0 || !strings.HasPrefix(r.Details["output"], "not recorded") {
		t.Errorf("without known secrets: %+v, want no output", r)
	}
	if r := list[1]; r.Stdout != "say [redacted]" || r.Stderr != "oops" || r.Command[1] != "[redacted]" || r.Details["execution"] != "x" || r.ObjectID != "s" {
		t.Errorf("with known secrets: %+v", r)
	}
}
