package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/server"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store/workerrows"
	"github.com/modbox/modbox/internal/worker"
)

// NewWorkersCommand returns the command "modbox workers".
func NewWorkersCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "workers", Short: "Workers of the server on this machine", Args: cobra.NoArgs}
	cmd.AddCommand(newWorkersListCommand(env), newWorkersRemoveCommand(env))
	return cmd
}

func newWorkersListCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the workers that have joined", Args: cobra.NoArgs,
		Long: `List the workers that have joined the server on this machine, which may be running, as its
database has them. SEEN is the beginning or end of a worker's last connection.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := local.Load(env)
			if err != nil {
				return err
			}
			st, err := server.OpenExistingStore(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, st.Close()) }()
			list, err := workerrows.New(st.DB).List(cmd.Context())
			if err != nil {
				return err
			}
			return printWorkers(env, list)
		},
	}
	addDatabaseFlags(cmd, &local)
	return cmd
}

// printWorkers prints workers that were not removed.
func printWorkers(env *base.Env, list []worker.Record) error {
	shown, rows := []map[string]any{}, [][]string{}
	for _, w := range list {
		if w.Status == worker.Gone {
			continue
		}
		shown = append(shown, map[string]any{
			"id": w.ID, "name": w.Name, "status": w.Status, "address": w.Address, "version": w.Version, "memory_bytes": w.MemoryBytes, "cores": w.Cores,
			"joined_at": w.JoinedAt, "seen_at": w.SeenAt,
		})
		rows = append(rows, []string{w.ID, w.Name, string(w.Status), w.Address, base.Size(w.MemoryBytes), fmt.Sprint(w.Cores), w.Version, base.Age(w.SeenAt)})
	}
	if env.JSON {
		return env.PrintJSON(shown)
	}
	return env.PrintTable([]string{"ID", "NAME", "STATUS", "ADDRESS", "MEMORY", "CORES", "VERSION", "SEEN"}, rows)
}

func newWorkersRemoveCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	cmd := &cobra.Command{
		Use: "rm NAME|ID", Aliases: []string{"remove"}, Short: "Remove a worker that does not come back", Args: cobra.ExactArgs(1),
		Long: `Remove a worker that does not come back from the server on this machine, which must not run.
The next start of the server ends the sandboxes that ran on the worker, or takes them back
to their last checkpoint; paused sandboxes are resumed on other workers. If the worker
still runs, its sandboxes go on there until they are ended on its machine.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := local.Load(env)
			if err != nil {
				return err
			}
			w, err := removeWorker(cmd.Context(), cfg, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(env.Stdout, "%s was removed\n", w.Name)
			return err
		},
	}
	addDatabaseFlags(cmd, &local)
	return cmd
}

// removeWorker records that a worker is gone, while no server uses the state directory. It returns the worker as it was.
func removeWorker(ctx context.Context, cfg config.Config, ref string) (w worker.Record, err error) {
	unlock, err := statedir.Lock(ctx, cfg.StateDir, cfg.StateDir)
	if err != nil {
		return w, err
	}
	defer unlock()
	st, err := server.OpenExistingStore(ctx, cfg)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	workers := workerrows.New(st.DB)
	list, err := workers.List(ctx)
	if err != nil {
		return w, err
	}
	for _, w := range list {
		if w.Status != worker.Gone && (w.Name == ref || w.ID == ref) {
			return w, workers.Save(ctx, w.Removed())
		}
	}
	return w, sandbox.Errorf(sandbox.NotFound, "no worker has the name or id %.100q; \"modbox workers ls\" lists them", ref)
}

func addDatabaseFlags(cmd *cobra.Command, local *base.LocalFlags) {
	cmd.Flags().StringVar(&local.File, "config", "", "the server's YAML file with settings")
	local.Flags = config.AddFlags(cmd.Flags(), "state_dir", "database.url", "database.password_file")
}
