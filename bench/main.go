// Command bench measures Modbox against Docker with runc on the same root
// filesystem, in one run, alternating, and writes a table of ratios. It needs a
// running server (MODBOX_URL, MODBOX_API_TOKEN) and, for the peer's columns, a
// Docker daemon and a tar of the root filesystem. It makes nothing that it does
// not remove, and stops by itself.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/bench"
)

type options struct {
	rounds, burst, idle   int
	image, bin, tar, file string
	clients               string // the directory of the programs of clients; "" without Node.js
	// The work of this program inside a sandbox, see internal/bench.
	serve bool
	load  string
	// commits has only the rows of commits measured.
	commits bool
	// programs has only the rows of the programs of clients measured.
	programs bool
	// idles has only the rows of idle sandboxes measured.
	idles bool
	// base is the binary of the server to compare with; only limits the rows of the comparison.
	base string
	only *regexp.Regexp
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 20, "counted rounds of each row")
	flag.IntVar(&o.burst, "burst", 50, "creates at once")
	flag.IntVar(&o.idle, "idle", 300, "sandboxes alive while they are watched being idle")
	flag.BoolVar(&o.serve, "serve", false, "only be the server of the proxy's row")
	flag.StringVar(&o.load, "load", "", "only measure the server of this URL")
	flag.BoolVar(&o.commits, "commits", false, "only measure what is on the disk when it is answered, and write no file")
	flag.BoolVar(&o.programs, "programs", false, "only measure the programs of E2B's client and of Modbox's SDK, and write no file")
	flag.BoolVar(&o.idles, "idles", false, "only measure the idle sandboxes and the API beside them, and write no file")
	flag.StringVar(&o.base, "base", "", "only compare with the server at MODBOX_BASE_URL, whose binary this is, and write no file")
	only := flag.String("only", "", "the rows of a comparison, as a regular expression")
	flag.StringVar(&o.image, "image", "modbox/code-exec", "image to measure with")
	flag.StringVar(&o.bin, "bin", "bin/modbox", "the modbox binary, for the command line rows")
	flag.StringVar(&o.tar, "rootfs", "", "tar of the same root filesystem, for Docker; empty: no peer")
	flag.StringVar(&o.clients, "clients", "", "directory with programs of E2B's client and of Modbox's SDK, whose packages are installed; empty: no such rows")
	flag.StringVar(&o.file, "o", "bench/results/latest.md", "where the table is written")
	flag.Parse()
	o.only = regexp.MustCompile(*only)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	switch {
	case o.serve:
		return bench.Serve()
	case o.load != "":
		return bench.PrintLoad(ctx, os.Stdout, o.load)
	}
	m, err := newServer("MODBOX", o.bin, o.image)
	if err != nil {
		return err
	}
	if o.base != "" {
		base, err := newServer("MODBOX_BASE", o.base, o.image)
		if err != nil {
			return err
		}
		return compare(ctx, o, m, base)
	}
	r := bench.NewReport(m.Version(ctx), o.rounds, func(text string) { fmt.Fprintln(os.Stderr, text) })
	if o.commits {
		if err := r.AddCommits(ctx, o.rounds, m); err != nil {
			return fmt.Errorf("commits: %w", err)
		}
		return r.Markdown(os.Stdout)
	}
	if o.programs {
		if err := addClients(ctx, r, o.rounds, m, o.clients); err != nil {
			return fmt.Errorf("clients: %w", err)
		}
		return r.Markdown(os.Stdout)
	}
	if o.idles {
		if err := r.AddIdle(ctx, o.idle, bench.IdleTime, m, "", nil); err != nil {
			return fmt.Errorf("idle sandboxes: %w", err)
		}
		return r.Markdown(os.Stdout)
	}
	var d *docker
	if o.tar != "" {
		if d, err = newDocker(ctx, o.tar); err != nil {
			return err
		}
	}
	if d == nil {
		r.Notes = append(r.Notes, "No Docker daemon answered: the peer's columns and the ratios are empty.")
	}
	if err := measure(ctx, o, m, d, r); err != nil {
		return err
	}
	return writeFile(r, o.file)
}

// newServer returns a driver of the server in variables whose names begin with prefix.
func newServer(prefix, bin, image string) (*bench.Server, error) {
	url, token := os.Getenv(prefix+"_URL"), os.Getenv(prefix+"_API_TOKEN")
	c, err := client.New(url, token)
	if err != nil {
		return nil, err
	}
	m := bench.NewServer(c, url, token, bin, image)
	m.StateDir = os.Getenv("MODBOX_STATE_DIR")
	m.Inside = bench.Inside{Program: "/proc/self/exe", Serve: []string{"-serve"}, Load: []string{"-load"}}
	return m, nil
}

