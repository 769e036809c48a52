package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/sandbox"
)

// maxTimeout bounds the timeouts of code and commands; the server may permit less.
const maxTimeout = int(24 * time.Hour / time.Second)

// timeout returns the timeout of a call; 0 is the server's default.
func timeout(n int) (time.Duration, error) {
	if n < 0 || n > maxTimeout {
		return 0, &client.Error{Code: client.Invalid, Message: fmt.Sprintf("timeout_seconds must be 1 to %d", maxTimeout)}
	}
	return time.Duration(n) * time.Second, nil
}

type codeArguments struct {
	Code     string `json:"code" jsonschema:"code to run"`
	Language string `json:"language,omitempty" jsonschema:"python, javascript, typescript, bash, r or java; python when omitted"`
	Sandbox  string `json:"sandbox,omitempty" jsonschema:"id or name of a sandbox, instead of the session's own"`
	Timeout  int    `json:"timeout_seconds,omitempty" jsonschema:"seconds after which the code is interrupted; the server's default when omitted"`
}

func (s *Session) runCode(ctx context.Context, a codeArguments) (*sdk.CallToolResult, error) {
	limit, err := timeout(a.Timeout)
	if err != nil {
		return nil, err
	}
	return s.in(ctx, a.Sandbox, limit, func(sbx *sandbox.Sandbox) (*sdk.CallToolResult, error) {
		r, err := sbx.RunCodeWith(ctx, a.Code, sandbox.CodeOptions{Language: a.Language, Timeout: limit})
		if err != nil {
			return nil, err
		}
		return showCode(r), nil
	})
}

// showCode returns the end of code: text first, and then its images.
func showCode(r *sandbox.CodeResult) *sdk.CallToolResult {
	var b strings.Builder
	if r.Restarted {
		b.WriteString("The interpreter was started again; the variables of earlier calls are lost.\n")
	}
	if r.Status != "ok" {
		fmt.Fprintf(&b, "status: %s\n", r.Status)
	}
	section(&b, "stdout", clip(r.Stdout))
	section(&b, "stderr", clip(r.Stderr))
	var values strings.Builder
	var images images
	for i := range r.Results {
		o := &r.Results[i]
		if !images.add("image/png", o.PNG()) && !images.add("image/jpeg", o.JPEG()) {
			values.WriteString(display(o) + "\n")
		}
	}
	section(&b, "result", clip(values.String()))
	if r.Error != nil {
		section(&b, "error", clip(strings.Join(append([]string{r.Error.Error()}, r.Error.Traceback...), "\n")))
	}
	if r.Truncated {
		b.WriteString("[the server left out a part of the output]\n")
	}
	b.WriteString(images.leftOut())
	if b.Len() == 0 && len(images.shown) == 0 {
		b.WriteString("no output\n")
	}
	res := &sdk.CallToolResult{}
	if b.Len() > 0 {
		res.Content = append(res.Content, &sdk.TextContent{Text: b.String()})
	}
	res.Content = append(res.Content, images.shown...)
	return res
}

// display returns a value in the format that models read best.
func display(o *sandbox.CodeOutput) string {
	for _, s := range []string{o.Text(), o.Markdown(), o.LaTeX(), o.HTML(), o.SVG()} {
		if s != "" {
			return s
		}
	}
	if value, ok := o.Data["application/json"]; ok {
		return fmt.Sprint(value)
	}
	return fmt.Sprintf("[a value without text; too large: %s]", strings.Join(o.Omitted, ", "))
}

// section writes a text with a heading, unless there is none.
func section(b *strings.Builder, heading, text string) {
	if text = strings.TrimRight(text, "\n"); text != "" {
		fmt.Fprintf(b, "%s:\n%s\n", heading, text)
	}
}

type execArguments struct {
	Command string            `json:"command" jsonschema:"command line for the shell"`
	Cwd     string            `json:"cwd,omitempty" jsonschema:"working directory"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"additional environment variables"`
	Stdin   string            `json:"stdin,omitempty" jsonschema:"standard input"`
	Sandbox string            `json:"sandbox,omitempty" jsonschema:"id or name of a sandbox, instead of the session's own"`
	Timeout int               `json:"timeout_seconds,omitempty" jsonschema:"seconds after which the command is killed; the server's default when omitted"`
}

func (s *Session) exec(ctx context.Context, a execArguments) (*sdk.CallToolResult, error) {
	limit, err := timeout(a.Timeout)
	if err != nil {
		return nil, err
	}
	return s.in(ctx, a.Sandbox, limit, func(sbx *sandbox.Sandbox) (*sdk.CallToolResult, error) {
		cmd := sbx.Shell(a.Command)
		stdout, stderr := new(clipped), new(clipped)
		cmd.Cwd, cmd.Env, cmd.Stdin, cmd.Timeout, cmd.Stdout, cmd.Stderr = a.Cwd, a.Env, []byte(a.Stdin), limit, stdout, stderr
		r, err := cmd.Run(ctx)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		if r.TimedOut {
			b.WriteString("the command was killed by its timeout\n")
		}
		fmt.Fprintf(&b, "exit code: %d\n", r.ExitCode)
		section(&b, "stdout", stdout.String())
		section(&b, "stderr", stderr.String())
		return text(b.String()), nil
	})
}
