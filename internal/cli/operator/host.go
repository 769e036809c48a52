package operator

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewHostCommand returns the command "modbox host".
func NewHostCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "host", Short: "Show the machine of a server, its capacity and its pool, for administrators", Args: cobra.NoArgs,
		Long: `Show the machine of a server: what is promised and used of its memory and disk, the boxes
of the pool with the creates that got one, the memory templates, and the work that waits.
With --json also images, and how long operations took since the start of the server.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			h, err := c.Host(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(h)
			}
			return env.PrintFields(hostFields(h))
		},
	}
}

func hostFields(h *client.Host) [][2]string {
	disk := hostResource(h.Disk.TotalBytes, h.Disk.UsedBytes, h.Disk.PromisedBytes, h.Disk.PromisedMaxBytes) + ", " + base.Size(h.Disk.FreeBytes) + " free"
	if h.DiskPressure {
		disk += ", being freed"
	}
	var states []string
	for _, s := range h.Sandboxes {
		if s.Count > 0 {
			states = append(states, fmt.Sprintf("%d %s", s.Count, s.State))
		}
	}
	fields := [][2]string{
		{"VERSION", h.Version}, {"DRIVER", strings.TrimSpace(h.Driver + " " + h.Platform)}, {"UP", base.Age(h.StartedAt)}, {"CORES", strconv.Itoa(h.Cores)},
		{"MEMORY", hostResource(h.Memory.TotalBytes, h.Memory.UsedBytes, h.Memory.PromisedBytes, h.Memory.PromisedMaxBytes)}, {"DISK", disk},
		{"SANDBOXES", strings.Join(states, ", ")}, {"POOL", "off"}, {"TEMPLATES", "off"},
	}
	if p := h.Pool; p != nil {
		fields[len(fields)-2][1] = fmt.Sprintf("%d boxes, %d for any image; %d of %d creates got one", p.Boxes, p.BlankBoxes, p.Hits, p.Hits+p.Misses)
	}
	if t := h.Templates; t != nil {
		fields[len(fields)-1][1] = fmt.Sprintf("%d, %s; %d of %d restores", t.Count, base.Size(t.SizeBytes), t.Hits, t.Hits+t.Misses+t.Failed)
	}
	w := h.Waiting
	return append(fields, [2]string{"UNDER WAY", fmt.Sprintf("%d waiting requests, %d builds, %d image tasks, %d executions", w.Requests, w.Builds, w.ImageTasks, w.Executions)})
}

// hostResource describes the use of a resource.
func hostResource(total, used, promised, most int64) string {
	text := fmt.Sprintf("%s, %s used, %s promised", base.Size(total), base.Size(used), base.Size(promised))
	if most > 0 {
		text += " of " + base.Size(most)
	}
	return text
}
