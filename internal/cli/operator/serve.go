package operator

import (
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/server"
)

// NewServerCommand returns the command "modbox server".
func NewServerCommand(env *base.Env) *cobra.Command {
	var file string
	var accept bool
	var flags *config.Flags
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the server on this machine",
		Long: `Run the server. Settings come from flags, else from MODBOX_… variables, else from
the file given by --config, else from defaults; docs/configuration.md lists them.

The first start makes a token and writes it to the file "token" in the state
directory, and to the file "first-login" a code with which the first user may
choose a password (modbox login --code), until somebody has. SIGTERM and Ctrl-C
end the server after the requests under way; sandboxes keep running and are taken
over by the next start.

A start is refused when the database is missing, older than the files beside it, or
another server's: sandboxes that it does not know would end. --accept-database goes on
with it, once.

With --role control, workers run all sandboxes (modbox worker), and the server needs no
root. With --standby true it waits for its turn while another server works on the same state
directory and PostgreSQL database; docs/cluster.md describes both.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(config.Source{File: file, Environ: env.Environ, Flags: flags})
			if err != nil {
				return &base.ExitError{Code: base.ExitUsage, Err: err}
			}
			s, err := server.Start(cmd.Context(), server.Options{Config: cfg, AcceptDatabase: accept, Version: env.Version, Logger: server.NewLogger(cfg.Log, env.Stderr)})
			if err != nil && cfg.Standby && cmd.Context().Err() != nil {
				return nil // it was ended before its turn
			}
			if err != nil {
				return err
			}
			return s.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "YAML file with settings")
	cmd.Flags().BoolVar(&accept, "accept-database", false, "go on with a database that does not fit the files beside it; give it once")
	flags = config.AddFlags(cmd.Flags())
	return cmd
}
