package modbox

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/api/scans"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	execDefault, execMax = 60, 600 // seconds
	// outputMax is how much is returned of each of stdout and stderr.
	outputMax = 1 << 20
	// codeMax bounds the code of an /execute; execBodyMax allows for its JSON.
	codeMax     = 4 << 20
	execBodyMax = 2*codeMax + 1<<20
)

// executed is the answer of exec and execute; the fields with omitempty are our additions.
type executed struct {
	ExitCode        int         `json:"exitCode"`
	Stdout          string      `json:"stdout"`
	Stderr          string      `json:"stderr"`
	DurationMS      int64       `json:"durationMs"`
	StdoutTruncated bool        `json:"stdoutTruncated,omitempty"`
	StderrTruncated bool        `json:"stderrTruncated,omitempty"`
	TimedOut        bool        `json:"timedOut,omitempty"`
	LimitExceeded   string      `json:"limitExceeded,omitempty"`
	Scan            *scans.Scan `json:"scan,omitempty"`
}

// exec runs a bash command line.
func (d *DataPlane) exec(w http.ResponseWriter, r *http.Request, v *visit) error {
	in, err := readInput(w, r, execBodyMax)
	if err != nil {
		return err
	}
	cmd := agentapi.Command{Argv: command.Script(in.str("command", true, 1, 0))}
	options(in, &cmd)
	if err := in.err(); err != nil {
		return err
	}
	return d.run(w, r, v, cmd, nil)
}

// execute runs code in a language.
func (d *DataPlane) execute(w http.ResponseWriter, r *http.Request, v *visit) error {
	in, err := readInput(w, r, execBodyMax)
	if err != nil {
		return err
	}
	code := in.str("code", true, 0, 0)
	language := strings.ToLower(in.str("language", false, 0, 64))
	var cmd agentapi.Command
	options(in, &cmd)
	run, known := languages[language]
	if !known {
		in.fault("language", "enum", "Input should be 'python', 'javascript', 'bash', 'sh' or 'go'")
	}
	if err := in.err(); err != nil {
		return err
	}
	if len(code) > codeMax {
		return sandbox.Errorf(sandbox.TooLarge, "code has %d bytes, the maximum is %d", len(code), codeMax)
	}
	// Small code is passed as an argument, so that it can use stdin; large code does not fit into
	// an argument.
	if len(code) <= sandbox.ArgumentMax && len(run.argument) > 0 {
		cmd.Argv = append(append(cmd.Argv, run.argument...), code)
		return d.run(w, r, v, cmd, nil)
	}
	cmd.Argv = run.stdin
	audit.FromContext(r.Context()).Code(code)
	source := strings.NewReader(code)
	return d.run(w, r.WithContext(codescan.WithSource(r.Context(), run.name, source)), v, cmd, source)
}

// language is how to run code of a language: as the last argument, or from stdin.
type language struct {
	name            string
	argument, stdin []string
}

var (
	// Python and shells read a program on stdin byte by byte (Python does so because images set
	// PYTHONUNBUFFERED), so their programs read stdin as a whole and then execute it.
	python = language{"python", []string{"python3", "-c"}, []string{"python3", "-c", `exec(compile(__import__("sys").stdin.buffer.read(), "<stdin>", "exec"))`}}
	node   = language{"javascript", []string{"node", "-e"}, []string{"node", "-"}}
	bash   = language{"bash", command.Script("")[:2], command.Script(`eval "$(cat)"`)}
	shell  = language{"bash", []string{"/bin/sh", "-c"}, []string{"/bin/sh", "-c", `eval "$(cat)"`}}
	// Go is compiled and run in two steps, because go run would turn every exit code into 1.
	golang = language{"go", nil, []string{"/bin/sh", "-c", `d=$(mktemp -d) || exit; trap 'rm -rf "$d"' EXIT
cat >"$d/main.go" && go build -o "$d/main" "$d/main.go" && "$d/main" </dev/null`}}

	languages = map[string]language{
		"": python, "python": python, "python3": python, "py": python,
		"javascript": node, "js": node, "node": node,
		"bash": bash, "shell": bash, "sh": shell,
		"go": golang, "golang": golang,
	}
)

// options reads the common fields of exec and execute.
func options(in *input, cmd *agentapi.Command) {
	cmd.Timeout = time.Duration(in.integer("timeout", execDefault, 1, execMax)) * time.Second
	cmd.Cwd = in.str("cwd", false, 0, 4096)
	cmd.Env = in.dict("env")
	cmd.Limits = in.limits()
}

// limits reads the limits of a command, an addition of ours: as in /v1.
func (in *input) limits() agentapi.Limits {
	raw, ok := in.raw("limits", false)
	if !ok {
		return agentapi.Limits{}
	}
	limits, err := command.DecodeLimits(raw)
	if err != nil {
		in.fault("limits", "value_error", "%v", err)
	}
	return limits
}

func (d *DataPlane) run(w http.ResponseWriter, r *http.Request, v *visit, cmd agentapi.Command, stdin *strings.Reader) error {
	ctx, report := codescan.Collect(r.Context())
	result, err := command.Run(ctx, d.commands(v), cmd, stdin, outputMax)
	if err != nil {
		return fmt.Errorf("run command: %w", err)
	}
	return answer(w, executed{
		ExitCode: result.Code, Stdout: text(result.Stdout), Stderr: text(result.Stderr), DurationMS: result.Duration.Milliseconds(),
		StdoutTruncated: result.StdoutTruncated, StderrTruncated: result.StderrTruncated, TimedOut: result.TimedOut,
		LimitExceeded: string(result.Limit), Scan: scans.Shown(report),
	})
}

func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
