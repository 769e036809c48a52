package image

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewRuntimesCommand returns the command "modbox runtimes".
func NewRuntimesCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "runtimes",
		Aliases: []string{"runtime"},
		Short:   "List the built-in runtimes",
		Long: `List the built-in images that sandboxes can be made from. One that is not built is
built by the first sandbox that is made from it, or by "modbox images build NAME"; some
are pulled from a registry instead.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := c.Images.Runtimes().Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			var rows [][]string
			for _, r := range list {
				built := "not built"
				switch {
				case r.Built:
					built = base.Size(r.SizeBytes)
				case r.Missing != "":
					built = "missing"
				case r.Source != "":
					built = "not pulled"
				}
				rows = append(rows, []string{r.Name, built, strings.Join(r.Tags, ","), description(&r)})
			}
			return env.PrintTable([]string{"RUNTIME", "BUILT", "TAGS", "DESCRIPTION"}, rows)
		},
	}
}

// description returns the description of a runtime, and where it comes from if the server does not have it.
func description(r *client.Runtime) string {
	switch {
	case r.Built || r.Source == "":
		return r.Description
	case r.Missing != "":
		return r.Description + "; " + r.Missing
	}
	return r.Description + ": " + r.Source
}
