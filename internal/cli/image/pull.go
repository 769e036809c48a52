package image

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/image/phase"
)

func newImagesPullCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Pull an image from a registry onto the server",
		Long: `Have the server ask the registry for the present digest of IMAGE, and fetch the missing layers.
Creating a sandbox pulls its image by itself; this does it before.`,
		Example: "  modbox images pull ghcr.io/org/app:v1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			began := time.Now()
			show := base.NewProgress(env.Stderr, args[0])
			img, err := c.Images.Pull(cmd.Context(), args[0], func(p client.ImageProgress) {
				show.Event(phase.Event{Phase: phase.Phase(p.Phase), Done: p.Done, Total: p.Total, Message: p.Message})
			})
			show.End()
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(img)
			}
			fmt.Fprintf(env.Stderr, "%s: %s, %s\n", img.Ref, base.Size(img.SizeBytes), time.Since(began).Round(100*time.Millisecond))
			return nil
		},
	}
}
