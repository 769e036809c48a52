package code

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/modbox/modbox/client/sandbox"
	"github.com/modbox/modbox/internal/cli/base"
)

const (
	// replTTL bounds the life of a sandbox whose "modbox repl" was killed.
	replTTL = 24 * time.Hour
	// startMax bounds the start of a sandbox.
	startMax = 10 * time.Minute
	// cleanupTime bounds the end of a sandbox, and an interrupt.
	cleanupTime = 30 * time.Second
)

// NewReplCommand returns the command "modbox repl".
func NewReplCommand(env *base.Env) *cobra.Command {
	var f flags
	var image string
	cmd := &cobra.Command{
		Use: "repl [SANDBOX]", Short: "Type code into an interpreter of a sandbox",
		Long: `Type code into an interpreter of the sandbox, line by line. Without SANDBOX a new
sandbox is made, and destroyed at the end. Lines with open brackets or quotes go on
in the next line; so does a Python block, which an empty line ends. Images are
written to files, whose paths are shown. Ctrl-C interrupts the code, or drops the
line; Ctrl-D leaves. The state stays in the sandbox for the next repl.`,
		Example: "  modbox repl my-agent\n  modbox repl --image modbox/code-exec --language javascript",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			in, ok := env.Stdin.(*os.File)
			if !ok || !env.Interactive() {
				return base.UsageError("standard input is no terminal: use \"modbox code\"")
			}
			if image != "" && len(args) > 0 {
				return base.UsageError("give either SANDBOX or --image")
			}
			sbx, end, err := replSandbox(cmd.Context(), env, args, image)
			if err != nil {
				return interrupted(cmd.Context(), err)
			}
			defer end()
			state, err := term.MakeRaw(int(in.Fd()))
			if err != nil {
				return err
			}
			defer func() { _ = term.Restore(int(in.Fd()), state) }()
			r := &repl{
				sandbox: sbx, flags: f, keys: newKeyboard(in), out: carriage{env.Stdout},
				show: &shower{stdout: carriage{env.Stdout}, stderr: carriage{env.Stderr}, dir: f.saveDir, keep: true},
			}
			return r.run(cmd.Context())
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&image, "image", "", "image of the sandbox to make (default: the workspace's, else the server's)")
	cmd.Flags().StringVar(&f.saveDir, "save-dir", "", "directory of images (default: a new temporary directory)")
	return cmd
}

// replSandbox returns the named sandbox, or makes one, which end destroys.
func replSandbox(ctx context.Context, env *base.Env, args []string, image string) (sbx *sandbox.Sandbox, end func(), err error) {
	c, err := env.Client()
	if err != nil {
		return nil, nil, err
	}
	if len(args) > 0 {
		sbx, err = sandbox.On(c).Connect(ctx, args[0])
		return sbx, func() {}, err
	}
	sbx, err = sandbox.On(c).Create(ctx, sandbox.Options{Image: image, TTL: replTTL, WaitUpTo: startMax})
	if err != nil {
		return nil, nil, err
	}
	return sbx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		if err := sbx.Delete(ctx); err != nil {
			fmt.Fprintf(env.Stderr, "Sandbox %s could not be destroyed and ends by its ttl: %s\n", base.Clean(sbx.Name), base.Clean(err.Error()))
		}
	}, nil
}

// carriage writes to a terminal in raw mode, where a line ends with a carriage return and a line feed.
type carriage struct{ io.Writer }

func (c carriage) Write(p []byte) (int, error) {
	if _, err := c.Writer.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// history has the lines of a session, without empty lines.
type history struct{ term.History }

// Add implements [term.History].
func (h history) Add(line string) {
	if strings.TrimSpace(line) != "" {
		h.History.Add(line)
	}
}

// repl is a session on a terminal.
type repl struct {
	sandbox *sandbox.Sandbox
	flags   flags
	keys    *keyboard
	out     io.Writer
	show    *shower
	history term.History
	editor  *term.Terminal // nil before the first line and after Ctrl-C
}

// run reads and runs code until Ctrl-D.
func (r *repl) run(ctx context.Context) error {
	fmt.Fprintf(r.out, "Sandbox %s. Ctrl-C interrupts, Ctrl-D leaves.\n", base.Clean(r.sandbox.Name))
	for ctx.Err() == nil {
		source, err := r.read()
		switch {
		case errors.Is(err, errInterrupt):
			fmt.Fprint(r.out, "^C\n")
			continue
		case errors.Is(err, io.EOF):
			fmt.Fprint(r.out, "\n")
			return nil
		case err != nil:
			return err
		}
		if strings.TrimSpace(source) == "" {
			continue
		}
		if err := r.execute(ctx, source); err != nil {
			return err
		}
	}
	return &base.ExitError{Code: base.ExitInterrupt}
}

// context returns the id of the context: the default context of a language has its name.
func (r *repl) context() string { return cmp.Or(r.flags.context, r.flags.language, "python") }

// read reads the lines of a piece of code.
func (r *repl) read() (string, error) {
	var code strings.Builder
	prompt := r.context() + "> "
	for {
		line, err := r.readLine(prompt)
		if err != nil {
			return "", err
		}
		code.WriteString(line + "\n")
		if !goesOn(r.flags.language, code.String()) {
			return code.String(), nil
		}
		prompt = strings.Repeat(".", len(prompt)-1) + " "
	}
}

// readLine reads a line. After Ctrl-C it makes a new editor, without the line that was dropped.
func (r *repl) readLine(prompt string) (string, error) {
	if r.editor == nil {
		r.editor = term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{r.keys, r.out.(carriage).Writer}, prompt)
		if r.history == nil {
			r.history = history{r.editor.History}
		}
		r.editor.History = r.history
	}
	r.editor.SetPrompt(prompt)
	line, err := r.editor.ReadLine()
	switch {
	case errors.Is(err, term.ErrPasteIndicator):
		return line, nil
	case err != nil:
		r.editor = nil
	}
	return line, err
}

// execute runs code. The first Ctrl-C interrupts it; the second does not wait for its end. Errors:
// of the server, but not of the code.
func (r *repl) execute(ctx context.Context, source string) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for first := true; ; first = false {
			select {
			case <-r.keys.pressed:
			case <-done:
				return
			}
			if !first || r.sandbox.Contexts.Interrupt(ctx, r.context()) != nil {
				cancel() // the server interrupts code whose client disconnects
			}
		}
	})
	res, err := r.sandbox.RunCodeWith(ctx, source, r.show.options(r.flags.options()))
	left := ctx.Err() != nil
	close(done)
	cancel()
	watching.Wait()
	switch {
	case left:
		fmt.Fprint(r.out, "^C\n")
		return nil
	case err != nil:
		return err
	}
	r.show.end(res)
	return r.show.err
}
