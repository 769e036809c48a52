package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/api"
)

// versions is what "modbox version --json" prints.
type versions struct {
	Client string          `json:"client"`
	Go     string          `json:"go"`
	Server *client.Version `json:"server"` // null when none answers
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: version, Go: runtime.Version()}
			c, err := a.client()
			if err != nil {
				return err
			}
			server, err := c.Version(cmd.Context())
			if err == nil {
				v.Server = server
			}
			if a.json {
				return a.printJSON(v)
			}
			fmt.Fprintf(a.stdout, "modbox %s (%s)\n", v.Client, v.Go)
			if v.Server == nil {
				_, err = fmt.Fprintf(a.stdout, "no server answers at %s\n", a.serverURL())
			} else {
				_, err = fmt.Fprintf(a.stdout, "server %s (%s) at %s\n", clean(v.Server.Version), clean(v.Server.Driver), a.serverURL())
			}
			return err
		},
	}
}

func (a *app) openapiCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "openapi",
		Short: "Print the OpenAPI document of /v1",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			doc, err := api.Document()
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(doc)
			return err
		},
	}
}
