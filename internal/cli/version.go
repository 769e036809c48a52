package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/cli/base"
)

// versions is the output of "modbox version --json".
type versions struct {
	Client string          `json:"client"`
	Commit string          `json:"commit"`
	Go     string          `json:"go"`
	Server *client.Version `json:"server"` // null when no server answers
}

func newVersionCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: env.Version, Commit: env.Commit, Go: runtime.Version()}
			c, err := env.Client()
			if err != nil {
				return err
			}
			server, err := c.Version(cmd.Context())
			if err == nil {
				v.Server = server
			}
			if env.JSON {
				return env.PrintJSON(v)
			}
			fmt.Fprintf(env.Stdout, "modbox %s (commit %s, %s)\n", v.Client, v.Commit, v.Go)
			if v.Server == nil {
				_, err = fmt.Fprintf(env.Stdout, "no server answers at %s\n", env.ServerURL())
			} else {
				_, err = fmt.Fprintf(env.Stdout, "server %s (%s) at %s\n", base.Clean(v.Server.Version), base.Clean(v.Server.Driver), env.ServerURL())
			}
			return err
		},
	}
}

func newOpenapiCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "openapi",
		Short: "Print the OpenAPI document of /v1",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			doc, err := api.Document()
			if err != nil {
				return err
			}
			_, err = env.Stdout.Write(doc)
			return err
		},
	}
}
