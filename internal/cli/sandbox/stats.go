package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// statsRow is a sandbox with its use of resources.
type statsRow struct {
	ID    string        `json:"id"`
	Name  string        `json:"name"`
	Stats *client.Stats `json:"stats"`
}

// NewStatsCommand returns the command "modbox stats".
func NewStatsCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:               "stats [SANDBOX...]",
		Short:             "Show the resource use of sandboxes, by default of all running sandboxes",
		ValidArgsFunction: env.CompleteSandboxes(0),
		RunE: func(cmd *cobra.Command, refs []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			rows, err := collectStats(cmd.Context(), c, refs)
			if err != nil {
				return err
			}
			return printStats(env, rows)
		},
	}
}

func collectStats(ctx context.Context, c *client.Client, refs []string) ([]statsRow, error) {
	rows := []statsRow{}
	for _, ref := range refs {
		sb, err := c.Sandboxes.Get(ctx, ref)
		if err != nil {
			return nil, err
		}
		rows = append(rows, statsRow{ID: sb.ID, Name: sb.Name})
	}
	if len(refs) == 0 {
		for sb, err := range c.Sandboxes.List(client.ListOptions{States: []client.State{client.Running}}).All(ctx) {
			if err != nil {
				return nil, err
			}
			rows = append(rows, statsRow{ID: sb.ID, Name: sb.Name})
		}
	}
	for i := range rows {
		st, err := c.Sandboxes.Stats(ctx, rows[i].ID)
		if len(refs) == 0 && client.IsCode(err, client.Ended) {
			continue // it ended after it was listed
		}
		if err != nil {
			return nil, err
		}
		rows[i].Stats = st
	}
	return rows, nil
}

func printStats(env *base.Env, rows []statsRow) error {
	if env.JSON {
		return env.PrintJSON(rows)
	}
	var table [][]string
	for _, r := range rows {
		if r.Stats == nil {
			continue
		}
		cpu := time.Duration(r.Stats.CPUNanos).Round(10 * time.Millisecond).String()
		table = append(table, []string{r.Name, cpu, of(r.Stats.MemoryBytes, r.Stats.MemoryLimit),
			of(r.Stats.DiskBytes, r.Stats.DiskLimit), fmt.Sprint(r.Stats.Processes), base.Size(r.Stats.HostPSSBytes)})
	}
	return env.PrintTable([]string{"NAME", "CPU TIME", "MEMORY", "DISK", "PROCESSES", "ON HOST"}, table)
}

func of(used, limit int64) string {
	if used <= 0 {
		return "- / " + base.Size(limit)
	}
	return base.Size(used) + " / " + base.Size(limit)
}
