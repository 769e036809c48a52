package account

import (
	"cmp"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

func newQuotaCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "quota", Short: "Show and set what a workspace may have"}
	cmd.AddCommand(newQuotaShowCommand(env), newQuotaSetCommand(env))
	return cmd
}

func newQuotaShowCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "show [ID]",
		Short: "Show the quota of a workspace and its use",
		Long:  "Show the limits of a workspace and their use: of the workspace with that id, or of the current workspace.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			id := ""
			if len(args) > 0 {
				id = args[0]
			} else {
				who, err := c.WhoAmI(cmd.Context())
				if err != nil {
					return err
				}
				id = who.WorkspaceID
			}
			q, err := c.Workspaces.Quota(cmd.Context(), id)
			if err != nil {
				return err
			}
			return printQuota(env, q)
		},
	}
}

// quotaFlags are the limits as flags.
type quotaFlags struct {
	quota             client.Quota
	sandboxes, perMin int64
	defaults          []string
}

func newQuotaSetCommand(env *base.Env) *cobra.Command {
	var f quotaFlags
	cmd := &cobra.Command{
		Use:   "set ID",
		Short: "Set limits of a workspace, as an administrator",
		Long: `Set limits of a workspace. Those that are not named stay as they are, 0 is no
limit, and --default takes a limit back to the server's default.`,
		Example: "  modbox workspace quota set 0190… --sandboxes 20 --memory 16Gi --sandbox-memory 2Gi\n  modbox workspace quota set 0190… --default memory",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			now, err := c.Workspaces.Quota(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			next, err := f.over(now.Set, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			q, err := c.Workspaces.SetQuota(cmd.Context(), args[0], next)
			if err != nil {
				return err
			}
			return printQuota(env, q)
		},
	}
	fs := cmd.Flags()
	fs.Int64Var(&f.sandboxes, "sandboxes", 0, "sandboxes that may run at the same time")
	fs.StringVar(&f.quota.Memory, "memory", "", "memory of those together, e.g. 16Gi")
	fs.StringVar(&f.quota.CPU, "cpu", "", "CPU of those together, e.g. 8")
	fs.StringVar(&f.quota.Disk, "disk", "", "disk of everything that the workspace keeps, e.g. 200Gi")
	fs.Int64Var(&f.perMin, "creates-per-minute", 0, "sandboxes that may be made in a minute")
	fs.StringVar(&f.quota.SandboxMemory, "sandbox-memory", "", "most memory of one sandbox, e.g. 4Gi")
	fs.StringVar(&f.quota.SandboxCPU, "sandbox-cpu", "", "most CPU of one sandbox, e.g. 2")
	fs.StringVar(&f.quota.SandboxDisk, "sandbox-disk", "", "most disk of one sandbox, e.g. 10Gi")
	fs.StringSliceVar(&f.defaults, "default", nil, "limit that is the server's default again, named as the flags are (repeatable)")
	return cmd
}

// over returns the quota with the given flags in place of its limits.
func (f *quotaFlags) over(set client.Quota, given func(string) bool) (client.Quota, error) {
	if given("sandboxes") {
		set.Sandboxes = &f.sandboxes
	}
	if given("creates-per-minute") {
		set.CreatesPerMinute = &f.perMin
	}
	sizes := map[string]struct{ to, from *string }{
		"memory": {&set.Memory, &f.quota.Memory}, "cpu": {&set.CPU, &f.quota.CPU}, "disk": {&set.Disk, &f.quota.Disk},
		"sandbox-memory": {&set.SandboxMemory, &f.quota.SandboxMemory}, "sandbox-cpu": {&set.SandboxCPU, &f.quota.SandboxCPU},
		"sandbox-disk": {&set.SandboxDisk, &f.quota.SandboxDisk},
	}
	for _, s := range sizes {
		*s.to = cmp.Or(*s.from, *s.to)
	}
	for _, name := range f.defaults {
		switch s, ok := sizes[name]; {
		case ok:
			*s.to = ""
		case name == "sandboxes":
			set.Sandboxes = nil
		case name == "creates-per-minute":
			set.CreatesPerMinute = nil
		default:
			return set, base.UsageError("--default: there is no limit %q", name)
		}
	}
	return set, nil
}

func printQuota(env *base.Env, q *client.QuotaReport) error {
	if env.JSON {
		return env.PrintJSON(q)
	}
	count := func(n *int64) string {
		if n == nil || *n == 0 {
			return "none"
		}
		return strconv.FormatInt(*n, 10)
	}
	size := func(s string) string {
		if s == "0" {
			return "none"
		}
		return s
	}
	from := func(set bool) string {
		if set {
			return "workspace"
		}
		return "server"
	}
	l, s, u := &q.Limits, &q.Set, &q.Used
	return env.PrintTable([]string{"LIMIT", "MOST", "USED", "SET BY"}, [][]string{
		{"sandboxes", count(l.Sandboxes), strconv.FormatInt(u.Sandboxes, 10), from(s.Sandboxes != nil)},
		{"memory", size(l.Memory), u.Memory, from(s.Memory != "")},
		{"cpu", size(l.CPU), u.CPU, from(s.CPU != "")},
		{"disk", size(l.Disk), u.Disk, from(s.Disk != "")},
		{"creates-per-minute", count(l.CreatesPerMinute), "", from(s.CreatesPerMinute != nil)},
		{"sandbox-memory", size(l.SandboxMemory), "", from(s.SandboxMemory != "")},
		{"sandbox-cpu", size(l.SandboxCPU), "", from(s.SandboxCPU != "")},
		{"sandbox-disk", size(l.SandboxDisk), "", from(s.SandboxDisk != "")},
	})
}
