package operator

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/server"
)

// NewSecretsCommand returns the command "modbox secrets".
func NewSecretsCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Look after the keys that secrets are encrypted with",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newSecretsRotateCommand(env))
	return cmd
}

func newSecretsRotateCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Encrypt the secrets of the server on this machine with a new key",
		Long: `Encrypt the secrets of the server on this machine, which may be running, with a
new key. The previous key stays in the file until the next rotation; older keys that
nothing needs are removed. If the command is interrupted, run it again.

With keys in MODBOX_SECRET_KEY, put the new one in front of the old one, separated
by a comma, restart the server, rotate, and then take the old one away.`,
		Args: cobra.NoArgs,
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
			keys, err := server.OpenKeys(cfg)
			if err != nil {
				return err
			}
			var count int
			err = audit.RecordLocally(cmd.Context(), st.Audit, audit.Record{Action: "rotate-secrets"}, func(ctx context.Context) (err error) {
				count, err = keys.Rotate(ctx, st.Secrets)
				audit.FromContext(ctx).Detail("secrets", strconv.Itoa(count))
				return err
			})
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(map[string]int{"secrets": count})
			}
			_, err = fmt.Fprintf(env.Stdout, "%d secrets are encrypted with the new key\n", count)
			return err
		},
	}
	cmd.Flags().StringVar(&local.File, "config", "", "the server's YAML file with settings")
	local.Flags = config.AddFlags(cmd.Flags(), "state_dir", "secrets.key_file")
	return cmd
}
