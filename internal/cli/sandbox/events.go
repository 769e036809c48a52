package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// eventsPause is the interval at which events -f asks for new events.
const eventsPause = time.Second

// NewEventsCommand returns the command "modbox events".
func NewEventsCommand(env *base.Env) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:               "events SANDBOX",
		Short:             "Show what happened to a sandbox",
		Long:              "Show what happened to a sandbox, oldest first. With --json one object per line.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			return events(cmd.Context(), env, c, args[0], follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the sandbox has ended")
	return cmd
}

func events(ctx context.Context, env *base.Env, c *client.Client, ref string, follow bool) error {
	var last int64
	for {
		// Get comes before the events, so that the last events of an ended sandbox are read.
		sb, err := c.Get(ctx, ref)
		if err != nil {
			return err
		}
		for e, err := range c.Events(sb.ID, client.EventsOptions{AfterSeq: last}).All(ctx) {
			if err != nil {
				return err
			}
			if err := printEvent(env, e); err != nil {
				return err
			}
			last = e.Seq
		}
		if !follow || sb.State.Ended() {
			return nil
		}
		select {
		case <-ctx.Done():
			return &base.ExitError{Code: base.ExitInterrupt}
		case <-time.After(eventsPause):
		}
	}
}

func printEvent(env *base.Env, e client.Event) error {
	if env.JSON {
		return json.NewEncoder(env.Stdout).Encode(e)
	}
	_, err := fmt.Fprintf(env.Stdout, "%s  %-10s  %s\n", e.Time.Local().Format(time.RFC3339), e.Type, base.Clean(e.Message))
	return err
}
