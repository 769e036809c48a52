package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/backup"
	"github.com/modbox/modbox/internal/capacity"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/embedded"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/server"
	"github.com/modbox/modbox/internal/statedir"
)

func (a *app) doctorCommand() *cobra.Command {
	var local localFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine lacks to run sandboxes, and how to get it",
		Long: `Check this machine, with the server's settings, and really start a sandbox. Exits
with 1 when something is missing without which Modbox does not work.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := local.load(a)
			if err != nil {
				return err
			}
			show := a.printCheck
			if a.json {
				show = nil
			}
			o := doctor.Options{
				StateDir: cfg.StateDir, RunDir: cfg.RunDir, Listen: cfg.Listen, Running: statedir.RunningAddress(cfg.StateDir),
				SharedOrigin: server.SharesOrigin(cfg), SharedOriginFix: server.PathURLsAdvice,
				Capacity: func() (string, error) { return describeCapacity(cfg) },
				Images:   func(ctx context.Context) (map[string]bool, error) { return builtImages(ctx, cfg) },
				Sandbox:  func(ctx context.Context) (doctor.Trial, error) { return trySandbox(ctx, cfg) },

				FirstToken: func(ctx context.Context) (*doctor.FirstToken, error) { return describeFirstToken(ctx, cfg) },
				Quarantine: func(ctx context.Context) (string, error) { return describeQuarantine(ctx, cfg) },
			}
			if every := cfg.Backup.Every.Std(); every > 0 {
				o.BackupEvery, o.LastBackup = every, func() (time.Time, error) { return backup.Last(cfg.Backup.Directory) }
			}
			results := doctor.Run(cmd.Context(), o, show)
			if a.json {
				err = a.printJSON(results)
			}
			if err == nil && doctor.Failed(results) {
				err = &exitCodeError{code: exitError}
			}
			return err
		},
	}
	local.add(cmd)
	return cmd
}

func (a *app) printCheck(r doctor.Result) {
	fmt.Fprintf(a.stdout, "%-5s %-16s %s\n", r.Status, r.Name, clean(r.Detail))
	if r.Fix != "" {
		fmt.Fprintf(a.stdout, "%22s -> %s\n", "", clean(r.Fix))
	}
}

// images loads the configuration and opens the images of this machine.
func (l *localFlags) images(a *app) (config.Config, *image.Store, error) {
	cfg, err := l.load(a)
	if err != nil {
		return cfg, nil, err
	}
	st, err := server.OpenImages(cfg)
	return cfg, st, err
}

// builtImages returns those that "modbox images build" builds, and whether they are built, and
// all others that are here: sandboxes can be made of imported ones too.
func builtImages(ctx context.Context, cfg config.Config) (map[string]bool, error) {
	st, err := server.OpenExistingImages(cfg)
	if errors.Is(err, server.ErrNoImage) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	recipes, err := chooseRecipes(st, nil)
	if err != nil {
		return nil, err
	}
	list, err := st.List(ctx)
	if err != nil {
		return nil, err
	}
	built := map[string]bool{}
	for _, i := range list {
		if i.Digest != "" {
			built[i.Ref()] = true
		}
	}
	for _, r := range recipes {
		built[r.Ref()] = slices.ContainsFunc(list, func(i sandbox.Image) bool { return i.Ref() == r.Ref() && i.Digest != "" })
	}
	return built, nil
}

// trySandbox starts a sandbox with a driver of its own, in directories of its
// own below the server's, so that a running server is not disturbed.
func trySandbox(ctx context.Context, cfg config.Config) (t doctor.Trial, err error) {
	st, err := server.OpenExistingImages(cfg)
	if err != nil {
		return t, err
	}
	rootFS, err := anyRootFS(ctx, st)
	if err != nil {
		return t, err
	}
	programs, err := embedded.Unpack(filepath.Join(cfg.StateDir, statedir.BinDir))
	if err != nil {
		return t, err
	}
	if err := statedir.Make(cfg.RunDir); err != nil {
		return t, err
	}
	runDir, err := os.MkdirTemp(cfg.RunDir, "d")
	if err != nil {
		return t, err
	}
	defer os.RemoveAll(runDir)
	stateDir, err := os.MkdirTemp(cfg.StateDir, "doctor-")
	if err != nil {
		return t, err
	}
	defer os.RemoveAll(stateDir)
	d, err := gvisor.New(gvisor.Config{
		RunDir: runDir, StateDir: stateDir, SandboxBinary: programs.Sandbox, AgentBinary: programs.Agent,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return doctor.TrySandbox(ctx, d, rootFS)
}

// anyRootFS returns the smallest image that is built.
func anyRootFS(ctx context.Context, st *image.Store) (string, error) {
	list, err := st.List(ctx)
	if err != nil {
		return "", err
	}
	var smallest *sandbox.Image
	for i := range list {
		if list[i].Digest != "" && (smallest == nil || list[i].SizeBytes < smallest.SizeBytes) {
			smallest = &list[i]
		}
	}
	if smallest == nil {
		return "", server.ErrNoImage
	}
	_, path, err := st.Resolve(ctx, smallest.Ref())
	return path, err
}

// describeCapacity says what the server promises on this machine, and what of that one
// workspace may have.
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
	promise, quota := machine.Promise(server.CapacityPolicy(cfg)), server.DefaultQuota(cfg, machine)
	return fmt.Sprintf("all sandboxes together are promised at most: memory %s, disk %s; a workspace may have: sandboxes %s, memory %s, cores %s, disk %s, creates a minute %s",
		show(promise.MemoryBytes, bytes), show(promise.DiskBytes, bytes), show(quota[sandbox.LimitSandboxes], count), show(quota[sandbox.LimitMemory], bytes),
		show(quota[sandbox.LimitCPU], func(n int64) string { return fmt.Sprint(float64(n) / 1000) }), show(quota[sandbox.LimitDisk], bytes), show(quota[sandbox.LimitCreates], count)), nil
}
