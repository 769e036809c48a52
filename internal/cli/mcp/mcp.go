package mcp

import (
	"context"
	"errors"
	"io"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/mcp"
)

// endTime bounds the end of the session's sandbox.
const endTime = 30 * time.Second

// NewMCPCommand returns the command "modbox mcp".
func NewMCPCommand(env *base.Env) *cobra.Command {
	o := mcp.Options{Version: env.Version}
	cmd := &cobra.Command{
		Use: "mcp", Short: "Give an AI application sandboxes, through MCP",
		Long: `Give an AI application, such as Claude or Cursor, sandboxes through the Model Context
Protocol. The application starts this command and speaks with it over standard input
and output; docs/mcp.md has its configuration. The session has a sandbox of its own,
which the first call makes and the end of the session destroys.`,
		Example: "  claude mcp add modbox -- modbox mcp\n  modbox mcp --image modbox/data --internet",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Lifetime < mcp.MinLifetime || o.Lifetime > mcp.MaxLifetime {
				return base.UsageError("--ttl must be %s to %s", mcp.MinLifetime, mcp.MaxLifetime)
			}
			return serve(cmd.Context(), env, o)
		},
	}
	cmd.Flags().StringVar(&o.Image, "image", "", "image of the session's sandbox (default modbox/data if the server has it, or else the server's default)")
	cmd.Flags().BoolVar(&o.Internet, "internet", false, "let the session's sandbox reach the internet")
	cmd.Flags().DurationVar(&o.Lifetime, "ttl", mcp.DefaultLifetime, "lifetime of the session's sandbox after its last use")
	return cmd
}

// serve serves a session over standard input and output until the client ends it.
func serve(ctx context.Context, env *base.Env, o mcp.Options) error {
	c, err := env.Client()
	if err != nil {
		return err
	}
	session := mcp.New(c, o)
	stop := context.AfterFunc(ctx, session.Cancel) // the library waits for calls under way
	defer stop()
	err = session.Server().Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(env.Stdin), Writer: writer{env.Stdout}})
	if ctx.Err() != nil {
		err = nil // a signal, not a failure
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	return errors.Join(err, session.Close(end))
}

// writer is the standard output, which stays open.
type writer struct{ io.Writer }

// Close implements [io.Closer].
func (writer) Close() error { return nil }
