// Command bench measures Modbox against Docker with runc on the same root
// filesystem, in one run, alternating, and writes a table of ratios. It needs a
// running server (MODBOX_URL, MODBOX_API_TOKEN) and, for the peer's columns, a
// Docker daemon and a tar of the root filesystem. It makes nothing that it does
// not remove, and stops by itself.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

// The targets of the design, as ratios to Docker, and bytes.
const (
	targetCreate = 0.25
	targetExec   = 0.1
	targetBurst  = 0.4
	targetResume = 0.35
	targetWarm   = 0.05
	targetCopy   = 1.0
	targetPSS    = 12 << 20
	targetIdle   = 0.02 // of a core
	targetProxy  = 0.6  // of the requests, here more is better
	targetAdded  = time.Millisecond
	targetGroup  = 4 // times what one client commits
)

type options struct {
	rounds, burst, idle   int
	image, bin, tar, file string
	clients               string // the directory of the programs of clients; "" without Node.js
	// The work of this program inside a sandbox, see drive.
	serve bool
	load  string
	// commits has only the rows of commits measured.
	commits bool
	// base is the binary of the server to compare with; only limits the rows of the comparison.
	base string
	only *regexp.Regexp
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 20, "counted rounds of each row")
	flag.IntVar(&o.burst, "burst", 100, "creates at once")
	flag.IntVar(&o.idle, "idle", 100, "sandboxes alive while they are watched being idle")
	flag.BoolVar(&o.serve, "serve", false, "only be the server of the proxy's row")
	flag.StringVar(&o.load, "load", "", "only measure the server of this URL")
	flag.BoolVar(&o.commits, "commits", false, "only measure what is on the disk when it is answered, and write no file")
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
		return serve()
	case o.load != "":
		seen, err := drive(ctx, o.load)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(seen)
	}
	m, err := newModbox(os.Getenv("MODBOX_URL"), os.Getenv("MODBOX_API_TOKEN"), o.bin, o.image)
	if err != nil {
		return err
	}
	if o.base != "" {
		base, err := newModbox(os.Getenv("MODBOX_BASE_URL"), os.Getenv("MODBOX_BASE_API_TOKEN"), o.base, o.image)
		if err != nil {
			return err
		}
		return compare(ctx, o, m, base)
	}
	r := &report{version: m.version(ctx), rounds: o.rounds}
	if o.commits {
		if err := r.addCommits(ctx, o.rounds, m); err != nil {
			return fmt.Errorf("commits: %w", err)
		}
		return r.write(os.Stdout)
	}
	var d *docker
	if o.tar != "" {
		if d, err = newDocker(ctx, o.tar); err != nil {
			return err
		}
	}
	if d == nil {
		r.notes = append(r.notes, "No Docker daemon answered: the peer's columns and the ratios are empty.")
	}
	if err := measure(ctx, o, m, d, r); err != nil {
		return err
	}
	return r.writeFile(o.file)
}

// measure fills the report.
func measure(ctx context.Context, o options, m *modbox, d *docker, r *report) error {
	box, err := m.start(ctx)
	if err != nil {
		return err
	}
	defer m.remove(context.WithoutCancel(ctx), box) //nolint:errcheck // its ttl ends it otherwise
	container := ""
	if d != nil {
		if container, err = d.start(ctx); err != nil {
			return err
		}
		defer d.remove(context.WithoutCancel(ctx), container) //nolint:errcheck // best effort
	}
	python, err := m.idlePython(ctx)
	if python != "" {
		defer m.remove(context.WithoutCancel(ctx), python) //nolint:errcheck // its ttl ends it otherwise
	}
	if err != nil {
		return err
	}
	data, err := m.startData(ctx)
	if data != "" {
		defer m.remove(context.WithoutCancel(ctx), data) //nolint:errcheck // its ttl ends it otherwise
	}
	if err != nil {
		return err
	}
	file, err := randomFile()
	defer os.Remove(file)
	if err != nil {
		return err
	}
	code := line{what: "`1+1` in a warm Python context, API", ours: m.code(data), peer: "Modbox API: exec of `true` there", theirs: m.execAPI(data, "true")}
	first := line{
		what: "cold create of a data sandbox → first `1+1` in Python, API", ours: m.afterCreate(m.code),
		peer: "Modbox API: the same with `true`", theirs: m.afterCreate(func(id string) op { return m.execAPI(id, "true") }),
	}
	for _, line := range append(rows(o, m, d, box, container, python, file), code, first) {
		if err := r.add(ctx, o.rounds, line); err != nil {
			return fmt.Errorf("%s: %w", line.what, err)
		}
	}
	if err := r.addClients(ctx, o.rounds, m, o.clients); err != nil {
		return fmt.Errorf("clients: %w", err)
	}
	if err := r.addCommits(ctx, o.rounds, m); err != nil {
		return fmt.Errorf("commits: %w", err)
	}
	if err := r.addStandstill(ctx, o.rounds, m); err != nil {
		return fmt.Errorf("standstill: %w", err)
	}
	if err := r.addProxy(ctx, m, box); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	return r.addIdle(ctx, o.idle, m, d)
}

// line is one row to be measured.
type line struct {
	what   string
	target float64
	ours   op
	peer   string
	theirs op // nil without a peer
	rounds int
}

