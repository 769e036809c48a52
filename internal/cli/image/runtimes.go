package image

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
)

// NewRuntimesCommand returns the command "modbox runtimes".
func NewRuntimesCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "runtimes",
		Aliases: []string{"runtime"},
		Short:   "List the built-in runtimes",
		Long: `List the built-in images that sandboxes can be made from. One that is not built is
built by the first sandbox that is made from it, or by "modbox images build NAME".`,
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
				if r.Built {
					built = base.Size(r.SizeBytes)
				}
				rows = append(rows, []string{r.Name, built, strings.Join(r.Tags, ","), r.Description})
			}
			return env.PrintTable([]string{"RUNTIME", "BUILT", "TAGS", "DESCRIPTION"}, rows)
		},
	}
}
