package code

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/sandbox"
	"github.com/modbox/modbox/internal/cli/base"
)

// flags are the flags that say where and how code runs.
type flags struct {
	language, context, saveDir string
	timeout, limitCPU          time.Duration
	limits                     client.Limits
}

func (f *flags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.language, "language", "", "python, javascript, typescript, bash, r or java (default: python)")
	cmd.Flags().StringVar(&f.context, "context", "", "id of the context, instead of the default context of a language")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "interrupt the code after this time (default: the server's)")
	cmd.Flags().StringVar(&f.limits.Memory, "limit-memory", "", "end the interpreter when its processes use more memory, such as 256Mi")
	cmd.Flags().DurationVar(&f.limitCPU, "limit-cpu", 0, "interrupt the code when it has used this much processor time, in whole seconds")
	cmd.Flags().StringVar(&f.limits.FileSize, "limit-file-size", "", "interrupt the code when it writes a larger file, such as 10Mi")
	cmd.Flags().IntVar(&f.limits.Processes, "limit-processes", 0, "end the interpreter when it has more processes")
}

func (f *flags) check() error {
	if f.language != "" && f.context != "" {
		return base.UsageError("give either --language or --context, which has a language")
	}
	return nil
}

func (f *flags) options() sandbox.CodeOptions {
	return sandbox.CodeOptions{Language: f.language, Context: f.context, Timeout: f.timeout, Limits: f.limit()}
}

// limit returns the limits of the code.
func (f *flags) limit() client.Limits {
	limits := f.limits
	limits.CPUSeconds = int((f.limitCPU + time.Second - 1) / time.Second)
	return limits
}

// NewCodeCommand returns the command "modbox code".
func NewCodeCommand(env *base.Env) *cobra.Command {
	var f flags
	var text string
	cmd := &cobra.Command{
		Use: "code SANDBOX [FILE | -c CODE]", Short: "Run code in an interpreter that keeps its state",
		Long: `Run code in an interpreter of the sandbox, which keeps variables and imports between
calls. The code is in FILE, in -c, or is read from standard input. Its output and
the values that it shows are printed as they come; --save-dir also writes images
to files. The exit code is 1 when the code failed.`,
		Example: "  modbox code my-agent -c 'x = 20; x + 1'\n  modbox code my-agent --language bash setup.sh",
		Args:    cobra.RangeArgs(1, 2), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			source, err := source(env, args[1:], text, cmd.Flags().Changed("code"))
			if err != nil {
				return err
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			sbx, err := sandbox.On(c).Connect(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if env.JSON {
				return printResult(cmd.Context(), env, c, sbx.ID, source, f)
			}
			show := &shower{stdout: env.Stdout, stderr: env.Stderr, dir: f.saveDir}
			res, err := sbx.RunCodeWith(cmd.Context(), source, show.options(f.options()))
			if err != nil {
				return interrupted(cmd.Context(), err)
			}
			show.end(res)
			return exit(res.Status, show.err)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&text, "code", "c", "", "the code")
	cmd.Flags().StringVar(&f.saveDir, "save-dir", "", "write images to files in this directory")
	return cmd
}

// source returns the code of the arguments, the flag, or standard input.
func source(env *base.Env, files []string, text string, given bool) (string, error) {
	if given && len(files) > 0 {
		return "", base.UsageError("give either FILE or -c")
	}
	if given {
		return text, nil
	}
	if len(files) > 0 && files[0] != "-" {
		b, err := os.ReadFile(files[0])
		return string(b), err
	}
	if len(files) == 0 && env.Interactive() {
		return "", base.UsageError("give FILE or -c, or use \"modbox repl\"")
	}
	b, err := io.ReadAll(env.Stdin)
	return string(b), err
}

// printResult runs code and prints its result as JSON.
func printResult(ctx context.Context, env *base.Env, c *client.Client, id, source string, f flags) error {
	res, err := c.Sandboxes.RunCode(ctx, id, source, client.CodeOptions{Language: f.language, ContextID: f.context, Timeout: f.timeout, Limits: f.limit()})
	if err != nil {
		return interrupted(ctx, err)
	}
	return exit(res.Status, env.PrintJSON(res))
}

// exit returns the error for the end of code.
func exit(status string, err error) error {
	if err == nil && status != "ok" {
		return &base.ExitError{Code: base.ExitFailure}
	}
	return err
}

// interrupted returns err, or the exit code for Ctrl-C.
func interrupted(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &base.ExitError{Code: base.ExitInterrupt}
	}
	return err
}

// NewContextsCommand returns the command "modbox contexts".
func NewContextsCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "contexts", Short: "List, interrupt, restart and end the contexts that run code", Aliases: []string{"context"}}
	cmd.AddCommand(&cobra.Command{
		Use: "ls SANDBOX", Short: "List the contexts of a sandbox", Args: cobra.ExactArgs(1), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := c.Sandboxes.Contexts.List(args[0]).Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			rows := make([][]string, 0, len(list))
			for _, x := range list {
				rows = append(rows, []string{x.ID, x.Language, x.State, x.Cwd, strconv.Itoa(x.Restarts), base.Age(x.CreatedAt)})
			}
			return env.PrintTable([]string{"CONTEXT", "LANGUAGE", "STATE", "DIRECTORY", "RESTARTS", "AGE"}, rows)
		},
	})
	change := func(use, short string, do func(context.Context, *client.Contexts, string, string) error) {
		cmd.AddCommand(&cobra.Command{
			Use: use + " SANDBOX CONTEXT", Short: short, Args: cobra.ExactArgs(2), ValidArgsFunction: env.CompleteSandboxes(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := env.Client()
				if err != nil {
					return err
				}
				return do(cmd.Context(), c.Sandboxes.Contexts, args[0], args[1])
			},
		})
	}
	change("rm", "End a context", func(ctx context.Context, c *client.Contexts, ref, id string) error { return c.Delete(ctx, ref, id) })
	change("interrupt", "Interrupt the code that runs in a context", func(ctx context.Context, c *client.Contexts, ref, id string) error { return c.Interrupt(ctx, ref, id) })
	change("restart", "Start the interpreter of a context again, without its state", func(ctx context.Context, c *client.Contexts, ref, id string) error {
		_, err := c.Restart(ctx, ref, id)
		return err
	})
	return cmd
}
