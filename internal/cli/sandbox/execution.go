package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// logPause is the pause of logs -f before it connects again.
const logPause = time.Second

// startDetached starts a command that outlives this program, and prints its id.
func startDetached(ctx context.Context, env *base.Env, c *client.Client, ref string, command client.Command) error {
	e, err := c.Executions.Start(ctx, ref, command, client.ExecutionOptions{Kind: client.KindJob})
	if err != nil {
		return &base.ExitError{Code: base.ExitInternal, Err: err}
	}
	if env.JSON {
		return env.PrintJSON(e)
	}
	if e.State == client.ExecutionFailed && e.Error != "" {
		return &base.ExitError{Code: base.ExitInternal, Err: fmt.Errorf("execution %s failed: %s", e.ID, base.Clean(e.Error))}
	}
	_, err = fmt.Fprintln(env.Stdout, e.ID)
	return err
}

// NewJobsCommand returns the command "modbox jobs".
func NewJobsCommand(env *base.Env) *cobra.Command {
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use:               "jobs SANDBOX",
		Short:             "List the commands that exec --detach started in a sandbox",
		Long:              "List the background jobs of a sandbox, newest first, also after its end.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			kind := client.KindJob
			if all {
				kind = ""
			}
			list, _, err := base.First(cmd.Context(), c.Executions.List(args[0], kind), limit)
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			rows := make([][]string, len(list))
			for i, e := range list {
				code := ""
				if e.ExitCode != nil {
					code = fmt.Sprint(*e.ExitCode)
				}
				rows[i] = []string{e.ID, string(e.State), code, base.Age(e.CreatedAt), base.Size(e.Stdout.SizeBytes + e.Stderr.SizeBytes), strings.Join(e.Command, " ")}
			}
			return env.PrintTable([]string{"ID", "STATE", "EXIT", "AGE", "OUTPUT", "COMMAND"}, rows)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list every execution, not only jobs")
	cmd.Flags().IntVar(&limit, "limit", 0, "how many (default 100)")
	return cmd
}

// NewLogsCommand returns the command "modbox logs".
func NewLogsCommand(env *base.Env) *cobra.Command {
	var o client.StreamOptions
	tail := -1
	cmd := &cobra.Command{
		Use:   "logs EXECUTION|SANDBOX",
		Short: "Show the output of an execution, or of a sandbox's main command",
		Long: `Show what an execution has written, its stdout on stdout and its stderr on stderr,
also after its sandbox has ended. For a sandbox, show the output of its main command, which the
image has. With --follow until its end; the exit code is then the command's.`,
		Example: `  modbox logs --follow EXECUTION
  modbox logs --tail 20 EXECUTION
  modbox logs --follow SANDBOX`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return &base.ExitError{Code: base.ExitInternal, Err: err}
			}
			id, err := loggedExecution(cmd.Context(), c, args[0])
			if err != nil {
				return &base.ExitError{Code: base.ExitInternal, Err: err}
			}
			return logs(cmd.Context(), env, c, id, o, tail)
		},
	}
	cmd.Flags().IntVarP(&tail, "tail", "n", -1, "begin with the last so many lines of stdout and of stderr (default: all)")
	cmd.Flags().Lookup("tail").DefValue = "0" // otherwise help says "default -1"
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "go on until it has ended")
	cmd.Flags().BoolVarP(&o.Timestamps, "timestamps", "T", false, "show when each line came")
	return cmd
}

// loggedExecution returns the id of an execution, or of the main command of a sandbox.
func loggedExecution(ctx context.Context, c *client.Client, ref string) (string, error) {
	if uuid.Validate(ref) == nil {
		if _, err := c.Executions.Get(ctx, ref, 0); !client.IsCode(err, client.NotFound) {
			return ref, err
		}
	}
	list, _, err := base.First(ctx, c.Executions.List(ref, client.KindMain), 1)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", fmt.Errorf("sandbox %s has no record of a main command: its image has none, or the sandbox is a fork; \"modbox jobs --all %s\" lists its executions", ref, ref)
	}
	return list[0].ID, nil
}

