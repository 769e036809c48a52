package image

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
)

func newImagesHistoryCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "history IMAGE",
		Short: "Show the layers of an image, the newest first",
		Long: `Show the steps in which an image was made, the newest first: the digest and size
of the compressed layer of each, or none for a step that changed no file, and the
instruction, as far as the image names it. BASE marks the layers of the image
below, if the workspace has it. IMAGE is an id or a reference.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			img, err := c.Images.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(img)
			}
			var rows [][]string
			for _, l := range slices.Backward(img.Layers) {
				digest, made, from := "none", "", ""
				if l.Digest != "" {
					digest = strings.TrimPrefix(l.Digest, "sha256:")
					digest = digest[:min(12, len(digest))]
				}
				if l.CreatedAt != nil {
					made = base.Age(*l.CreatedAt) + " ago"
				}
				if l.Base {
					from = img.Base
				}
				by := fmt.Sprintf("%q", l.CreatedBy)
				rows = append(rows, []string{digest, made, base.Size(l.SizeBytes), from, by[1 : len(by)-1]})
			}
			return env.PrintTable([]string{"LAYER", "MADE", "SIZE", "BASE", "CREATED BY"}, rows)
		},
	}
}
