package sandbox

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewPortCommand returns the command "modbox port".
func NewPortCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "port",
		Short: "Share ports of sandboxes, each by a URL of its own",
		Long: `Share ports of sandboxes. Each published port has a URL of its own, which leads to
the port and to nothing else of the sandbox: not to its commands and files. Visitors of
a public port need the URL only; visitors of a private port need an API token or a
signed link as well.`,
	}
	cmd.AddCommand(newPortListCommand(env), newPortPublishCommand(env), newPortRemoveCommand(env), newPortRotateCommand(env), newPortLinkCommand(env))
	return cmd
}

func newPortListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "ls SANDBOX", Short: "List the ports that a sandbox publishes",
		Args: cobra.ExactArgs(1), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			ports, err := c.Sandboxes.Ports.List(args[0]).Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(ports)
			}
			var table [][]string
			for _, p := range ports {
				table = append(table, []string{strconv.Itoa(int(p.Port)), string(p.Access), p.URL})
			}
			return env.PrintTable([]string{"PORT", "ACCESS", "URL"}, table)
		},
	}
}

func newPortPublishCommand(env *base.Env) *cobra.Command {
	var private bool
	cmd := newOnePortCommand(env, "publish SANDBOX PORT", "Publish a port, or change who may use it, and print its URL",
		`Publish a port, or change who may use it, and print its URL. A change cuts off
everybody who uses the port.`, func(ctx context.Context, c *client.Client, ref string, port uint16) (any, string, error) {
			access := client.PortPublic
			if private {
				access = client.PortPrivate
			}
			p, err := c.Sandboxes.Ports.Publish(ctx, ref, port, access)
			if err != nil {
				return nil, "", err
			}
			return p, p.URL, nil
		})
	cmd.Flags().BoolVar(&private, "private", false, "visitors need an API token or a signed link as well")
	return cmd
}

func newPortRemoveCommand(env *base.Env) *cobra.Command {
	return newOnePortCommand(env, "rm SANDBOX PORT", "Unpublish a port",
		"Unpublish a port. Its URL and all links to it stop working at once, open connections included.",
		func(ctx context.Context, c *client.Client, ref string, port uint16) (any, string, error) {
			return map[string]uint16{"port": port}, strconv.Itoa(int(port)), c.Sandboxes.Ports.Unpublish(ctx, ref, port)
		})
}

func newPortRotateCommand(env *base.Env) *cobra.Command {
	return newOnePortCommand(env, "rotate SANDBOX PORT", "Give a published port another URL, and print it",
		"Give a published port another URL, and print it. The one before and all links to it\nstop working at once, open connections included.",
		func(ctx context.Context, c *client.Client, ref string, port uint16) (any, string, error) {
			p, err := c.Sandboxes.Ports.Rotate(ctx, ref, port)
			if err != nil {
				return nil, "", err
			}
			return p, p.URL, nil
		})
}

func newPortLinkCommand(env *base.Env) *cobra.Command {
	var expires time.Duration
	cmd := newOnePortCommand(env, "link SANDBOX PORT", "Make a signed link to a private port, and print it",
		"Make a signed link to a private port, and print it. Visitors may use the port by the\nlink until it expires, the token that made it is revoked, or the port is unpublished\nor gets another URL.",
		func(ctx context.Context, c *client.Client, ref string, port uint16) (any, string, error) {
			l, err := c.Sandboxes.Ports.CreateLink(ctx, ref, port, expires)
			if err != nil {
				return nil, "", err
			}
			return l, l.URL, nil
		})
	cmd.Flags().DurationVar(&expires, "expires", time.Hour, "how long it works, 1m to 168h")
	return cmd
}

// newOnePortCommand returns a command on a single port, which prints the line that do returns, or
// its value as JSON.
func newOnePortCommand(env *base.Env, use, short, long string, do func(ctx context.Context, c *client.Client, ref string, port uint16) (any, string, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ExactArgs(2), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := strconv.ParseUint(args[1], 10, 16)
			if err != nil || port == 0 {
				return base.UsageError("%q is no port, 1 to 65535", args[1])
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			value, line, err := do(cmd.Context(), c, args[0], uint16(port))
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(value)
			}
			_, err = fmt.Fprintln(env.Stdout, line)
			return err
		},
	}
}