// checkExecution returns a helpful error for the name of a sandbox.
func checkExecution(id string) error {
	if uuid.Validate(id) != nil {
		return base.UsageError("%q is not the id of an execution; \"modbox jobs SANDBOX\" lists the executions of a sandbox", id)
	}
	return nil
}

// logs prints an execution's output: of each stream the last tail lines, or all if tail is
// negative.
func logs(ctx context.Context, env *base.Env, c *client.Client, id string, o client.StreamOptions, tail int) error {
	e, err := c.Executions.Get(ctx, id, 0)
	if err != nil {
		return &base.ExitError{Code: base.ExitInternal, Err: err}
	}
	g, logCtx := errgroup.WithContext(ctx)
	show := func(stream client.OutputStream, to io.Writer) {
		g.Go(func() (err error) {
			o := o
			if tail >= 0 {
				if o.Offset, err = tailOffset(logCtx, c, stream, tail); err != nil {
					return err
				}
			}
			return copyStream(logCtx, c, stream.StreamID, o, to)
		})
	}
	if e.Stdout.StreamID != "" {
		show(e.Stdout, env.Stdout)
	}
	if e.Stderr.StreamID != "" && e.Stderr.StreamID != e.Stdout.StreamID {
		show(e.Stderr, env.Stderr)
	}
	if err := g.Wait(); err != nil {
		return attachError(ctx, err)
	}
	if !o.Follow {
		return nil
	}
	if e, err = c.Executions.Get(ctx, id, time.Minute); err != nil {
		return attachError(ctx, err)
	}
	switch {
	case e.ExitCode == nil:
		return &base.ExitError{Code: base.ExitInternal, Err: fmt.Errorf("the execution is %s: %s", e.State, base.Clean(e.Error))}
	case *e.ExitCode != 0:
		return &base.ExitError{Code: *e.ExitCode}
	}
	return nil
}

// tailOffset returns the offset of the last lines of a stream. It reads from the end, in growing
// steps, until it finds them.
func tailOffset(ctx context.Context, c *client.Client, stream client.OutputStream, lines int) (int64, error) {
	if lines == 0 {
		return stream.SizeBytes, nil
	}
	for part := int64(64 << 10); ; part *= 4 {
		from := max(0, stream.SizeBytes-part)
		r, err := c.Streams.Read(ctx, stream.StreamID, client.StreamOptions{Offset: from})
		if err != nil {
			return 0, err
		}
		data, err := io.ReadAll(io.LimitReader(r, stream.SizeBytes-from))
		_ = r.Close() // it was only read
		if err != nil {
			return 0, err
		}
		at := len(bytes.TrimSuffix(data, []byte("\n")))
		for left := lines; left > 0 && at >= 0; left-- {
			at = bytes.LastIndexByte(data[:at], '\n')
		}
		if at >= 0 || from == 0 {
			return from + int64(at) + 1, nil
		}
	}
}

