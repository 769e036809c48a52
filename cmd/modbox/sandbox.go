package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/modbox/modbox/client"
)

// waitForQuotaFlag is the flag of what may wait for room.
func waitForQuotaFlag(fs *pflag.FlagSet, wait *time.Duration) {
	fs.DurationVar(wait, "wait-for-quota", 0, "wait for room in the workspace's quota, up to 10m (default: do not wait)")
}

// createFlags are the flags of run and create.
type createFlags struct {
	name, memory, cpu, disk string
	snapshot, catalogue     string
	env, labels             []string
	dependencies, packages  []string
	urlAccess               string
	ttl, idle, pausedFor    time.Duration
	waitForQuota            time.Duration
	onIdle                  string
	replace, network        bool
	ports                   []uint
}

func (f *createFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", "", "your own name for it (default: made up)")
	fs.StringVar(&f.snapshot, "snapshot", "", "make it from this snapshot instead of an image")
	fs.StringVar(&f.catalogue, "catalogue", "", "make it from this image of the workspace's catalogue, by name or id")
	fs.StringVar(&f.memory, "memory", "", "memory, e.g. 512Mi (default: the image's)")
	fs.StringVar(&f.cpu, "cpu", "", "CPU, e.g. 500m for half a core, or 2")
	fs.StringVar(&f.disk, "disk", "", "disk it may fill, e.g. 2Gi")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment variable NAME=VALUE; NAME alone takes yours (repeatable)")
	fs.StringArrayVarP(&f.labels, "label", "l", nil, "label KEY=VALUE (repeatable)")
	fs.StringArrayVar(&f.dependencies, "dependency", nil, "Debian package to have in it: NAME, NAME=VERSION or NAME=VERSION* (repeatable)")
	fs.StringArrayVar(&f.packages, "package", nil, "npm package to have in it, installed globally: NAME or NAME@VERSION (repeatable)")
	fs.DurationVar(&f.ttl, "ttl", 0, "destroy it after this time, 1m to 24h (default: the image's)")
	fs.DurationVar(&f.idle, "idle", 0, "what --on-idle says happens when nothing used it for this time, from 10s (default: never)")
	fs.StringVar(&f.onIdle, "on-idle", "", "destroy or pause (default: destroy)")
	fs.DurationVar(&f.pausedFor, "paused-timeout", 0, "destroy it when it was paused for this time, from 10s (default: never)")
	fs.BoolVar(&f.network, "network", false, "give it access to the internet")
	fs.UintSliceVarP(&f.ports, "port", "p", nil, "publish this port; its URL leads to the first (repeatable)")
	fs.StringVar(&f.urlAccess, "url-access", "", "credential for the management routes on its URL: key (its SANDBOX_API_KEY or an API token) or open (default: key)")
	fs.Lookup("port").DefValue = "" // else help says "default []"
	waitForQuotaFlag(fs, &f.waitForQuota)
	fs.BoolVar(&f.replace, "replace", false, "destroy a live sandbox of the same name first")
}

func (f *createFlags) options(a *app, image string) (client.CreateOptions, error) {
	env, err := pairs(f.env, a.getenv)
	if err != nil {
		return client.CreateOptions{}, usageError("--env: %w", err)
	}
	labels, err := pairs(f.labels, nil)
	if err != nil {
		return client.CreateOptions{}, usageError("--label: %w", err)
	}
	network := client.Network{Enabled: f.network}
	for _, port := range f.ports {
		if port < 1 || port > 65535 {
			return client.CreateOptions{}, usageError("--port: %d is no port, 1 to 65535", port)
		}
		network.Ports = append(network.Ports, uint16(port))
	}
	return client.CreateOptions{
		Network: network,
		Name:    f.name, Image: image, Snapshot: f.snapshot, Env: env, Labels: labels, TTL: f.ttl, Replace: f.replace,
		Timeouts:     client.Timeouts{IdleSeconds: wholeSeconds(f.idle), OnIdle: f.onIdle, PausedSeconds: wholeSeconds(f.pausedFor)},
		Dependencies: f.dependencies, Packages: f.packages,
		Resources:    client.Resources{Memory: f.memory, CPU: f.cpu, Disk: f.disk},
		WaitForQuota: f.waitForQuota, URLAccess: client.URLAccess(f.urlAccess),
	}, nil
}

// find puts in what only the server knows.
func (f *createFlags) find(ctx context.Context, c *client.Client, o *client.CreateOptions) (err error) {
	if f.catalogue != "" {
		o.ImageID, err = catalogueID(ctx, c, f.catalogue)
	}
	return err
}

// wholeSeconds rounds up, so that a short time does not become none.
func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// pairs splits KEY=VALUE words; lookup, when given, has the values of words without "=".
func pairs(words []string, lookup func(string) string) (map[string]string, error) {
	m := map[string]string{}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if key == "" || !ok && lookup == nil {
			return nil, fmt.Errorf("%q is not KEY=VALUE", w)
		}
		if !ok {
			value = lookup(key)
		}
		m[key] = value
	}
	return m, nil
}

// ended returns an error that says why a sandbox is no longer there.
func ended(sb *client.Sandbox) error {
	cause := string(sb.State)
	if sb.Cause != nil {
		cause = sb.Cause.Message
	}
	return fmt.Errorf("sandbox %s has ended: %s", sb.Name, cause)
}

