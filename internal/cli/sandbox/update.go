package sandbox

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewUpdateCommand returns the command "modbox update".
func NewUpdateCommand(env *base.Env) *cobra.Command {
	var interval string
	cmd := &cobra.Command{
		Use: "update SANDBOX", Short: "Change settings of a sandbox",
		Long:    "Change settings of a sandbox. Settings without a flag stay as they are.",
		Example: "  modbox update my-agent --checkpoint-interval 10m",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var o client.UpdateOptions
			switch interval {
			case "":
				return base.UsageError("give a setting to change, such as --checkpoint-interval")
			case "off":
				o.CheckpointInterval = new(time.Duration)
			default:
				d, err := time.ParseDuration(interval)
				if err != nil {
					return base.UsageError("--checkpoint-interval: %q is no duration such as 10m, and not off", interval)
				}
				o.CheckpointInterval = &d
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			_, err = c.Update(cmd.Context(), args[0], o)
			return err
		},
	}
	cmd.Flags().StringVar(&interval, "checkpoint-interval", "", "save it automatically this often, 1m to 24h, or off")
	return cmd
}
