package operator

import (
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/server"
)

// NewWorkerCommand returns the command "modbox worker".
func NewWorkerCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	var o server.WorkerOptions
	cmd := &cobra.Command{
		Use:   "worker --join HOST:PORT[,HOST:PORT] --token-file FILE --state-dir DIR --run-dir DIR",
		Short: "Run the sandboxes of a server (experimental)",
		Long: `Run the sandboxes of a server that has the setting worker.listen, which --join names.
This is experimental; docs/cluster.md says what it can do.

The server makes the token, in the file worker/token of its state directory: copy it. The
worker has directories of its own, and needs none of the server's. If the server has
standbys, --join names all of them, or a DNS name with the addresses of all.
SIGTERM and Ctrl-C end the worker; sandboxes keep running, and the next start takes them
over. With --drain-timeout the server moves them to other workers before the worker ends:
it pauses each sandbox with its memory, and resumes it there.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Config, err = local.Load(env); err != nil {
				return err
			}
			o.Version = env.Version
			o.Logger = server.NewLogger(o.Config.Log, env.Stderr)
			return server.RunWorker(cmd.Context(), o)
		},
	}
	cmd.Flags().StringSliceVar(&o.Join, "join", nil, "address of the server, worker.listen; several, separated by commas, of a server with standbys")
	cmd.Flags().StringVar(&o.TokenFile, "token-file", "", "file with the server's token for workers")
	cmd.Flags().StringVar(&o.ID, "id", "", "id of the worker, if the server has chosen it (a Pod for a sandbox)")
	cmd.Flags().StringVar(&o.Name, "name", "", "name of the worker; empty: the host name")
	cmd.Flags().StringVar(&o.HealthListen, "health-listen", "", "address for probes: /healthz, and /readyz while the server uses the connection")
	cmd.Flags().DurationVar(&o.DrainTimeout, "drain-timeout", 0, "time at the end to move sandboxes to other workers; 0: none moves")
	cmd.Flags().StringVar(&local.File, "config", "", "YAML file with settings; a worker uses few of them")
	local.Flags = config.AddFlags(cmd.Flags(), "state_dir", "run_dir", "cgroup_parent")
	for _, name := range []string{"join", "token-file", "state-dir", "run-dir"} {
		_ = cmd.MarkFlagRequired(name) // it exists
	}
	return cmd
}
