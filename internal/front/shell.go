package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	defaultTimeout = time.Minute
	maxTimeout     = time.Hour
	// restTime is how long the output of a command's children is awaited after its end.
	restTime = time.Second
	// maxBody bounds a request, such as the content of a file.
	maxBody = 8 << 20
)

// kind is the kind of a tool, for applications that ask their users before some calls.
type kind struct{ reads, destroys bool }

// tool adds a tool that calls do. An error of do is an error of the tool, never of the protocol.
func tool[In any](s *sdk.Server, name, title, description string, k kind, do func(context.Context, In) (*sdk.CallToolResult, error)) {
	sdk.AddTool(s, &sdk.Tool{
		Name: name, Title: title, Description: description,
		Annotations: &sdk.ToolAnnotations{Title: title, ReadOnlyHint: k.reads, DestructiveHint: &k.destroys},
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
		res, err := do(ctx, in)
		return res, nil, err
	})
}

func text(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// serve serves an MCP server. It keeps nothing between requests, so a client finds it as it was after
// a pause of the sandbox, and in a fork.
func serve(s *sdk.Server) http.Handler {
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{
		Stateless: true, MaxRequestBodyBytes: maxBody, PropagateRequestCancellation: true,
		DisableLocalhostProtection: true, // the proxy comes by the loopback with the sandbox's public name
	})
}

const shellInstructions = `Runs commands in this sandbox and reads and writes its files. Commands begin in /workspace; each is a shell of its own, so give cwd with each. Start servers with a trailing & and their output sent to a file.`

// shellServer returns an MCP server of commands and files.
func shellServer(version string) http.Handler {
	s := sdk.NewServer(&sdk.Implementation{Name: "modbox-shell", Title: "Shell of a Modbox sandbox", Version: version}, &sdk.ServerOptions{Instructions: shellInstructions})
	tool(s, "exec", "Run a command", "Run a command line with bash, to its end, and return exit code and output. Long output is cut in the middle.", kind{destroys: true}, runCommand)
	tool(s, "read_file", "Read a file", "Read a text file, up to 32 KiB at a time.", kind{reads: true}, readFile)
	tool(s, "write_file", "Write a file", "Write a text file, and make missing parent directories. Replaces a file of that path.", kind{destroys: true}, writeFile)
	return serve(s)
}

type commandArguments struct {
	Command string `json:"command" jsonschema:"command line for bash"`
	Cwd     string `json:"cwd,omitempty" jsonschema:"working directory; /workspace when omitted"`
	Stdin   string `json:"stdin,omitempty" jsonschema:"standard input"`
	Timeout int    `json:"timeout_seconds,omitempty" jsonschema:"seconds after which the command is killed, 1 to 3600; 60 when omitted"`
}

func runCommand(ctx context.Context, a commandArguments) (*sdk.CallToolResult, error) {
	limit := time.Duration(a.Timeout) * time.Second
	if limit < 0 || limit > maxTimeout {
		return nil, fmt.Errorf("timeout_seconds must be 1 to %d", maxTimeout/time.Second)
	}
	if limit == 0 {
		limit = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", a.Command)
	cmd.Dir = a.Cwd
	cmd.Stdin = strings.NewReader(a.Stdin)
	var stdout, stderr clipped
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = restTime
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && (ctx.Err() == nil || cmd.ProcessState == nil) {
		return nil, fmt.Errorf("the command does not start: %w", err)
	}
	var b strings.Builder
	if ctx.Err() != nil {
		fmt.Fprintf(&b, "the command was killed after %s\n", limit)
	}
	code := cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal()) // as shells say it
	}
	fmt.Fprintf(&b, "exit code: %d\n", code)
	section(&b, "stdout", stdout.String())
	section(&b, "stderr", stderr.String())
	return text("%s", b.String()), nil
}

// section writes a text with a heading, unless there is none.
func section(b *strings.Builder, heading, text string) {
	if text = strings.TrimRight(text, "\n"); text != "" {
		fmt.Fprintf(b, "%s:\n%s\n", heading, text)
	}
}

type readArguments struct {
	Path   string `json:"path" jsonschema:"path of the file, absolute or relative to /workspace"`
	Offset int64  `json:"offset,omitempty" jsonschema:"byte at which to begin; 0 when omitted"`
}

func readFile(_ context.Context, a readArguments) (*sdk.CallToolResult, error) {
	f, err := os.OpenFile(a.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait for the writer of a pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", a.Path)
	}
	if a.Offset < 0 {
		return nil, errors.New("offset must not be negative")
	}
	buf := make([]byte, maxText)
	n, err := f.ReadAt(buf, a.Offset)
	if err != nil && err != io.EOF {
		return nil, err
	}
	part := buf[:n]
	for more := err == nil; more && len(part) > n-utf8.UTFMax && !utf8.Valid(part); { // a character may be cut
		part = part[:len(part)-1]
	}
	if !utf8.Valid(part) {
		return nil, fmt.Errorf("%s is not text; use exec with a program that understands it", a.Path)
	}
	res := text("%s", part)
	if err == nil {
		res.Content = append(res.Content, &sdk.TextContent{Text: fmt.Sprintf("[there may be more: go on with offset %d]", a.Offset+int64(len(part)))})
	}
	return res, nil
}

type writeArguments struct {
	Path    string `json:"path" jsonschema:"path of the file, absolute or relative to /workspace"`
	Content string `json:"content" jsonschema:"content of the file"`
}

func writeFile(_ context.Context, a writeArguments) (*sdk.CallToolResult, error) {
	if err := os.MkdirAll(filepath.Dir(a.Path), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(a.Path, []byte(a.Content), 0o644); err != nil {
		return nil, err
	}
	return text("%d bytes are written to %s", len(a.Content), a.Path), nil
}