// rows lists the measurements. The rows with a target compare with what a user
// picks instead, Docker's command line; the others compare like with like, so
// that the part of a command line's own start-up can be told.
func rows(o options, m *modbox, d *docker, box, container, idle, file string) []line {
	python := []string{"python3", "-c", "print(1)"}
	lines := []line{
		{what: "cold create → first output (`true`), API", target: targetCreate, ours: m.run("true")},
		{what: "the same, like with like", ours: m.run("true")},
		{what: "create from the pool → first output (`true`), API", target: targetWarm, ours: m.runWarm("true")},
		{what: "`true` in a running sandbox, API", target: targetExec, ours: m.execAPI(box, "true")},
		{what: "the same, like with like", ours: m.execAPI(box, "true")},
		{what: "`python3 -c 'print(1)'` in a running sandbox, API", ours: m.execAPI(box, python...)},
		{what: "destroy, API", ours: m.destroy},
		{what: fmt.Sprintf("%d creates at once → the last has answered, API", o.burst), target: targetBurst, ours: m.burst(o.burst), rounds: 1},
		{what: "file of 100 MiB in", target: targetCopy, ours: m.upload(box, file), rounds: 5},
		{what: "file of 100 MiB out", target: targetCopy, ours: m.download(box, file), rounds: 5},
		{what: "`modbox run` of `true`, command line", ours: m.runCLI("true")},
		{what: "`modbox exec` of `true`, command line", ours: m.execCLI(box, "true")},
		{what: "resume a paused sandbox with an idle Python → first output, API", target: targetResume, ours: m.resume(idle)},
		{what: "pause that sandbox, API", ours: m.pause(idle)},
		{what: "fork it, memory included → the copy has answered, API", ours: m.fork(idle, 1)},
		{what: "fork it 10 times → all copies have answered, API", ours: m.fork(idle, 10), rounds: 5},
		{what: "create from a snapshot → first output (`true`), API", ours: m.fromSnapshot(box)},
	}
	if d == nil {
		return lines
	}
	theirs := []side{
		{"docker run --rm", d.runCLI("true")},
		{"Docker API: create, start, exec", d.runAPI("true")},
		{"docker run --rm", d.runCLI("true")},
		{"docker exec", d.execCLI(container, "true")},
		{"Docker API: exec", d.execAPI(container, "true")},
		{"Docker API: exec", d.execAPI(container, python...)},
		{"Docker API: remove", d.destroy},
		{"Docker API: create, start, exec", d.burst(o.burst)},
		{"docker cp", d.upload(container, file)},
		{"docker cp", d.download(container, file)},
		{"docker run --rm", d.runCLI("true")},
		{"docker exec", d.execCLI(container, "true")},
		{"docker run --rm of Python", d.runCLI(python...)},
	}
	for i := range theirs { // Docker has no peer for the rest
		lines[i].peer, lines[i].theirs = theirs[i].name, theirs[i].run
	}
	return lines
}

// add measures one row.
func (r *report) add(ctx context.Context, rounds int, l line) error {
	if l.rounds > 0 {
		rounds = l.rounds
	}
	sides := []side{{"modbox", l.ours}}
	if l.theirs != nil {
		sides = append(sides, side{l.peer, l.theirs})
	}
	got, err := alternate(ctx, rounds, sides...)
	if err != nil {
		return err
	}
	done := row{what: l.what, target: l.target, ours: got[0]}
	if len(got) > 1 {
		done.peer = got[1]
	}
	r.rows = append(r.rows, done)
	fmt.Fprint(os.Stderr, done.line())
	return nil
}

// dockerIdle is how many idle containers are measured.
const dockerIdle = 20

// addIdle measures what idle sandboxes cost.
func (r *report) addIdle(ctx context.Context, n int, m *modbox, d *docker) error {
	pss, cpu, err := m.idle(ctx, n)
	if err != nil {
		return err
	}
	memory := fact{
		what: fmt.Sprintf("memory of one of %d idle sandboxes (PSS of all its host processes)", n),
		ours: mib(pss), target: "≤ " + mib(targetPSS), met: pss <= targetPSS,
	}
	if d != nil {
		theirs, err := d.idlePSS(ctx, dockerIdle)
		if err != nil {
			return err
		}
		memory.against, memory.theirs = fmt.Sprintf("one of %d containers with its shim", dockerIdle), mib(theirs)
		memory.ratio = fmt.Sprintf("%.2f", float64(pss)/float64(theirs))
	}
	r.facts = append(r.facts, memory, fact{
		what: fmt.Sprintf("CPU of %d idle sandboxes and the server", n), ours: fmt.Sprintf("%.1f %% of a core", 100*cpu),
		target: fmt.Sprintf("≤ %.0f %%", 100*targetIdle), met: cpu <= targetIdle,
	})
	return nil
}

// addProxy measures what the way through a sandbox's URL costs.
func (r *report) addProxy(ctx context.Context, m *modbox, box string) error {
	ours, inside, err := m.proxied(ctx, box)
	if err != nil {
		return err
	}
	const against = "the same client inside the sandbox"
	rate, added := ours.PerSecond/inside.PerSecond, ours.Latency-inside.Latency
	r.facts = append(r.facts, fact{
		what: fmt.Sprintf("requests a second through a sandbox's URL, %d connections kept, answers of 1 KiB", loadAtOnce),
		ours: fmt.Sprintf("%.0f", ours.PerSecond), against: against, theirs: fmt.Sprintf("%.0f", inside.PerSecond),
		ratio: fmt.Sprintf("%.2f", rate), target: fmt.Sprintf("≥ %.1f ×", targetProxy), met: rate >= targetProxy,
	}, fact{
		what: "time of one such request, one connection, p50", ours: ms(ours.Latency), against: against, theirs: ms(inside.Latency),
		target: "≤ " + ms(targetAdded) + " more", met: added <= targetAdded,
	})
	return nil
}
