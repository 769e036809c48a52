package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/bench"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/cli/image"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/doctor/ownserver"
	"github.com/modbox/modbox/internal/statedir"
)

// The images of measurements.
const (
	benchImage = "modbox/code-exec:latest"
	benchData  = "modbox/data:latest"
)

// endOfBench bounds the end of the server after the measurements.
const endOfBench = 2 * time.Minute

type benchOptions struct {
	bench.Options
	html      string
	running   bool
	timeLimit time.Duration
}

// NewBenchCommand returns the command "modbox bench".
func NewBenchCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast sandboxes are on this machine",
		Long: `Measure creates, commands, files, pauses, forks, code, requests and idle sandboxes on this
machine, and print a table of times. It takes some minutes, and the machine should do
nothing else meanwhile.

The command starts a server with a state of its own, on a loopback address, with the
images of this machine, and removes all that it made. With --running it measures the
server that the other commands call instead, and removes its sandboxes, snapshots and
tokens there.`,
		Example: `  sudo modbox bench --html bench.html
  modbox bench --running --rounds 5 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, c := range []struct {
				flag      string
				n, lowest int
			}{{"rounds", o.Rounds, 1}, {"burst", o.Burst, 1}, {"idle", o.Idle, 1}} {
				if c.n < c.lowest || c.n > 1000 {
					return base.UsageError("--%s must be between %d and 1000", c.flag, c.lowest)
				}
			}
			if o.timeLimit <= 0 || o.IdleTime <= 0 {
				return base.UsageError("--time-limit and --idle-time must be more than 0")
			}
			o.Seen = func(text string) { fmt.Fprintln(env.Stderr, base.Clean(text)) }
			ctx, cancel := context.WithTimeout(cmd.Context(), o.timeLimit)
			defer cancel()
			r, err := runBench(ctx, env, &local, o)
			if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("the time limit of %s is over; --time-limit sets another, --rounds fewer rounds: %w", o.timeLimit, err)
			}
			if err != nil {
				return err
			}
			return writeBench(env, r, o.html)
		},
	}
	cmd.Flags().IntVar(&o.Rounds, "rounds", 10, "how often each row is measured, after a warm-up")
	cmd.Flags().IntVar(&o.Burst, "burst", 20, "sandboxes that are created at once")
	cmd.Flags().IntVar(&o.Idle, "idle", 20, "sandboxes that are alive while they are watched being idle")
	cmd.Flags().DurationVar(&o.IdleTime, "idle-time", bench.IdleTime, "how long they are watched")
	cmd.Flags().StringVar(&o.html, "html", "", "also write a page with plots to this file")
	cmd.Flags().BoolVar(&o.running, "running", false, "measure the server that other commands call, instead of one of its own")
	cmd.Flags().DurationVar(&o.timeLimit, "time-limit", 15*time.Minute, "end without a result after this time")
	local.Add(cmd)
	cmd.AddCommand(newBenchServeCommand(), newBenchLoadCommand(env))
	return cmd
}

// runBench measures the chosen server.
func runBench(ctx context.Context, env *base.Env, local *base.LocalFlags, o benchOptions) (r *bench.Report, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if o.running {
		c, err := env.Client()
		if err != nil {
			return nil, err
		}
		return measure(ctx, bench.NewServer(c, env.ServerURL(), env.Getenv("MODBOX_API_TOKEN"), program, benchImage), program, o.Options)
	}
	cfg, err := local.Load(env)
	if err != nil {
		return nil, err
	}
	if err := wantImages(ctx, cfg); err != nil {
		return nil, err
	}
	s, err := ownserver.Open(ctx, ownserver.Options{
		Program: program, StateDir: cfg.StateDir, RunDir: cfg.RunDir, Images: filepath.Join(cfg.StateDir, statedir.ImagesDir), Names: []string{benchImage, benchData}, Name: "bench",
		Args: []string{"--quota-creates-per-minute", "0", "--quota-sandboxes", "0", "--quota-memory", "0", "--quota-cpu", "0", "--quota-disk", "0", "--capacity-memory-overcommit", "0", "--capacity-disk-overcommit", "0"},
	})
	if s != nil {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endOfBench)
			defer cancel()
			err = errors.Join(err, s.Close(ctx))
		}()
	}
	if err != nil {
		return nil, err
	}
	m := bench.NewServer(s.API, s.URL, s.Token, program, benchImage)
	m.StateDir = s.StateDir()
	return measure(ctx, m, program, o.Options)
}

// measure measures a server, with this program in its sandboxes.
func measure(ctx context.Context, m *bench.Server, program string, o bench.Options) (*bench.Report, error) {
	m.Inside = bench.Inside{Program: program, Serve: []string{"bench", "serve"}, Load: []string{"bench", "load"}}
	return bench.Run(ctx, m, o)
}

// wantImages returns an error unless the images of measurements are built.
func wantImages(ctx context.Context, cfg config.Config) error {
	built, err := image.BuiltImages(ctx, cfg)
	if err != nil {
		return err
	}
	for _, ref := range []string{benchImage, benchData} {
		if !built[ref] {
			return fmt.Errorf("the image %s is not built: run modbox images build modbox/code-exec modbox/data", ref)
		}
	}
	return nil
}

// writeBench prints the report, and writes its page unless the path is "".
func writeBench(env *base.Env, r *bench.Report, path string) error {
	if path != "" {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		if err := errors.Join(r.HTML(f), f.Close()); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	if env.JSON {
		return env.PrintJSON(r)
	}
	return r.Text(env.Stdout)
}

// newBenchServeCommand returns the command of the server in a sandbox.
func newBenchServeCommand() *cobra.Command {
	return &cobra.Command{Use: "serve", Short: "Answer the requests of a measurement", Hidden: true, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return bench.Serve() }}
}

// newBenchLoadCommand returns the command of the client in a sandbox.
func newBenchLoadCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{Use: "load URL", Short: "Measure the server of a measurement", Hidden: true, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return bench.PrintLoad(cmd.Context(), env.Stdout, args[0])
	}}
}