// measure fills the report.
func measure(ctx context.Context, o options, m *bench.Server, d *docker, r *bench.Report) error {
	f, err := bench.NewFixtures(ctx, m)
	if err != nil {
		return err
	}
	defer f.Close(ctx)
	container := ""
	if d != nil {
		if container, err = d.start(ctx); err != nil {
			return err
		}
		defer d.remove(context.WithoutCancel(ctx), container) //nolint:errcheck // best effort
	}
	for _, line := range lines(o, m, d, container, f) {
		if err := r.Add(ctx, o.rounds, line); err != nil {
			return fmt.Errorf("%s: %w", line.What, err)
		}
	}
	if err := addClients(ctx, r, o.rounds, m, o.clients); err != nil {
		return fmt.Errorf("clients: %w", err)
	}
	if err := r.AddCommits(ctx, o.rounds, m); err != nil {
		return fmt.Errorf("commits: %w", err)
	}
	if err := r.AddBrowser(ctx, o.rounds, m); err != nil {
		return fmt.Errorf("browser: %w", err)
	}
	if err := r.AddRoundTrip(ctx, o.rounds, m, f.Data); err != nil {
		return fmt.Errorf("round trip: %w", err)
	}
	if err := r.AddSnapshot(ctx, o.rounds, m); err != nil {
		return fmt.Errorf("snapshots: %w", err)
	}
	if err := r.AddStandstill(ctx, o.rounds, m); err != nil {
		return fmt.Errorf("standstill: %w", err)
	}
	if err := r.AddProxy(ctx, o.rounds, m, f.Box); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	if d == nil {
		return r.AddIdle(ctx, o.idle, bench.IdleTime, m, "", nil)
	}
	return r.AddIdle(ctx, o.idle, bench.IdleTime, m, fmt.Sprintf("one of %d containers with its shim", dockerIdle), func(ctx context.Context) (int64, error) { return d.idlePSS(ctx, dockerIdle) })
}

// dockerIdle is the number of idle containers whose memory is measured.
const dockerIdle = 20

// lines lists the measurements, with Docker beside them. The rows with a target compare with what a user
// picks instead, Docker's command line; the others compare like with like, so
// that the part of a command line's own start-up can be told.
func lines(o options, m *bench.Server, d *docker, container string, f bench.Fixtures) []bench.Line {
	list := bench.Lines(o.burst, m, f)
	if d == nil {
		return list
	}
	python := []string{"python3", "-c", "print(1)"}
	theirs := map[bench.Task]bench.Side{
		bench.TaskCreate:      {Name: "docker run --rm", Run: d.runCLI("true")},
		bench.TaskCreateAlike: {Name: "Docker API: create, start, exec", Run: d.runAPI("true")},
		bench.TaskPool:        {Name: "docker run --rm", Run: d.runCLI("true")},
		bench.TaskAnyImage:    {Name: "docker run --rm", Run: d.runCLI("true")},
		bench.TaskExec:        {Name: "docker exec", Run: d.execCLI(container, "true")},
		bench.TaskExecAlike:   {Name: "Docker API: exec", Run: d.execAPI(container, "true")},
		bench.TaskPython:      {Name: "Docker API: exec", Run: d.execAPI(container, python...)},
		bench.TaskDestroy:     {Name: "Docker API: remove", Run: d.destroy},
		bench.TaskBurst:       {Name: "Docker API: create, start, exec", Run: d.burst(o.burst)},
		bench.TaskUpload:      {Name: "docker cp", Run: d.upload(container, f.File)},
		bench.TaskDownload:    {Name: "docker cp", Run: d.download(container, f.File)},
		bench.TaskRunCLI:      {Name: "docker run --rm", Run: d.runCLI("true")},
		bench.TaskExecCLI:     {Name: "docker exec", Run: d.execCLI(container, "true")},
		bench.TaskResume:      {Name: "docker run --rm of Python", Run: d.runCLI(python...)},
	}
	for i, l := range list { // Docker has no peer for the rest
		if side, ok := theirs[l.Task]; ok {
			list[i].Peer, list[i].Theirs = side.Name, side.Run
		}
	}
	return list
}

// writeFile writes the report to a file and to standard output.
func writeFile(r *bench.Report, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.Markdown(io.MultiWriter(f, os.Stdout))
}
