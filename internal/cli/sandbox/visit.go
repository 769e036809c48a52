package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// visited is a port with the URL for a visitor.
type visited struct {
	Port   uint16            `json:"port"`
	URL    string            `json:"url"`
	Access client.PortAccess `json:"access"`
}

// visit returns the work of a command that needs the URL of a port.
func visit(private *bool) func(context.Context, *client.Client, string, uint16) (any, string, error) {
	return func(ctx context.Context, c *client.Client, ref string, port uint16) (any, string, error) {
		var access client.PortAccess
		if *private {
			access = client.PortPrivate
		}
		url, access, err := c.Sandboxes.Ports.Visit(ctx, ref, port, access)
		return visited{port, url, access}, url, err
	}
}

const visitLong = ` It publishes the port if it is not published yet: for everybody who knows the
URL, or with --private for visitors with an API token or a link. The URL of a private
port is a link, which is valid for an hour. "modbox port" has more about ports.`

// NewURLCommand returns the command "modbox url".
func NewURLCommand(env *base.Env) *cobra.Command {
	var private bool
	cmd := newOnePortCommand(env, "url SANDBOX PORT", "Print a URL for a port of a sandbox", "Print a URL for a port of a sandbox."+visitLong, visit(&private))
	cmd.Example = "  modbox url my-agent 3000\n  curl $(modbox url my-agent 8080)"
	cmd.Flags().BoolVar(&private, "private", false, "publish the port for visitors with an API token or a link only")
	return cmd
}

// NewOpenCommand returns the command "modbox open".
func NewOpenCommand(env *base.Env) *cobra.Command {
	var private bool
	find := visit(&private)
	cmd := newOnePortCommand(env, "open SANDBOX PORT", "Open a port of a sandbox in your browser", "Open a port of a sandbox in your browser, and print its URL."+visitLong+`

The browser is the program of the variable BROWSER, or else xdg-open.`,
		func(ctx context.Context, c *client.Client, ref string, port uint16) (any, string, error) {
			if !env.HasBrowser() {
				return nil, "", base.UsageError("this machine shows no browser: neither DISPLAY, WAYLAND_DISPLAY nor BROWSER is set; use \"modbox url\"")
			}
			value, url, err := find(ctx, c, ref, port)
			if err == nil {
				if err = env.Browse(url); err != nil {
					err = errors.Join(fmt.Errorf("open a browser: %w", err), fmt.Errorf("the URL is %s", url))
				}
			}
			return value, url, err
		})
	cmd.Example = "  modbox open my-agent 5173"
	cmd.Flags().BoolVar(&private, "private", false, "publish the port for visitors with an API token or a link only")
	return cmd
}
