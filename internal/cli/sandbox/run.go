package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

const (
	// runTTL bounds the life of a sandbox whose "modbox run" was killed.
	runTTL = 24 * time.Hour
	// cleanupTime bounds the end of a sandbox after Ctrl-C.
	cleanupTime = 30 * time.Second
)

// commandFlags are the flags of run and exec that describe the command.
type commandFlags struct {
	tty, interactive bool
	cwd, user        string
	timeout          time.Duration
	limits           client.Limits
	limitCPU         time.Duration
}

func (f *commandFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVarP(&f.tty, "tty", "t", false, "run it on a terminal")
	fs.BoolVarP(&f.interactive, "interactive", "i", false, "connect your input (always so when it is a pipe or file)")
	fs.StringVarP(&f.cwd, "cwd", "w", "", "working directory (default: the image's)")
	fs.StringVarP(&f.user, "user", "u", "", "user to run it as (default: the image's)")
	fs.DurationVar(&f.timeout, "timeout", 0, "end it after this time (default: none)")
	fs.StringVar(&f.limits.Memory, "limit-memory", "", "kill it when its processes use more memory, such as 256Mi")
	fs.DurationVar(&f.limitCPU, "limit-cpu", 0, "kill it when its processes have used this much processor time, in whole seconds")
	fs.StringVar(&f.limits.FileSize, "limit-file-size", "", "end it when it writes a larger file, such as 10Mi")
	fs.IntVar(&f.limits.Processes, "limit-processes", 0, "kill it when it has more processes")
	fs.SetInterspersed(false) // flags after the first argument belong to the command
}

// command returns a command with what the flags say of it.
func (f *commandFlags) command(argv []string) client.Command {
	limits := f.limits
	limits.CPUSeconds = int((f.limitCPU + time.Second - 1) / time.Second)
	return client.Command{Argv: argv, Cwd: f.cwd, User: f.user, Timeout: f.timeout, Limits: limits}
}

// splitCommand splits TARGET [--] COMMAND [ARGUMENT...]. A command that begins with "-" needs "--"
// before it: without, it is a flag of Modbox in the wrong place.
//
// Errors: a usage error, for no command and for such a flag.
func splitCommand(cmd *cobra.Command, args []string) (target string, argv []string, err error) {
	target, argv = args[0], args[1:]
	switch {
	case len(argv) > 0 && argv[0] == "--":
		argv = argv[1:]
	case len(argv) > 0 && strings.HasPrefix(argv[0], "-"):
		return "", nil, base.UsageError("flags of Modbox go before %q: %s %s %s ...; a command that begins with \"-\" follows \"--\"", target, cmd.CommandPath(), lateFlag(cmd, argv), target)
	}
	if len(argv) == 0 {
		return "", nil, base.UsageError("say which command to run: %s %s -- COMMAND", cmd.CommandPath(), target)
	}
	return target, argv, nil
}

// lateFlag returns the flag at the begin of arguments, with its value where it takes one.
func lateFlag(cmd *cobra.Command, args []string) string {
	name := strings.TrimLeft(args[0], "-")
	flag := cmd.Flags().Lookup(name)
	if len(name) == 1 {
		flag = cmd.Flags().ShorthandLookup(name)
	}
	if flag != nil && flag.NoOptDefVal == "" && len(args) > 1 {
		return args[0] + " " + args[1]
	}
	return args[0]
}

// NewRunCommand returns the command "modbox run".
func NewRunCommand(env *base.Env) *cobra.Command {
	var create createFlags
	var command commandFlags
	var keep bool
	cmd := &cobra.Command{
		Use:   "run {IMAGE | --catalogue NAME | --snapshot SNAPSHOT} [--] COMMAND [ARGUMENT...]",
		Short: "Make a sandbox, run a command in it, and destroy it",
		Long: `Make a sandbox, run a command in it with your terminal or pipes connected, and
destroy the sandbox. The exit code is the command's; 125 means that Modbox itself
failed. Ctrl-C kills the command and destroys the sandbox. Should this program
be killed, the sandbox ends by its ttl, 24 hours unless --ttl says otherwise.`,
		Example: `  modbox run modbox/code-exec -- python3 -c 'print(6*7)'
  echo 'console.log(6*7)' | modbox run modbox/code-exec -- node -
  modbox run -it modbox/base -- bash`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: env.CompleteImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			image, argv := "", args
			var err error
			if create.snapshot == "" && create.catalogue == "" {
				if image, argv, err = splitCommand(cmd, args); err != nil {
					return err
				}
			}
			o, err := create.options(env.Getenv, image)
			if err != nil {
				return err
			}
			if o.TTL == 0 && !keep {
				o.TTL = runTTL
			}
			c, err := env.Client()
			if err != nil {
				return &base.ExitError{Code: base.ExitInternal, Err: err}
			}
			if err := create.find(cmd.Context(), c, &o); err != nil {
				return &base.ExitError{Code: base.ExitInternal, Err: err}
			}
			return run(cmd.Context(), env, c, o, argv, command, keep)
		},
	}
	create.add(cmd)
	command.add(cmd)
	cmd.Flags().Lookup("ttl").Usage = "destroy it after this time, 1m to 24h (default: 24h; with --keep the image's)"
	cmd.Flags().BoolVar(&keep, "keep", false, "do not destroy the sandbox afterwards")
	return cmd
}

