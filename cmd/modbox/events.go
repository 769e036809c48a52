package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
)

const (
	eventsPage = 100
	// eventsPause is how often events -f asks for new ones.
	eventsPause = time.Second
)

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:               "events SANDBOX",
		Short:             "Show what happened to a sandbox",
		Long:              "Show what happened to a sandbox, oldest first. With --json one object per line.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.events(cmd.Context(), c, args[0], follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the sandbox has ended")
	return cmd
}

func (a *app) events(ctx context.Context, c *client.Client, ref string, follow bool) error {
	var last int64
	for {
		// Asked before the events: those of an end that came since are then still read.
		sb, err := c.Get(ctx, ref)
		if err != nil {
			return err
		}
		for {
			list, err := c.Events(ctx, sb.ID, client.EventsOptions{After: last, Limit: eventsPage})
			if err != nil {
				return err
			}
			for _, e := range list {
				if err := a.printEvent(e); err != nil {
					return err
				}
				last = e.Seq
			}
			if len(list) < eventsPage {
				break
			}
		}
		if !follow || sb.State.Ended() {
			return nil
		}
		select {
		case <-ctx.Done():
			return &exitCodeError{code: exitInterrupt}
		case <-time.After(eventsPause):
		}
	}
}

func (a *app) printEvent(e client.Event) error {
	if a.json {
		return json.NewEncoder(a.stdout).Encode(e)
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %-10s  %s\n", e.Time.Local().Format(time.RFC3339), e.Type, clean(e.Message))
	return err
}