// copyStream copies a stream to its end. While following it reconnects at the same offset after an
// error; with timestamps the offset is unknown, and it fails.
func copyStream(ctx context.Context, c *client.Client, id string, o client.StreamOptions, to io.Writer) error {
	for {
		r, err := c.Streams.Read(ctx, id, o)
		if err != nil {
			return err
		}
		w := &countingWriter{w: to}
		_, err = io.Copy(w, r)
		_ = r.Close() // it was only read
		o.Offset += w.n
		if err == nil || w.failed || !o.Follow || o.Timestamps || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(logPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// countingWriter counts the bytes written, and records a failure.
type countingWriter struct {
	w      io.Writer
	n      int64
	failed bool
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.failed = c.failed || err != nil
	return n, err
}

// NewCancelCommand returns the command "modbox cancel".
func NewCancelCommand(env *base.Env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:               "cancel EXECUTION...",
		Short:             "End executions",
		Long:              "End executions: all their processes get SIGTERM, and SIGKILL 5 seconds later. Waits for their ends.",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := checkExecution(id); err != nil {
					return err
				}
				if _, err := c.Executions.Cancel(cmd.Context(), id, force); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			for _, id := range args {
				e, err := c.Executions.Get(cmd.Context(), id, time.Minute)
				if err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				fmt.Fprintf(env.Stdout, "%s %s\n", id, e.State)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "kill them at once")
	return cmd
}

// NewAttachCommand returns the command "modbox attach".
func NewAttachCommand(env *base.Env) *cobra.Command {
	var offset int64
	cmd := &cobra.Command{
		Use:   "attach SANDBOX EXECUTION",
		Short: "Connect to a command that runs already",
		Long: `Connect your terminal, or input and output, to an execution: one started by exec -it
whose connection was lost, or a job. The exit code is the command's. It goes on
when the connection is lost.`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkExecution(args[1]); err != nil {
				return err
			}
			c, err := env.Client()
			if err != nil {
				return &base.ExitError{Code: base.ExitInternal, Err: err}
			}
			e, err := c.Executions.Get(cmd.Context(), args[1], 0)
			if err != nil {
				return &base.ExitError{Code: base.ExitInternal, Err: err}
			}
			return connect(cmd.Context(), env, c, args[0], e, offset)
		},
	}
	cmd.Flags().Int64Var(&offset, "offset", 0, "byte of the output to begin at")
	return cmd
}

// startTerminal runs a command on a terminal that outlives this program.
func startTerminal(ctx context.Context, env *base.Env, c *client.Client, ref string, command client.Command) error {
	t, err := openTerminal(env.Stdin, env.Stdout, true)
	if err != nil {
		return &base.ExitError{Code: base.ExitUsage, Err: err}
	}
	tty := t.size()
	t.restore()
	e, err := c.Executions.Start(ctx, ref, command, client.ExecutionOptions{TTY: tty})
	if err != nil {
		return attachError(ctx, err)
	}
	return connect(ctx, env, c, ref, e, 0)
}

// connect connects the terminal or pipes to an execution until its end. If the connection breaks,
// it says how to reconnect.
func connect(ctx context.Context, env *base.Env, c *client.Client, ref string, e *client.Execution, offset int64) error {
	t, err := openTerminal(env.Stdin, env.Stdout, e.TTY)
	if err != nil {
		return &base.ExitError{Code: base.ExitUsage, Err: err}
	}
	defer t.restore()
	s, err := c.Executions.Attach(ctx, ref, e.ID, offset)
	if err != nil {
		return attachError(ctx, err)
	}
	defer s.Close()
	if e.TTY {
		_ = s.Resize(*t.size()) // the next resize corrects a lost resize
	}
	if e.TTY || e.StdinStreamID != "" && t.piped {
		// The goroutine ends with the input, the session, or the program.
		go forwardInput(env.Stdin, s)
	}
	stop := t.watchSize(func(size client.Size) { _ = s.Resize(size) })
	defer stop()
	out := &countingWriter{w: env.Stdout}
	exit, err := s.Copy(out, env.Stderr)
	if errors.Is(err, client.ErrCut) {
		t.restore()
		fmt.Fprintf(env.Stderr, "\nThe command goes on. To connect again:\n  modbox attach --offset %d %s %s\n", offset+out.n, base.Clean(ref), e.ID)
	}
	if err != nil {
		return attachError(ctx, err)
	}
	if exit.LimitExceeded != "" {
		t.restore()
		fmt.Fprintf(env.Stderr, "The command exceeded its limit: %s.\n", base.Clean(exit.LimitExceeded))
	}
	if exit.ExitCode != 0 {
		return &base.ExitError{Code: exit.ExitCode}
	}
	return nil
}
