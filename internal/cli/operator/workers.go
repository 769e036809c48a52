package operator

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewWorkersCommand returns the command "modbox workers".
func NewWorkersCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "workers", Short: "List, drain and remove the workers of a server, for administrators", Args: cobra.NoArgs}
	cmd.AddCommand(newWorkersListCommand(env), newWorkersShowCommand(env), newWorkersDrainCommand(env), newWorkersUndrainCommand(env), newWorkersRemoveCommand(env))
	return cmd
}

// databaseSettings are the settings that lead to the database of a server.
var databaseSettings = []string{"state_dir", "database.url", "database.password_file"}

func newWorkersListCommand(env *base.Env) *cobra.Command {
	var local base.ChoiceFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List workers", Args: cobra.NoArgs,
		Long: `List workers. SANDBOXES counts boxes of builds and of the pool as well. PROMISED is the
sum of the memory limits of all of them, and MAX how much may be promised.

With --local, list the workers in the database of the server on this machine, which
need not run. SEEN is the beginning or end of a worker's last connection then.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if local.Here() {
				return listWorkersLocal(cmd.Context(), env, &local.LocalFlags)
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := c.Workers.List().Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			var rows [][]string
			for _, w := range list {
				rows = append(rows, []string{
					w.ID, w.Name, workerState(&w), strconv.Itoa(w.Sandboxes), base.Size(w.MemoryPromisedBytes), base.Size(w.MemoryPromisedMaxBytes),
					base.Size(w.MemoryBytes), strconv.Itoa(w.Cores), w.Version, w.Address, base.Age(w.SeenAt),
				})
			}
			return env.PrintTable([]string{"ID", "NAME", "STATE", "SANDBOXES", "PROMISED", "MAX", "MEMORY", "CORES", "VERSION", "ADDRESS", "SEEN"}, rows)
		},
	}
	local.Add(cmd, databaseSettings...)
	return cmd
}

// workerState returns the state of a worker, and whether it is being drained.
func workerState(w *client.Worker) string {
	if w.Draining {
		return w.State + ", draining"
	}
	return w.State
}

func newWorkersShowCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "show WORKER", Aliases: []string{"inspect"}, Short: "Show a worker, given by name or id", Args: cobra.ExactArgs(1), ValidArgsFunction: completeWorkers(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			w, err := c.Workers.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(w)
			}
			connected := ""
			if w.ConnectedAt != nil {
				connected = base.Age(*w.ConnectedAt)
			}
			return env.PrintFields([][2]string{
				{"ID", w.ID}, {"NAME", w.Name}, {"STATE", workerState(w)}, {"SANDBOXES", strconv.Itoa(w.Sandboxes)},
				{"MEMORY", base.Size(w.MemoryBytes)}, {"PROMISED", base.Size(w.MemoryPromisedBytes)}, {"MAX PROMISED", base.Size(w.MemoryPromisedMaxBytes)},
				{"CORES", strconv.Itoa(w.Cores)}, {"VERSION", w.Version}, {"ADDRESS", w.Address},
				{"CONNECTED FOR", connected}, {"SEEN", base.Age(w.SeenAt) + " ago"}, {"AGE", base.Age(w.CreatedAt)},
			})
		},
	}
}

// completeWorkers completes the name of a worker.
func completeWorkers(env *base.Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return env.Complete(cmd, func(c *client.Client) ([]cobra.Completion, error) {
			list, err := c.Workers.List().Collect(cmd.Context())
			names := make([]cobra.Completion, 0, len(list))
			for _, w := range list {
				names = append(names, w.Name)
			}
			return names, err
		})
	}
}

func newWorkersDrainCommand(env *base.Env) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use: "drain WORKER", Short: "Keep new sandboxes away from a worker, given by name or id", Args: cobra.ExactArgs(1), ValidArgsFunction: completeWorkers(env),
		Long: `Keep new sandboxes away from a worker, given by name or id. Its sandboxes stay until
they end or are paused; paused sandboxes are resumed on other workers. "modbox workers
undrain" lets it have new sandboxes again.`,
		Example: "  modbox workers drain --wait worker-1 && modbox workers rm worker-1",
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := setDraining(cmd.Context(), env, args[0], true)
			if err != nil || !wait {
				return err
			}
			return awaitEmpty(cmd.Context(), env, w.ID)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it has no sandboxes")
	return cmd
}

func newWorkersUndrainCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "undrain WORKER", Short: "Let a worker have new sandboxes again", Args: cobra.ExactArgs(1), ValidArgsFunction: completeWorkers(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := setDraining(cmd.Context(), env, args[0], false)
			return err
		},
	}
}

func setDraining(ctx context.Context, env *base.Env, ref string, on bool) (*client.Worker, error) {
	c, err := env.Client()
	if err != nil {
		return nil, err
	}
	return c.Workers.Update(ctx, ref, client.WorkerChanges{Draining: &on})
}

// drainPoll is the interval at which the sandboxes of a worker are counted.
const drainPoll = time.Second

// awaitEmpty waits until a worker has no sandboxes.
func awaitEmpty(ctx context.Context, env *base.Env, ref string) error {
	c, err := env.Client()
	if err != nil {
		return err
	}
	for left := 0; ; {
		w, err := c.Workers.Get(ctx, ref)
		if err != nil || w.Sandboxes == 0 {
			return err
		}
		if w.Sandboxes != left {
			left = w.Sandboxes
			fmt.Fprintf(env.Stderr, "%s has %d sandboxes\n", base.Clean(w.Name), left)
		}
		select {
		case <-time.After(drainPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func newWorkersRemoveCommand(env *base.Env) *cobra.Command {
	var local base.ChoiceFlags
	var force bool
	cmd := &cobra.Command{
		Use: "rm WORKER", Aliases: []string{"remove"}, Short: "Remove a worker for good, given by name or id", Args: cobra.ExactArgs(1), ValidArgsFunction: completeWorkers(env),
		Long: `Remove a worker for good, given by name or id: the server refuses it from then on. A
worker with sandboxes is removed only with --force: they end, or go back to their last
checkpoint; paused sandboxes are resumed on other workers. If the worker is away, what
runs on its machine goes on there until it connects again.

With --local, remove it from the database of the server on this machine, which must not
run, also if it has sandboxes: the next start of the server ends them or takes them
back. That is for a server that cannot start.`,
		Example: "  modbox workers rm worker-1\n  modbox workers rm --local worker-1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if local.Here() {
				return removeWorkerLocal(cmd.Context(), env, &local.LocalFlags, args[0])
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			return c.Workers.Delete(cmd.Context(), args[0], force)
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "remove it with its sandboxes")
	local.Add(cmd, databaseSettings...)
	return cmd
}
