package operator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/server"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
)

// NewMigrateCommand returns the command "modbox migrate".
func NewMigrateCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "Move the records of the server to another database", Args: cobra.NoArgs}
	cmd.AddCommand(newToPostgresCommand(env))
	return cmd
}

func newToPostgresCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	cmd := &cobra.Command{
		Use:   "sqlite-to-postgres",
		Short: "Copy the SQLite database of this machine's server into PostgreSQL",
		Long: `Copy the SQLite database of this machine's server, which must not run, into the empty
PostgreSQL database of the setting database.url. All tables are copied in one transaction,
and their rows counted; the SQLite file stays as it is. The next server with the setting
uses PostgreSQL, and adopts the sandboxes that run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := local.Load(env)
			if err != nil {
				return err
			}
			if cfg.Database.URL == "" {
				return base.UsageError("the setting database.url names no PostgreSQL database")
			}
			done, err := toPostgres(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if env.JSON {
				rows := map[string]int64{}
				for _, t := range done {
					rows[t.Table] = t.Rows
				}
				return env.PrintJSON(map[string]any{"rows": rows})
			}
			var total int64
			for _, t := range done {
				total += t.Rows
			}
			_, err = fmt.Fprintf(env.Stdout, "%d rows of %d tables were copied; the next server uses PostgreSQL\n", total, len(done))
			return err
		},
	}
	cmd.Flags().StringVar(&local.File, "config", "", "the server's YAML file with settings")
	local.Flags = config.AddFlags(cmd.Flags(), databaseSettings...)
	return cmd
}

// toPostgres copies the database while no server uses the state directory.
func toPostgres(ctx context.Context, cfg config.Config) (_ []database.Transferred, err error) {
	unlock, err := statedir.Lock(ctx, cfg.StateDir, cfg.StateDir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	from, err := store.OpenExisting(ctx, filepath.Join(cfg.StateDir, statedir.DatabaseFile))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := server.OpenStore(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return to.Transfer(ctx, from.DB)
}