func (a *app) createCommand() *cobra.Command {
	var f createFlags
	var noWait bool
	cmd := &cobra.Command{
		Use:     "create [IMAGE]",
		Short:   "Make a sandbox and print its id",
		Long:    "Make a sandbox, wait until it runs, and print its id. Without IMAGE the default\nimage of the workspace is used, else the server's.",
		Example: "  modbox create modbox/code-exec --name my-agent --ttl 1h --memory 1Gi -e API_KEY=secret",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			image := ""
			if len(args) > 0 {
				image = args[0]
			}
			o, err := f.options(a, image)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			if image != "" && f.catalogue != "" {
				return usageError("give either IMAGE or --catalogue")
			}
			if err := f.find(cmd.Context(), c, &o); err != nil {
				return err
			}
			create := c.Create
			if !noWait {
				create = func(ctx context.Context, o client.CreateOptions) (*client.Sandbox, error) { return a.start(ctx, c, o) }
			}
			sb, err := create(cmd.Context(), o)
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(sb)
			} else {
				_, err = fmt.Fprintln(a.stdout, sb.ID)
			}
			if sb.State.Ended() {
				err = errors.Join(err, ended(sb))
			}
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until it runs")
	return cmd
}

func (a *app) listCommand() *cobra.Command {
	var all, quiet bool
	var labels, states []string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list", "ps"},
		Short:   "List sandboxes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sel, err := pairs(labels, nil)
			if err != nil {
				return usageError("--label: %w", err)
			}
			o := client.ListOptions{Labels: sel}
			for _, s := range states {
				o.States = append(o.States, client.State(s))
			}
			if all {
				o.States = []client.State{client.Provisioning, client.Running, client.Pausing, client.Paused, client.Resuming, client.Destroying, client.Destroyed, client.Failed}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			sandboxes := []client.Sandbox{}
			for sb, err := range c.All(cmd.Context(), o) {
				if err != nil {
					return err
				}
				sandboxes = append(sandboxes, sb)
			}
			return a.printSandboxes(sandboxes, quiet)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "only ids")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "only with this label KEY=VALUE (repeatable)")
	cmd.Flags().StringSliceVar(&states, "state", nil, "only in these states, e.g. running,failed")
	return cmd
}

func (a *app) printSandboxes(list []client.Sandbox, quiet bool) error {
	switch {
	case a.json:
		return a.printJSON(list)
	case quiet:
		for _, sb := range list {
			fmt.Fprintln(a.stdout, sb.ID)
		}
		return nil
	case len(list) == 0:
		_, err := fmt.Fprintln(a.stderr, "No sandboxes.")
		return err
	}
	var rows [][]string
	for _, sb := range list {
		state, left := string(sb.State), until(sb.Deadline)
		if sb.State.Ended() {
			left = ""
			if sb.Cause != nil {
				state += " (" + sb.Cause.Code + ")"
			}
		}
		rows = append(rows, []string{sb.Name, sb.ID, state, sb.Image, sb.Resources.Memory, sb.Resources.CPU, age(sb.CreatedAt), left})
	}
	return a.printTable([]string{"NAME", "ID", "STATE", "IMAGE", "MEMORY", "CPU", "AGE", "ENDS IN"}, rows)
}

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "get SANDBOX",
		Short:             "Show a sandbox, named by its id or name",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			sb, err := c.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printSandbox(sb)
		},
	}
}

func (a *app) printSandbox(sb *client.Sandbox) error {
	if a.json {
		return a.printJSON(sb)
	}
	fields := [][2]string{
		{"NAME", sb.Name}, {"ID", sb.ID}, {"STATE", string(sb.State)}, {"URL", sb.URL}, {"IMAGE", sb.Image},
		{"MEMORY", sb.Resources.Memory}, {"CPU", sb.Resources.CPU}, {"DISK", sb.Resources.Disk},
		{"CREATED", sb.CreatedAt.Format(time.RFC3339)}, {"CREATED BY", sb.CreatedBy},
	}
	for k, v := range sb.Labels {
		fields = append(fields, [2]string{"LABEL", k + "=" + v})
	}
	if sb.Deadline != nil {
		fields = append(fields, [2]string{"DEADLINE", sb.Deadline.Format(time.RFC3339)})
	}
	if sb.LastActivity != nil && !sb.State.Ended() {
		fields = append(fields, [2]string{"LAST USED", sb.LastActivity.Format(time.RFC3339)})
	}
	if sb.IdleDeadline != nil {
		fields = append(fields, [2]string{"IDLE AT", sb.IdleDeadline.Format(time.RFC3339)})
	}
	if sb.MemoryLost != "" {
		fields = append(fields, [2]string{"MEMORY LOST", clean(sb.MemoryLost)})
	}
	if sb.PausedAt != nil {
		fields = append(fields, [2]string{"PAUSED", sb.PausedAt.Format(time.RFC3339)})
	}
	if sb.Parent != "" {
		fields = append(fields, [2]string{"FORKED FROM", sb.Parent})
	}
	if sb.EndedAt != nil {
		fields = append(fields, [2]string{"ENDED", sb.EndedAt.Format(time.RFC3339)})
	}
	if sb.Cause != nil {
		fields = append(fields, [2]string{"CAUSE", sb.Cause.Code + ": " + sb.Cause.Message})
	}
	return a.printFields(fields)
}

func (a *app) waitCommand() *cobra.Command {
	var state string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:               "wait SANDBOX",
		Short:             "Wait until a sandbox runs, or is in another state",
		Long:              "Wait until a sandbox is in a state. Fails when it ends in another one, or when the time is over.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			sb, err := c.Wait(ctx, args[0], client.State(state))
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				return fmt.Errorf("sandbox %s is not %s after %v", args[0], state, timeout)
			case err != nil:
				return err
			}
			if a.json {
				err = a.printJSON(sb)
			}
			if string(sb.State) != state {
				err = errors.Join(err, ended(sb))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&state, "state", string(client.Running), "state to wait for")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait")
	return cmd
}
