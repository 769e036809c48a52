package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/cli/image"
)

// createFlags are the flags of run and create.
type createFlags struct {
	name, memory, cpu, disk string
	snapshot, catalogue     string
	env, labels             []string
	apt, npm, pip           []string
	urlAccess               string
	ttl, idle, pausedFor    time.Duration
	checkpoints             time.Duration
	waitForQuota            time.Duration
	onIdle                  string
	replace, network        bool
	ports                   []uint
	allowOut, denyOut       []string
	requestHost             string
	httpsPorts              []uint
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
	fs.StringArrayVar(&f.apt, "apt", nil, "Debian package to have in it: NAME, NAME=VERSION or NAME=VERSION* (repeatable)")
	fs.StringArrayVar(&f.pip, "pip", nil, "Python package to have in it: NAME, NAME==VERSION or NAME[EXTRA] (repeatable)")
	fs.StringArrayVar(&f.npm, "npm", nil, "npm package to have in it, installed globally: NAME or NAME@VERSION (repeatable)")
	fs.DurationVar(&f.ttl, "ttl", 0, "destroy the sandbox after this time, 1m to 24h (default: the image's)")
	fs.DurationVar(&f.idle, "idle", 0, "do the action of --on-idle after this time without activity, from 10s (default: never)")
	fs.StringVar(&f.onIdle, "on-idle", "", "destroy, pause or pause_without_memory (default: destroy)")
	fs.DurationVar(&f.pausedFor, "paused-timeout", 0, "destroy it when it was paused for this time, from 10s (default: never)")
	fs.DurationVar(&f.checkpoints, "checkpoint-interval", 0, "save it automatically this often, 1m to 24h, so that it survives the loss of its host processes (default: never)")
	fs.BoolVar(&f.network, "network", false, "give it access to the internet")
	fs.StringArrayVar(&f.allowOut, "allow-out", nil, "let it reach this address, range or name (example.com, *.example.com), and without --deny-out nothing else; implies --network (repeatable)")
	fs.StringArrayVar(&f.denyOut, "deny-out", nil, "keep it from this address or range, e.g. 0.0.0.0/0; implies --network (repeatable)")
	fs.UintSliceVarP(&f.ports, "port", "p", nil, "publish this port; its URL leads to the first (repeatable)")
	fs.StringVar(&f.urlAccess, "url-access", "", "credential for the management routes on its URL: key (its SANDBOX_API_KEY or an API token) or open (default: key)")
	fs.Lookup("port").DefValue = "" // otherwise help says "default []"
	requestFlags(fs, &f.requestHost, &f.httpsPorts)
	base.WaitForQuotaFlag(fs, &f.waitForQuota)
	fs.BoolVar(&f.replace, "replace", false, "destroy a live sandbox of the same name first")
}

// options returns the options of the flags; getenv looks up the variables that --env names without a value.
func (f *createFlags) options(getenv func(string) string, image string) (client.CreateOptions, error) {
	env, err := base.Pairs(f.env, getenv)
	if err != nil {
		return client.CreateOptions{}, base.UsageError("--env: %w", err)
	}
	labels, err := base.Pairs(f.labels, nil)
	if err != nil {
		return client.CreateOptions{}, base.UsageError("--label: %w", err)
	}
	network := client.Network{Enabled: f.network || len(f.allowOut)+len(f.denyOut) > 0, AllowOut: f.allowOut, DenyOut: f.denyOut, RequestHost: f.requestHost}
	if network.Ports, err = portsOf("--port", f.ports); err != nil {
		return client.CreateOptions{}, err
	}
	if network.HTTPSPorts, err = portsOf("--https-port", f.httpsPorts); err != nil {
		return client.CreateOptions{}, err
	}
	return client.CreateOptions{
		Network: network,
		Name:    f.name, Image: image, Snapshot: f.snapshot, Env: env, Labels: labels, TTL: f.ttl, Replace: f.replace,
		Timeouts:           client.Timeouts{IdleSeconds: base.WholeSeconds(f.idle), OnIdle: f.onIdle, PausedSeconds: base.WholeSeconds(f.pausedFor)},
		CheckpointInterval: f.checkpoints,
		AptPackages:        f.apt, NpmPackages: f.npm, PipPackages: f.pip,
		Resources:    client.Resources{Memory: f.memory, CPU: f.cpu, Disk: f.disk},
		WaitForQuota: f.waitForQuota, URLAccess: client.URLAccess(f.urlAccess),
	}, nil
}

// find resolves names that only the server knows.
func (f *createFlags) find(ctx context.Context, c *client.Client, o *client.CreateOptions) (err error) {
	if f.catalogue != "" {
		o.ImageID, err = image.CatalogueID(ctx, c, f.catalogue)
	}
	return err
}

// ended returns an error with the reason why a sandbox has ended.
func ended(sb *client.Sandbox) error {
	cause := string(sb.State)
	if sb.Cause != nil {
		cause = sb.Cause.Message
	}
	return fmt.Errorf("sandbox %s has ended: %s", sb.Name, cause)
}

