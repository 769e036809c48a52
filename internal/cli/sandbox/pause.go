package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewPauseCommand returns the command "modbox pause".
func NewPauseCommand(env *base.Env) *cobra.Command {
	var noMemory bool
	cmd := newChangeCommand(env, "pause SANDBOX...", "Save sandboxes, memory and files, and free their memory",
		`Save sandboxes and end their processes. They take no memory until "modbox
resume", or the next command, request or file call, brings them back: their
processes then go on where they were.

With --no-memory only the files are saved, without /tmp and /dev/shm. That is
quicker and takes less disk. The processes get SIGTERM, and SIGKILL 2 seconds
later; the sandbox is started anew with its files.`,
		func(ctx context.Context, c *client.Client, ref string) (*client.Sandbox, error) {
			if noMemory {
				return c.Sandboxes.PauseWithoutMemory(ctx, ref)
			}
			return c.Sandboxes.Pause(ctx, ref)
		})
	cmd.Flags().BoolVar(&noMemory, "no-memory", false, "end the processes and save the files alone")
	return cmd
}

// NewArchiveCommand returns the command "modbox archive".
func NewArchiveCommand(env *base.Env) *cobra.Command {
	return newChangeCommand(env, "archive SANDBOX...", "Move paused sandboxes to the object store",
		`Move what was saved of paused sandboxes from the disk of the server to its
object store. "modbox resume", and everything else that needs it, fetches it
first, which takes longer.

The server needs an object store: its setting archive.url.`,
		func(ctx context.Context, c *client.Client, ref string) (*client.Sandbox, error) {
			return c.Sandboxes.Archive(ctx, ref)
		})
}

// NewResumeCommand returns the command "modbox resume".
func NewResumeCommand(env *base.Env) *cobra.Command {
	var memory string
	var wait time.Duration
	cmd := newChangeCommand(env, "resume SANDBOX...", "Bring paused sandboxes back",
		`Bring paused sandboxes back: their processes go on where they were.

Where the memory of one cannot be brought back any more, because the server runs
another gVisor or on another kind of processor by now, it is started anew with its
files, and a warning says why. --memory=require leaves it paused instead, and
--memory=discard starts it anew in any case.`,
		func(ctx context.Context, c *client.Client, ref string) (*client.Sandbox, error) {
			sb, err := c.Sandboxes.Resume(ctx, ref, client.ResumeOptions{Memory: client.Memory(memory), WaitForQuota: wait})
			if err == nil && sb.MemoryLostReason != "" {
				fmt.Fprintf(env.Stderr, "%s was started anew with its files: %s\n", base.Clean(sb.Name), base.Clean(sb.MemoryLostReason))
			}
			return sb, err
		})
	cmd.Flags().StringVar(&memory, "memory", string(client.MemoryPrefer), "how to restore memory: prefer, require or discard")
	base.WaitForQuotaFlag(cmd.Flags(), &wait)
	return cmd
}

// newChangeCommand returns a command that changes each sandbox and prints their names.
func newChangeCommand(env *base.Env, use, short, long string, change func(context.Context, *client.Client, string) (*client.Sandbox, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: env.CompleteSandboxes(0),
		RunE: func(cmd *cobra.Command, refs []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list := []*client.Sandbox{}
			var errs []error
			for _, ref := range refs {
				sb, err := change(cmd.Context(), c, ref)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", ref, err))
					continue
				}
				list = append(list, sb)
			}
			return errors.Join(append(errs, printChanged(env, list))...)
		},
	}
}

func printChanged(env *base.Env, list []*client.Sandbox) error {
	if env.JSON {
		return env.PrintJSON(list)
	}
	for _, sb := range list {
		if _, err := fmt.Fprintln(env.Stdout, base.Clean(sb.Name)); err != nil {
			return err
		}
	}
	return nil
}

// NewCheckpointCommand returns the command "modbox checkpoint".
func NewCheckpointCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Save states of a sandbox and go back to them",
		Long:  "Save states of a sandbox, memory and files, under names, and take it back to them.",
	}
	cmd.AddCommand(newCheckpointCreateCommand(env), newCheckpointListCommand(env), newCheckpointRestoreCommand(env), newCheckpointRemoveCommand(env))
	return cmd
}

func newCheckpointCreateCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "create SANDBOX [NAME]", Short: "Save the state of a sandbox",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 1 {
				name = args[1]
			}
			cp, err := c.Sandboxes.Checkpoints.Create(cmd.Context(), args[0], name)
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(cp)
			}
			_, err = fmt.Fprintln(env.Stdout, base.Clean(cp.Name))
			return err
		},
	}
}

func newCheckpointListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "ls SANDBOX", Short: "List the saved states of a sandbox",
		Args: cobra.ExactArgs(1), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := c.Sandboxes.Checkpoints.List(args[0]).Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			rows, names := make([][]string, len(list)), map[string]string{}
			for _, cp := range list {
				names[cp.ID] = cp.Name
			}
			for i, cp := range list {
				copied := ""
				if cp.CopiedAt != nil {
					copied = base.Age(*cp.CopiedAt)
				}
				rows[i] = []string{cp.Name, cp.ID, names[cp.ParentID], strconv.FormatInt(cp.SizeBytes>>20, 10) + "Mi", base.Age(cp.CreatedAt), copied}
			}
			return env.PrintTable([]string{"NAME", "ID", "PARENT", "SIZE", "AGE", "COPIED"}, rows)
		},
	}
}

func newCheckpointRestoreCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "restore SANDBOX CHECKPOINT", Short: "Restore a sandbox to a saved state",
		Long: "Restore a sandbox to a saved state, given by name or id. Later changes are lost.",
		Args: cobra.ExactArgs(2), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			sb, err := c.Sandboxes.Checkpoints.Restore(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return printChanged(env, []*client.Sandbox{sb})
		},
	}
}

func newCheckpointRemoveCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "rm SANDBOX CHECKPOINT...", Short: "Delete saved states of a sandbox",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			var errs []error
			for _, cp := range args[1:] {
				if err := c.Sandboxes.Checkpoints.Delete(cmd.Context(), args[0], cp); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", cp, err))
				}
			}
			return errors.Join(errs...)
		},
	}
}

// NewForkCommand returns the command "modbox fork".
func NewForkCommand(env *base.Env) *cobra.Command {
	var count int
	var names, variables, labels []string
	var ttl, wait time.Duration
	cmd := &cobra.Command{
		Use:     "fork SANDBOX",
		Short:   "Make copies of a sandbox as it is, memory included",
		Long:    "Make sandboxes with the memory, processes and files of another as they are, and print their ids.",
		Example: "  modbox fork my-agent --count 3 -e ROLE=worker",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("count") && count < 1 {
				return base.UsageError("--count must be at least 1")
			}
			o := client.ForkOptions{Count: count, Names: names, TTL: ttl, WaitForQuota: wait}
			var err error
			if o.Env, err = base.Pairs(variables, env.Getenv); err != nil {
				return base.UsageError("--env: %w", err)
			}
			if o.Labels, err = base.Pairs(labels, nil); err != nil {
				return base.UsageError("--label: %w", err)
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			children, err := c.Sandboxes.Fork(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			return printForked(env, children)
		},
	}
	cmd.Flags().IntVarP(&count, "count", "n", 0, "how many (default: 1, or one for each --name)")
	cmd.Flags().StringArrayVar(&names, "name", nil, "name of the next one (repeatable; default: made up)")
	cmd.Flags().StringArrayVarP(&variables, "env", "e", nil, "further environment variable NAME=VALUE; NAME alone takes yours (repeatable)")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "further label KEY=VALUE (repeatable)")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "destroy them after this time (default: the ttl of the sandbox)")
	base.WaitForQuotaFlag(cmd.Flags(), &wait)
	return cmd
}

// printForked prints the children that run and returns the errors of the others.
func printForked(env *base.Env, children []client.Forked) error {
	running := []*client.Sandbox{}
	var errs []error
	for i, ch := range children {
		if ch.Err != nil {
			errs = append(errs, fmt.Errorf("child %d: %w", i+1, ch.Err))
			continue
		}
		running = append(running, ch.Sandbox)
	}
	if env.JSON {
		return errors.Join(append(errs, env.PrintJSON(running))...)
	}
	for _, sb := range running {
		fmt.Fprintln(env.Stdout, sb.ID)
	}
	return errors.Join(errs...)
}
