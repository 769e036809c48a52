package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

const (
	// minInterval bounds how often top asks the server about every sandbox.
	minInterval = 100 * time.Millisecond
	// clearScreen moves the cursor to the upper left corner and erases the rest of the screen.
	clearScreen = "\x1b[H\x1b[J"
)

// topRow is a running sandbox with its use of resources during an interval.
type topRow struct {
	statsRow
	// CPUPercent is the use of CPU in hundredths of a core.
	CPUPercent float64 `json:"cpu_percent"`
}

// NewTopCommand returns the command "modbox top".
func NewTopCommand(env *base.Env) *cobra.Command {
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "top [SANDBOX...]",
		Short: "Show which sandboxes use most, again and again",
		Long: `Show the use of CPU, memory and disk of running sandboxes, by default of all, with the
sandbox that uses most CPU first: 100% is a core. On a terminal the table is shown
anew after each interval, until Ctrl-C. Otherwise, and with --json, it is printed once,
for one interval.`,
		ValidArgsFunction: env.CompleteSandboxes(0),
		RunE: func(cmd *cobra.Command, refs []string) error {
			if interval < minInterval {
				return base.UsageError("--interval must be at least %v", minInterval)
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			out, ok := env.Stdout.(*os.File)
			again := ok && term.IsTerminal(int(out.Fd())) && !env.JSON
			return top(cmd.Context(), env, c, refs, interval, again)
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two measurements")
	return cmd
}

// top prints the use of each interval, or of one interval, until ctx ends. It asks for each sandbox, and does not
// follow the stream of events with stats: the stream has what the server measures of all sandboxes anyway, CPU and memory
// every 10 seconds. Disk and processes, and measurements at the user's interval, cost a question to each sandbox;
// the server answers one only when somebody looks.
func top(ctx context.Context, env *base.Env, c *client.Client, refs []string, interval time.Duration, again bool) error {
	before, err := collectStats(ctx, c, refs)
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
		var now []statsRow
		if now, err = collectStats(ctx, c, refs); err != nil {
			break
		}
		rows := between(before, now)
		if !again {
			return printTop(env, rows)
		}
		if err = printScreen(env, rows); err != nil {
			return err
		}
		before = now
	}
	if ctx.Err() != nil {
		return nil // Ctrl-C is how it ends
	}
	return err
}

// between returns the use between two measurements. A sandbox that is in the second only has used no
// CPU.
func between(before, now []statsRow) []topRow {
	old := map[string]*client.Stats{}
	for _, r := range before {
		old[r.ID] = r.Stats
	}
	rows := []topRow{}
	for _, r := range now {
		if r.Stats == nil {
			continue // it has ended
		}
		row := topRow{statsRow: r}
		if o := old[r.ID]; o != nil {
			if elapsed := r.Stats.Time.Sub(o.Time); elapsed > 0 && r.Stats.CPUNanos > o.CPUNanos {
				row.CPUPercent = 100 * float64(r.Stats.CPUNanos-o.CPUNanos) / float64(elapsed)
			}
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b topRow) int {
		return cmp.Or(cmp.Compare(b.CPUPercent, a.CPUPercent), cmp.Compare(b.Stats.MemoryBytes, a.Stats.MemoryBytes))
	})
	return rows
}

// printScreen prints the table over the previous table, as far as the terminal has lines for it.
func printScreen(env *base.Env, rows []topRow) error {
	if out, ok := env.Stdout.(*os.File); ok {
		if _, lines, err := term.GetSize(int(out.Fd())); err == nil && lines > 2 {
			rows = rows[:min(len(rows), lines-2)]
		}
	}
	var screen bytes.Buffer
	if err := printTop(&base.Env{Stdout: &screen}, rows); err != nil {
		return err
	}
	_, err := env.Stdout.Write(append([]byte(clearScreen), screen.Bytes()...))
	return err
}

func printTop(env *base.Env, rows []topRow) error {
	if env.JSON {
		return env.PrintJSON(rows)
	}
	var table [][]string
	for _, r := range rows {
		table = append(table, []string{
			r.Name, fmt.Sprintf("%.1f%%", r.CPUPercent), of(r.Stats.MemoryBytes, r.Stats.MemoryLimit), of(r.Stats.DiskBytes, r.Stats.DiskLimit),
			fmt.Sprint(r.Stats.Processes), r.ID,
		})
	}
	return env.PrintTable([]string{"NAME", "CPU", "MEMORY", "DISK", "PROCESSES", "ID"}, table)
}
