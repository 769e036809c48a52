// Package webhook has the commands about webhooks and their deliveries.
package webhook

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewCommand returns the command "modbox webhook".
func NewCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "webhook", Aliases: []string{"webhooks"}, Short: "Send events to receivers of yours, signed",
		Long: `Send the events of the workspace to receivers, which are HTTP servers of yours. Requests
are signed, and repeated until the receiver accepts them; docs/webhooks.md has the details.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newCreateCommand(env), newListCommand(env), newShowCommand(env), newUpdateCommand(env), newRotateCommand(env), newRemoveCommand(env),
		newPingCommand(env), newDeliveriesCommand(env), newRedeliverCommand(env))
	return cmd
}

const typesUsage = "send only events of these types, such as created,failed"

func newCreateCommand(env *base.Env) *cobra.Command {
	var o client.WebhookOptions
	var disabled bool
	cmd := &cobra.Command{
		Use: "create URL", Short: "Add a webhook, and print its id and secret",
		Long: `Add a webhook, and print its id and the secret that signs its deliveries. No other
command prints the secret. The webhook gets the events from now on.`,
		Example: "  modbox webhook create https://example.com/modbox --type created,failed,destroyed",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			enabled := !disabled
			o.URL, o.Enabled = args[0], &enabled
			made, err := c.Webhooks.Create(cmd.Context(), o)
			if err != nil {
				return err
			}
			return printSecret(env, made)
		},
	}
	cmd.Flags().StringSliceVar(&o.Types, "type", nil, typesUsage+" (default: all)")
	cmd.Flags().StringVar(&o.Description, "description", "", "description of its purpose")
	cmd.Flags().BoolVar(&disabled, "disabled", false, "send nothing yet")
	return cmd
}

func printSecret(env *base.Env, made *client.NewWebhook) error {
	if env.JSON {
		return env.PrintJSON(made)
	}
	return env.PrintFields([][2]string{{"ID", made.ID}, {"SECRET", made.Secret}})
}

func newListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List webhooks, without their secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := c.Webhooks.List().Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			var rows [][]string
			for _, w := range list {
				rows = append(rows, []string{w.ID, w.URL, types(&w), state(&w), strconv.FormatInt(w.Pending, 10), base.Age(w.CreatedAt)})
			}
			return env.PrintTable([]string{"ID", "URL", "TYPES", "STATE", "PENDING", "AGE"}, rows)
		},
	}
}

func types(w *client.Webhook) string {
	if len(w.Types) == 0 {
		return "all"
	}
	return strings.Join(w.Types, ",")
}

func state(w *client.Webhook) string {
	switch {
	case !w.Enabled:
		return "disabled"
	case w.FailingSince != nil:
		return "failing"
	}
	return "enabled"
}

func newShowCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "show WEBHOOK", Short: "Show a webhook", Args: cobra.ExactArgs(1), ValidArgsFunction: complete(env, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			w, err := c.Webhooks.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return printWebhook(env, w)
		},
	}
}

func printWebhook(env *base.Env, w *client.Webhook) error {
	if env.JSON {
		return env.PrintJSON(w)
	}
	failing := ""
	if w.FailingSince != nil {
		failing = base.Age(*w.FailingSince) + " ago"
	}
	return env.PrintFields([][2]string{
		{"ID", w.ID}, {"URL", w.URL}, {"DESCRIPTION", w.Description}, {"TYPES", types(w)}, {"STATE", state(w)}, {"DISABLED BECAUSE", w.DisabledReason},
		{"FAILING SINCE", failing}, {"PENDING", strconv.FormatInt(w.Pending, 10)}, {"DROPPED", strconv.FormatInt(w.Dropped, 10)},
		{"AGE", base.Age(w.CreatedAt)}, {"CHANGED", base.Age(w.UpdatedAt) + " ago"},
	})
}

func newUpdateCommand(env *base.Env) *cobra.Command {
	var receiver, description string
	var types []string
	var enable, disable bool
	cmd := &cobra.Command{
		Use: "update WEBHOOK", Short: "Change, disable or enable a webhook",
		Long: `Change a webhook; other settings stay. --disable cancels the deliveries that wait.
--enable begins with the next event.`,
		Example: "  modbox webhook update 01a212b2-420f-73a8-b579-1f23b4267b01 --type '' --enable",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: complete(env, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var changes client.WebhookChanges
			given := cmd.Flags().Changed
			if given("receiver") {
				changes.URL = &receiver
			}
			if given("description") {
				changes.Description = &description
			}
			if given("type") {
				list := slices.DeleteFunc(append([]string{}, types...), func(name string) bool { return name == "" })
				changes.Types = &list
			}
			if enable || disable {
				changes.Enabled = &enable
			}
			if changes == (client.WebhookChanges{}) {
				return base.UsageError("say what to change: --receiver, --description, --type, --enable or --disable")
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			w, err := c.Webhooks.Update(cmd.Context(), args[0], changes)
			if err != nil {
				return err
			}
			return printWebhook(env, w)
		},
	}
	cmd.Flags().StringVar(&receiver, "receiver", "", "the `URL` to send events to")
	cmd.Flags().StringSliceVar(&types, "type", nil, typesUsage+"; '' for all")
	cmd.Flags().StringVar(&description, "description", "", "description of its purpose")
	cmd.Flags().BoolVar(&enable, "enable", false, "send events")
	cmd.Flags().BoolVar(&disable, "disable", false, "send no events")
	cmd.MarkFlagsMutuallyExclusive("enable", "disable")
	return cmd
}

func newRotateCommand(env *base.Env) *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use: "rotate WEBHOOK", Short: "Give a webhook another secret, and print it",
		Args: cobra.ExactArgs(1), ValidArgsFunction: complete(env, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			made, err := c.Webhooks.Rotate(cmd.Context(), args[0], overlap)
			if err != nil {
				return err
			}
			return printSecret(env, made)
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "`time` for which the secret before signs as well, at most 24h")
	return cmd
}

func newRemoveCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "rm WEBHOOK...", Short: "Delete webhooks with their deliveries", Args: cobra.MinimumNArgs(1), ValidArgsFunction: complete(env, 0),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := c.Webhooks.Delete(cmd.Context(), id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return nil
		},
	}
}

// complete completes ids of webhooks for the first n arguments, or for all when n is 0.
func complete(env *base.Env, n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return env.Complete(cmd, func(c *client.Client) (list []cobra.Completion, err error) {
			hooks, err := c.Webhooks.List().Collect(cmd.Context())
			for _, w := range hooks {
				if !slices.Contains(args, w.ID) {
					list = append(list, cobra.CompletionWithDesc(w.ID, w.URL))
				}
			}
			return list, err
		})
	}
}