func run(ctx context.Context, env *base.Env, c *client.Client, o client.CreateOptions, argv []string, f commandFlags, keep bool) error {
	if o.Name == "" {
		// With a name of our own we can end the sandbox even if the answer to the create never arrives.
		o.Name = "run-" + randomName()
	}
	// The server may have accepted a create that was interrupted.
	sb, err := start(ctx, env, c, o)
	if sb != nil && keep {
		fmt.Fprintf(env.Stderr, "Sandbox %s (%s)\n", base.Clean(sb.Name), sb.ID)
	}
	if !keep && (sb != nil || ctx.Err() != nil) {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
			defer cancel()
			ref := o.Name
			if sb != nil {
				ref = sb.ID
			}
			if _, err := c.Sandboxes.Delete(ctx, ref); err != nil && !client.IsCode(err, client.NotFound) {
				fmt.Fprintf(env.Stderr, "Sandbox %s could not be destroyed and ends by its ttl: %s\n", base.Clean(o.Name), base.Clean(err.Error()))
			}
		}()
	}
	switch {
	case ctx.Err() != nil:
		return &base.ExitError{Code: base.ExitInterrupt}
	case err != nil:
		return &base.ExitError{Code: base.ExitInternal, Err: err}
	case sb.State != client.Running:
		return &base.ExitError{Code: base.ExitInternal, Err: ended(sb)}
	}
	return attach(ctx, env, c, sb.ID, f.command(argv), f)
}

// NewExecCommand returns the command "modbox exec".
func NewExecCommand(env *base.Env) *cobra.Command {
	var command commandFlags
	var variables []string
	var detach bool
	cmd := &cobra.Command{
		Use:   "exec SANDBOX [--] COMMAND [ARGUMENT...]",
		Short: "Run a command in a sandbox",
		Long: `Run a command in a running sandbox with your terminal or pipes connected. The
exit code is the command's; 125 means that Modbox itself failed. Ctrl-C kills
the command.

With --tty the command goes on when the connection is lost: "modbox attach"
connects to it again. With --detach it runs in the background, whatever becomes
of this program and of the server: its id is printed, for "modbox logs",
"modbox jobs" and "modbox cancel".`,
		Example: `  modbox exec -it my-agent -- bash
  modbox exec --detach my-agent -- npm install`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, argv, err := splitCommand(cmd, args)
			if err != nil {
				return err
			}
			vars, err := base.Pairs(variables, env.Getenv)
			if err != nil {
				return base.UsageError("--env: %w", err)
			}
			c, err := env.Client()
			if err != nil {
				return &base.ExitError{Code: base.ExitInternal, Err: err}
			}
			run := command.command(argv)
			run.Env = vars
			switch {
			case detach && (command.tty || command.interactive):
				return base.UsageError("--detach leaves nothing to connect: leave out --tty and --interactive")
			case detach:
				return startDetached(cmd.Context(), env, c, ref, run)
			case command.tty:
				return startTerminal(cmd.Context(), env, c, ref, run)
			default:
				return attach(cmd.Context(), env, c, ref, run, command)
			}
		},
	}
	command.add(cmd)
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "run it in the background and print its id")
	cmd.Flags().StringArrayVarP(&variables, "env", "e", nil, "environment variable NAME=VALUE; NAME alone takes yours (repeatable)")
	return cmd
}

// attach runs the command with the terminal or pipes connected. Its error carries
// the exit code.
func attach(ctx context.Context, env *base.Env, c *client.Client, ref string, command client.Command, f commandFlags) error {
	t, err := openTerminal(env.Stdin, env.Stdout, f.tty)
	if err != nil {
		return &base.ExitError{Code: base.ExitUsage, Err: err}
	}
	defer t.restore()
	o := client.AttachOptions{Stdin: f.interactive || t.piped, TTY: t.size()}
	s, err := c.Sandboxes.Attach(ctx, ref, command, o)
	if err != nil {
		return attachError(ctx, err)
	}
	defer s.Close()
	if o.Stdin {
		// The goroutine ends with the input, the session, or the program.
		go forwardInput(env.Stdin, s)
	}
	stop := t.watchSize(func(size client.Size) { _ = s.Resize(size) }) // the next resize corrects a lost resize
	defer stop()
	exit, err := s.Copy(env.Stdout, env.Stderr)
	if err != nil {
		return attachError(ctx, err)
	}
	if exit.TimedOut {
		t.restore()
		fmt.Fprintf(env.Stderr, "The command was ended after %v.\n", f.timeout)
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

func attachError(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &base.ExitError{Code: base.ExitInterrupt}
	}
	return &base.ExitError{Code: base.ExitInternal, Err: err}
}
