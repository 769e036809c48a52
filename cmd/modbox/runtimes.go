package main

import (
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) runtimesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "runtimes",
		Aliases: []string{"runtime"},
		Short:   "List the built-in runtimes",
		Long: `List the built-in images that sandboxes can be made from. One that is not built is
built by the first sandbox that is made from it, or by "modbox images build NAME".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.Runtimes(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			var rows [][]string
			for _, r := range list {
				built := "not built"
				if r.Built {
					built = size(r.SizeBytes)
				}
				rows = append(rows, []string{r.Name, built, strings.Join(r.Tags, ","), r.Description})
			}
			return a.printTable([]string{"RUNTIME", "BUILT", "TAGS", "DESCRIPTION"}, rows)
		},
	}
}
