package webhook

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

func newDeliveriesCommand(env *base.Env) *cobra.Command {
	var state string
	var limit int
	cmd := &cobra.Command{
		Use: "deliveries WEBHOOK", Short: "List the deliveries of a webhook, the newest first",
		Long: `List the deliveries of a webhook, the newest first. --json has also the beginning of
the answers of the receiver.`,
		Example: "  modbox webhook deliveries 01a212b2-420f-73a8-b579-1f23b4267b01 --state failed",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: complete(env, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, more, err := base.First(cmd.Context(), c.Webhooks.Deliveries(args[0], state), limit)
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			var rows [][]string
			for _, d := range list {
				rows = append(rows, []string{d.ID, d.Type, d.SandboxID, d.State, strconv.FormatInt(d.Attempts, 10), base.Age(d.CreatedAt), outcome(&d)})
			}
			err = env.PrintTable([]string{"ID", "TYPE", "SANDBOX", "STATE", "ATTEMPTS", "AGE", "LAST ATTEMPT"}, rows)
			if err == nil && more {
				_, err = fmt.Fprintf(env.Stderr, "There are more than %d; --limit 0 shows all.\n", limit)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "only deliveries that are pending, delivered, failed or cancelled")
	cmd.Flags().IntVar(&limit, "limit", 50, "maximum number of deliveries; 0 for all")
	return cmd
}

// outcome describes the last attempt of a delivery.
func outcome(d *client.WebhookDelivery) string {
	switch {
	case d.AttemptedAt == nil:
		return d.Error
	case d.Error != "":
		return d.Error
	}
	return fmt.Sprintf("%d in %d ms", d.Status, d.DurationMS)
}

func newPingCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "ping WEBHOOK", Short: "Send a test, and print what the receiver answers",
		Long: `Send a delivery of type ping, wait for its first attempt, and print how it ended. The
exit code is 1 when the receiver did not accept it.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: complete(env, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			d, err := c.Webhooks.Test(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return wait(cmd, env, c, d)
		},
	}
}

func newRedeliverCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "redeliver WEBHOOK DELIVERY", Short: "Send a delivery again, and print what the receiver answers",
		Long: `Send a delivery again with the same id, wait for the attempt, and print how it ended.
The exit code is 1 when the receiver did not accept it.`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: complete(env, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			d, err := c.Webhooks.Redeliver(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return wait(cmd, env, c, d)
		},
	}
}

// wait waits for an attempt of a delivery and prints how it ended.
func wait(cmd *cobra.Command, env *base.Env, c *client.Client, d *client.WebhookDelivery) error {
	d, err := c.Webhooks.Delivery(cmd.Context(), d.WebhookID, d.ID, time.Minute)
	if err != nil {
		return err
	}
	if env.JSON {
		if err := env.PrintJSON(d); err != nil {
			return err
		}
	} else if d.State == "delivered" {
		_, err := fmt.Fprintf(env.Stdout, "%s delivered: %s\n", d.ID, outcome(d))
		return err
	}
	switch {
	case d.State == "delivered":
		return nil
	case d.AttemptedAt == nil || d.Attempts == 0:
		return fmt.Errorf("delivery %s waits for an attempt; \"modbox webhook deliveries %s\" shows it", d.ID, d.WebhookID)
	}
	return fmt.Errorf("delivery %s is %s: %s", d.ID, d.State, outcome(d))
}
