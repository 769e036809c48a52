package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/image"
)

func (a *app) imagesPullCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Pull an image from a registry onto the server",
		Long: `Have the server ask the registry what IMAGE means now, and fetch what is not there.
Creating a sandbox pulls its image by itself; this does it before.`,
		Example: "  modbox images pull ghcr.io/org/app:v1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			began := time.Now()
			show := newProgress(a, args[0])
			img, err := c.PullImage(cmd.Context(), args[0], func(p client.ImageProgress) {
				show.event(image.Event{Phase: image.Phase(p.Phase), Done: p.Done, Total: p.Total, Message: p.Message})
			})
			show.end()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(img)
			}
			fmt.Fprintf(a.stderr, "%s: %s, %s\n", img.Ref, size(img.SizeBytes), time.Since(began).Round(100*time.Millisecond))
			return nil
		},
	}
}