// NewCreateCommand returns the command "modbox create".
func NewCreateCommand(env *base.Env) *cobra.Command {
	var f createFlags
	var noWait bool
	cmd := &cobra.Command{
		Use:     "create [IMAGE]",
		Short:   "Make a sandbox and print its id",
		Long:    "Make a sandbox, wait until it runs, and print its id. Without IMAGE the default\nimage of the workspace is used, else the server's.",
		Example: "  modbox create modbox/code-exec --name my-agent --ttl 1h --memory 1Gi -e API_KEY=secret",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: env.CompleteImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			image := ""
			if len(args) > 0 {
				image = args[0]
			}
			o, err := f.options(env.Getenv, image)
			if err != nil {
				return err
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			if image != "" && f.catalogue != "" {
				return base.UsageError("give either IMAGE or --catalogue")
			}
			if err := f.find(cmd.Context(), c, &o); err != nil {
				return err
			}
			create := c.Sandboxes.Create
			if !noWait {
				create = func(ctx context.Context, o client.CreateOptions) (*client.Sandbox, error) {
					return start(ctx, env, c, o)
				}
			}
			sb, err := create(cmd.Context(), o)
			if err != nil {
				return err
			}
			if env.JSON {
				err = env.PrintJSON(sb)
			} else {
				_, err = fmt.Fprintln(env.Stdout, sb.ID)
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

// NewListCommand returns the command "modbox ls".
func NewListCommand(env *base.Env) *cobra.Command {
	var all, quiet bool
	var format string
	var labels, states []string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list", "ps"},
		Short:   "List sandboxes",
		Long: `List sandboxes. With --output wide the table has more columns, for administrators also
the worker of each sandbox; with yaml or json the output is for programs, and with
template=TEXT it has a line per sandbox, made from TEXT, a template of Go's package
text/template: {{.FIELD}} stands for a field that --json shows.`,
		Example: "  modbox ls --state running -l team=a\n  modbox ls -o template='{{.name}} {{.state}} {{.resources.memory}}'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show, err := listFormat(env, format, quiet)
			if err != nil {
				return err
			}
			sel, err := base.Pairs(labels, nil)
			if err != nil {
				return base.UsageError("--label: %w", err)
			}
			o := client.ListOptions{Labels: sel}
			for _, s := range states {
				o.States = append(o.States, client.State(s))
			}
			if all {
				o.States = []client.State{client.Provisioning, client.Running, client.Pausing, client.Paused, client.Resuming, client.Destroying, client.Destroyed, client.Failed}
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			sandboxes, err := c.Sandboxes.List(o).Collect(cmd.Context())
			if err != nil {
				return err
			}
			return show(sandboxes)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include ended sandboxes")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "only ids")
	cmd.Flags().StringVarP(&format, "output", "o", "", "wide, yaml, json or template=TEXT (default: a table)")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "only with this label KEY=VALUE (repeatable)")
	cmd.Flags().StringSliceVar(&states, "state", nil, "only in these states, e.g. running,failed")
	return cmd
}

// NewGetCommand returns the command "modbox get".
func NewGetCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:               "get SANDBOX",
		Short:             "Show a sandbox, named by its id or name",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			sb, err := c.Sandboxes.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return printSandbox(env, sb)
		},
	}
}

func printSandbox(env *base.Env, sb *client.Sandbox) error {
	if env.JSON {
		return env.PrintJSON(sb)
	}
	fields := [][2]string{
		{"NAME", sb.Name}, {"ID", sb.ID}, {"STATE", string(sb.State)}, {"URL", sb.URL}, {"IMAGE", sb.Image},
		{"MEMORY", sb.Resources.Memory}, {"CPU", sb.Resources.CPU}, {"DISK", sb.Resources.Disk},
		{"CREATED", sb.CreatedAt.Format(time.RFC3339)}, {"CREATED BY", sb.CreatedBy},
	}
	for k, v := range sb.Labels {
		fields = append(fields, [2]string{"LABEL", k + "=" + v})
	}
	if sb.Network.Enabled && len(sb.Network.DenyOut) > 0 {
		fields = append(fields, [2]string{"ALLOWED OUT", strings.Join(sb.Network.AllowOut, " ")}, [2]string{"DENIED OUT", strings.Join(sb.Network.DenyOut, " ")})
	}
	if sb.Network.RequestHost != "" {
		fields = append(fields, [2]string{"REQUEST HOST", sb.Network.RequestHost})
	}
	if len(sb.Network.HTTPSPorts) > 0 {
		fields = append(fields, [2]string{"HTTPS PORTS", strings.Trim(fmt.Sprint(sb.Network.HTTPSPorts), "[]")})
	}
	if sb.Worker != "" {
		fields = append(fields, [2]string{"WORKER", sb.Worker})
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
	if sb.MemoryLostReason != "" {
		fields = append(fields, [2]string{"MEMORY LOST", base.Clean(sb.MemoryLostReason)})
	}
	if sb.PausedAt != nil {
		paused := sb.PausedAt.Format(time.RFC3339)
		if sb.PausedWithoutMemory {
			paused += " without its memory"
		}
		fields = append(fields, [2]string{"PAUSED", paused})
	}
	if sb.ArchivedAt != nil {
		fields = append(fields, [2]string{"ARCHIVED", sb.ArchivedAt.Format(time.RFC3339)})
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
	return env.PrintFields(fields)
}

// NewWaitCommand returns the command "modbox wait".
func NewWaitCommand(env *base.Env) *cobra.Command {
	var state string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:               "wait SANDBOX",
		Short:             "Wait until a sandbox runs, or is in another state",
		Long:              "Wait until a sandbox is in a state. Fails when it ends in another one, or when the time is over.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			sb, err := c.Sandboxes.Wait(ctx, args[0], client.State(state))
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				return fmt.Errorf("sandbox %s is not %s after %v", args[0], state, timeout)
			case err != nil:
				return err
			}
			if env.JSON {
				err = env.PrintJSON(sb)
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
