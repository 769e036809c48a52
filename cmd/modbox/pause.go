package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
)

func (a *app) pauseCommand() *cobra.Command {
	return a.changeCommand("pause SANDBOX...", "Save sandboxes, memory and files, and free their memory",
		`Save sandboxes and end their processes. They take no memory until "modbox
resume", or the next command, request or file call, brings them back: their
processes then go on where they were.`,
		func(ctx context.Context, c *client.Client, ref string) (*client.Sandbox, error) {
			return c.Pause(ctx, ref)
		})
}

func (a *app) resumeCommand() *cobra.Command {
	var memory string
	var wait time.Duration
	cmd := a.changeCommand("resume SANDBOX...", "Bring paused sandboxes back",
		`Bring paused sandboxes back: their processes go on where they were.

Where the memory of one cannot be brought back any more, because the server runs
another gVisor or on another kind of processor by now, it is started anew with its
files, and a warning says why. --memory=require leaves it paused instead, and
--memory=discard starts it anew in any case.`,
		func(ctx context.Context, c *client.Client, ref string) (*client.Sandbox, error) {
			sb, err := c.ResumeWith(ctx, ref, client.ResumeOptions{Memory: client.Memory(memory), WaitForQuota: wait})
			if err == nil && sb.MemoryLost != "" {
				fmt.Fprintf(a.stderr, "%s was started anew with its files: %s\n", clean(sb.Name), clean(sb.MemoryLost))
			}
			return sb, err
		})
	cmd.Flags().StringVar(&memory, "memory", string(client.MemoryPrefer), "what to do about memory: prefer, require or discard")
	waitForQuotaFlag(cmd.Flags(), &wait)
	return cmd
}

// changeCommand is a command that does something with each sandbox and prints their names.
func (a *app) changeCommand(use, short, long string, change func(context.Context, *client.Client, string) (*client.Sandbox, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeSandboxes(0),
		RunE: func(cmd *cobra.Command, refs []string) error {
			c, err := a.client()
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
			return errors.Join(append(errs, a.printChanged(list))...)
		},
	}
}

func (a *app) printChanged(list []*client.Sandbox) error {
	if a.json {
		return a.printJSON(list)
	}
	for _, sb := range list {
		if _, err := fmt.Fprintln(a.stdout, clean(sb.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) checkpointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Save states of a sandbox and go back to them",
		Long:  "Save states of a sandbox, memory and files, under names, and take it back to them.",
	}
	cmd.AddCommand(a.checkpointCreateCommand(), a.checkpointListCommand(), a.checkpointRestoreCommand(), a.checkpointRemoveCommand())
	return cmd
}

func (a *app) checkpointCreateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "create SANDBOX [NAME]", Short: "Save the state of a sandbox",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 1 {
				name = args[1]
			}
			cp, err := c.CreateCheckpoint(cmd.Context(), args[0], name)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(cp)
			}
			_, err = fmt.Fprintln(a.stdout, clean(cp.Name))
			return err
		},
	}
}

func (a *app) checkpointListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls SANDBOX", Short: "List the saved states of a sandbox",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.Checkpoints(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			rows := make([][]string, len(list))
			for i, cp := range list {
				rows[i] = []string{cp.Name, cp.ID, strconv.FormatInt(cp.SizeBytes>>20, 10) + "Mi", age(cp.CreatedAt)}
			}
			return a.printTable([]string{"NAME", "ID", "SIZE", "AGE"}, rows)
		},
	}
}

func (a *app) checkpointRestoreCommand() *cobra.Command {
	return &cobra.Command{
		Use: "restore SANDBOX CHECKPOINT", Short: "Take a sandbox back to a saved state",
		Long: "Take a sandbox back to a saved state, named by name or id. What it did since then is lost.",
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			sb, err := c.RestoreCheckpoint(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return a.printChanged([]*client.Sandbox{sb})
		},
	}
}

func (a *app) checkpointRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm SANDBOX CHECKPOINT...", Short: "Delete saved states of a sandbox",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var errs []error
			for _, cp := range args[1:] {
				if err := c.DeleteCheckpoint(cmd.Context(), args[0], cp); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", cp, err))
				}
			}
			return errors.Join(errs...)
		},
	}
}

func (a *app) forkCommand() *cobra.Command {
	var count int
	var names, env, labels []string
	var ttl, wait time.Duration
	cmd := &cobra.Command{
		Use:     "fork SANDBOX",
		Short:   "Make copies of a sandbox as it is, memory included",
		Long:    "Make sandboxes with the memory, processes and files of another as they are, and print their ids.",
		Example: "  modbox fork my-agent --count 3 -e ROLE=worker",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := client.ForkOptions{Count: count, Names: names, TTL: ttl, WaitForQuota: wait}
			var err error
			if o.Env, err = pairs(env, a.getenv); err != nil {
				return usageError("--env: %w", err)
			}
			if o.Labels, err = pairs(labels, nil); err != nil {
				return usageError("--label: %w", err)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			children, err := c.Fork(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			return a.printForked(children)
		},
	}
	cmd.Flags().IntVarP(&count, "count", "n", 0, "how many (default: 1, or one for each --name)")
	cmd.Flags().StringArrayVar(&names, "name", nil, "name of the next one (repeatable; default: made up)")
	cmd.Flags().StringArrayVarP(&env, "env", "e", nil, "further environment variable NAME=VALUE; NAME alone takes yours (repeatable)")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "further label KEY=VALUE (repeatable)")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "destroy them after this time (default: the ttl of the sandbox)")
	waitForQuotaFlag(cmd.Flags(), &wait)
	return cmd
}

// printForked prints the children that run and returns why the others do not.
func (a *app) printForked(children []client.Forked) error {
	running := []*client.Sandbox{}
	var errs []error
	for i, ch := range children {
		if ch.Err != nil {
			errs = append(errs, fmt.Errorf("child %d: %w", i+1, ch.Err))
			continue
		}
		running = append(running, ch.Sandbox)
	}
	if a.json {
		return errors.Join(append(errs, a.printJSON(running))...)
	}
	for _, sb := range running {
		fmt.Fprintln(a.stdout, sb.ID)
	}
	return errors.Join(errs...)
}
