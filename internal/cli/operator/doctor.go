package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/capacity"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/cli/image"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/server"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/worker"
)

// NewDoctorCommand returns the command "modbox doctor".
func NewDoctorCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	var proves, cluster bool
	var image string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine lacks to run sandboxes, and how to get it",
		Long: `Check this machine, with the server's settings, and really start a sandbox. If workers
run the sandboxes of the server (worker.listen), check what the server itself needs, and
its workers; run it also on the machines of the workers. Exits with 1 when something is
missing without which Modbox does not work.

With --prove it then starts a second server on this machine, with a state of its own that
it removes, and tries what the documentation promises: it makes sandboxes, exceeds their
limits, pauses and forks them, kills them and the server, and looks for remains. This
takes about a minute, at most ten. Exits with 1 when something does not hold.

With --cluster it checks nothing on this machine. It proves a running server with workers
through its API, as an administrator: it makes a sandbox, pauses it, drains its worker,
resumes it with its memory on another worker, and forks it. It destroys what it made, and
ends the drain, also when something does not hold and after Ctrl-C.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := func(r doctor.Result) { printCheck(env, r) }
			if env.JSON {
				show = nil
			}
			var results []doctor.Result
			var err error
			switch {
			case cluster:
				results, err = proveCluster(cmd.Context(), env, image, show)
			case image != "":
				err = base.UsageError("--image is for --cluster")
			default:
				results, err = checkHere(cmd.Context(), env, &local, proves, show)
			}
			if err != nil {
				return err
			}
			if env.JSON {
				err = env.PrintJSON(results)
			}
			if err == nil && doctor.Failed(results) {
				err = &base.ExitError{Code: base.ExitFailure}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&proves, "prove", false, "also try what the documentation promises, with a server and sandboxes of its own")
	cmd.Flags().BoolVar(&cluster, "cluster", false, "prove the workers of a running server, through its API")
	cmd.Flags().StringVar(&image, "image", "", "the image of the sandboxes of --cluster (default: the image of the workspace)")
	local.Add(cmd)
	for _, flag := range []string{"prove", "config", "state-dir", "run-dir"} {
		cmd.MarkFlagsMutuallyExclusive("cluster", flag)
	}
	return cmd
}

// checkHere checks this machine, and with proves also tries what the documentation promises.
func checkHere(ctx context.Context, env *base.Env, local *base.LocalFlags, proves bool, show func(doctor.Result)) ([]doctor.Result, error) {
	cfg, err := local.Load(env)
	if err != nil {
		return nil, err
	}
	o := doctor.Options{
		StateDir: cfg.StateDir, RunDir: cfg.RunDir, Listen: cfg.Listen, Running: statedir.RunningAddress(cfg.StateDir),
		SharedOrigin: server.SharesOrigin(cfg), SharedOriginFix: server.PathURLsAdvice,
		Capacity: func() (string, error) { return describeCapacity(cfg) },
		Images:   func(ctx context.Context) (map[string]bool, error) { return image.BuiltImages(ctx, cfg) },
		Platform: func() (string, string, error) { return describePlatform(cfg) },
		Sandbox:  func(ctx context.Context) (doctor.Trial, error) { return trySandbox(ctx, cfg) },

		FirstToken: func(ctx context.Context) (*doctor.FirstToken, error) { return DescribeFirstToken(ctx, cfg) },
		Quarantine: func(ctx context.Context) (string, error) { return describeQuarantine(ctx, cfg) },
	}
	if every := cfg.Backup.Every.Std(); every > 0 {
		o.BackupEvery, o.LastBackup = every, func() (time.Time, error) { return server.LastBackup(ctx, cfg) }
	}
	if cfg.Worker.Listen != "" {
		o.Workers = func(ctx context.Context) (string, string, error) { return describeWorkers(ctx, cfg) }
	}
	if cfg.Database.URL != "" {
		o.Database = func(ctx context.Context) ([]string, error) { return server.DatabaseWarnings(ctx, cfg) }
	}
	results := doctor.Run(ctx, o, show)
	if proves {
		results = append(results, proveHere(ctx, cfg, show)...)
	}
	return results, nil
}

// describePlatform describes the platform of new sandboxes.
func describePlatform(cfg config.Config) (detail, fix string, err error) {
	choice, known, err := server.LookUpPlatform(cfg)
	switch {
	case err != nil:
		return "", "", err
	case !known:
		return fmt.Sprintf("sandbox.platform is %s: the next start of the server tries kvm", cfg.Sandbox.Platform), "", nil
	case choice.Failed:
		fix = "if systrap is fine, set sandbox.platform to systrap (docs/operate/platform.md)"
	}
	return fmt.Sprintf("%s: %s", choice.Platform, choice.Reason), fix, nil
}

func printCheck(env *base.Env, r doctor.Result) {
	fmt.Fprintf(env.Stdout, "%-7s %-16s %s\n", r.Status, r.Name, base.Clean(r.Detail))
	if r.Fix != "" {
		fmt.Fprintf(env.Stdout, "%24s -> %s\n", "", base.Clean(r.Fix))
	}
}

// describeCapacity describes the capacity that the server promises on this machine, and the part
// that a single workspace may have.
func describeCapacity(cfg config.Config) (string, error) {
	machine, err := capacity.Detect(cfg.StateDir)
	if err != nil {
		return "", err
	}
	show := func(n int64, text func(int64) string) string {
		if n <= 0 {
			return "no limit"
		}
		return text(n)
	}
	bytes := func(n int64) string { return humanize.IBytes(uint64(n)) }
	count := func(n int64) string { return fmt.Sprint(n) }
	promise, limits := machine.Promise(server.CapacityPolicy(cfg)), server.DefaultQuota(cfg, machine)
	return fmt.Sprintf("all sandboxes together are promised at most: memory %s, disk %s; a workspace may have: sandboxes %s, memory %s, cores %s, disk %s, creates a minute %s",
		show(promise.MemoryBytes, bytes), show(promise.DiskBytes, bytes), show(limits[quota.LimitSandboxes], count), show(limits[quota.LimitMemory], bytes),
		show(limits[quota.LimitCPU], func(n int64) string { return fmt.Sprint(float64(n) / 1000) }), show(limits[quota.LimitDisk], bytes), show(limits[quota.LimitCreates], count)), nil
}

// describeWorkers describes the workers that have joined, by the records in the database.
func describeWorkers(ctx context.Context, cfg config.Config) (detail, fix string, err error) {
	if cfg.Worker.SecretDir != "" {
		if _, err := worker.ReadAuthority(cfg.Worker.SecretDir); err != nil {
			return "", "", err
		}
	}
	const join = "start modbox worker --join with the address of worker.listen and the token on another machine (docs/cluster.md)"
	list, err := recordedWorkers(ctx, cfg)
	if sandbox.CodeOf(err) == sandbox.NotFound { // no server has run here
		return "no worker has joined", join, nil
	}
	if err != nil {
		return "", "", err
	}
	ready, draining := 0, 0
	var memory int64
	var seen time.Time // the worker that connected last
	for _, w := range list {
		switch w.Status {
		case worker.Ready:
			ready++
			memory += w.MemoryBytes
		case worker.Draining:
			draining++
		default:
			continue
		}
		if w.SeenAt.After(seen) {
			seen = w.SeenAt
		}
	}
	if ready+draining == 0 {
		return "no worker has joined", join, nil
	}
	detail = fmt.Sprintf("%d for new sandboxes, with %s of memory, and %d that are being drained; the last connection began or ended %s",
		ready, humanize.IBytes(uint64(max(memory, 0))), draining, humanize.Time(seen))
	if ready == 0 {
		return detail, "new sandboxes have no worker: end the drain of a worker (modbox workers undrain), or add a worker", nil
	}
	return detail, "", nil
}
