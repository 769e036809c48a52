package sandbox

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewUpdateCommand returns the command "modbox update".
func NewUpdateCommand(env *base.Env) *cobra.Command {
	var ttl, interval string
	cmd := &cobra.Command{
		Use: "update SANDBOX", Short: "Change settings of a sandbox",
		Long:    "Change settings of a sandbox. Settings without a flag stay as they are.",
		Example: "  modbox update my-agent --ttl 1h\n  modbox update my-agent --checkpoint-interval 10m",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var o client.UpdateOptions
			var err error
			if o.TTL, err = durationOrOff("ttl", ttl); err != nil {
				return err
			}
			if o.CheckpointInterval, err = durationOrOff("checkpoint-interval", interval); err != nil {
				return err
			}
			if o == (client.UpdateOptions{}) {
				return base.UsageError("give a setting to change, such as --ttl or --checkpoint-interval")
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			_, err = c.Sandboxes.Update(cmd.Context(), args[0], o)
			return err
		},
	}
	cmd.Flags().StringVar(&ttl, "ttl", "", "destroy it after this time from now on, 1m to 24h, or off: never")
	cmd.Flags().StringVar(&interval, "checkpoint-interval", "", "save it automatically this often, 1m to 24h, or off")
	return cmd
}

// durationOrOff returns the value of a flag that is a duration or off, which means 0; nil when the
// flag is not given.
func durationOrOff(flag, value string) (*time.Duration, error) {
	switch value {
	case "":
		return nil, nil
	case "off":
		return new(time.Duration), nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return nil, base.UsageError("--%s: %q is no duration such as 10m, and not off", flag, value)
	}
	return &d, nil
}
