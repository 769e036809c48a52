package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// The targets of the design, as ratios to Docker, and bytes.
const (
	targetCreate  = 0.25
	targetExec    = 0.08
	targetBurst   = 0.25
	targetResume  = 0.3
	targetWarm    = 0.03
	targetBlank   = 0.10
	targetCopy    = 1.0
	targetPSS     = 6 << 20
	targetIdle    = 0.005 // of a core, for idleTogether sandboxes
	targetIdleAPI = 2.0   // times the call without other sandboxes
	targetProxy   = 0.8   // of the requests, here more is better
	targetAdded   = 500 * time.Microsecond
	targetGroup   = 4 // times the commits of one client

	targetRoundTrip     = 3 * time.Millisecond
	targetSnapshot      = 150 * time.Millisecond
	targetSnapshotBytes = 1 << 20
)

// Line is one row to be measured.
type Line struct {
	What   string
	Task   Task    // "" for a line that is compared with no other product
	Target float64 // of the ratio to the peer; 0 for none
	Ours   Op
	Peer   string
	Theirs Op // nil without a peer
	Rounds int
}

// Task names a line that another product can do as well, so that the caller finds it for its peer.
type Task string

// The lines of [Lines] that other products can do. The alike tasks repeat the line above for a peer whose
// interface is an API, as ours is.
const (
	TaskCreate      Task = "create"
	TaskCreateAlike Task = "create, alike"
	TaskPool        Task = "create from the pool"
	TaskAnyImage    Task = "create in a box of any image"
	TaskExec        Task = "exec"
	TaskExecAlike   Task = "exec, alike"
	TaskPython      Task = "exec of Python"
	TaskDestroy     Task = "destroy"
	TaskBurst       Task = "creates at once"
	TaskUpload      Task = "upload"
	TaskDownload    Task = "download"
	TaskRunCLI      Task = "command line: run"
	TaskExecCLI     Task = "command line: exec"
	TaskResume      Task = "resume"
)

// Fixtures are the sandboxes and files that the lines use.
type Fixtures struct {
	Box, Idle, Data string // sandboxes: one with nothing in it, with an idle Python, with a warm context
	File            string // a path
	m               *Server
}

// NewFixtures makes the fixtures. After an error there are none.
func NewFixtures(ctx context.Context, m *Server) (f Fixtures, err error) {
	f.m = m
	defer func() {
		if err != nil {
			f.Close(ctx)
		}
	}()
	if f.File, err = RandomFile(); err != nil {
		return f, err
	}
	if f.Box, err = m.Start(ctx); err != nil {
		return f, err
	}
	if f.Idle, err = m.IdlePython(ctx); err != nil {
		return f, err
	}
	f.Data, err = m.StartData(ctx)
	return f, err
}

// Close removes the fixtures, also when ctx has ended.
func (f Fixtures) Close(ctx context.Context) {
	for _, id := range []string{f.Box, f.Idle, f.Data} {
		if id != "" {
			_ = f.m.Remove(context.WithoutCancel(ctx), id) // its ttl ends it otherwise
		}
	}
	_ = os.Remove(f.File) // there is none after an error
}

// Lines lists the measurements of times. Only the last three have a peer; the caller sets others.
func Lines(burst int, m *Server, f Fixtures) []Line {
	inPandas := func(id string) Op { return pandas(m, id) }
	return []Line{
		{What: "cold create → first output (`true`), API", Task: TaskCreate, Target: targetCreate, Ours: m.run("true")},
		{What: "the same, like with like", Task: TaskCreateAlike, Ours: m.run("true")},
		{What: "create from the pool → first output (`true`), API", Task: TaskPool, Target: targetWarm, Ours: m.runWarm("true")},
		{What: "create from a new snapshot with a box that fits any image → first output (`true`), API", Task: TaskAnyImage, Target: targetBlank, Ours: fromNewSnapshot(m, f.Box)},
		{What: "`true` in a running sandbox, API", Task: TaskExec, Target: targetExec, Ours: m.ExecAPI(f.Box, "true")},
		{What: "the same, like with like", Task: TaskExecAlike, Ours: m.ExecAPI(f.Box, "true")},
		{What: "`python3 -c 'print(1)'` in a running sandbox, API", Task: TaskPython, Ours: m.ExecAPI(f.Box, "python3", "-c", "print(1)")},
		{What: "destroy, API", Task: TaskDestroy, Ours: m.destroy},
		{What: fmt.Sprintf("%d creates at once → the last has answered, API", burst), Task: TaskBurst, Target: targetBurst, Ours: m.burst(burst), Rounds: 1},
		{What: "file of 100 MiB in", Task: TaskUpload, Target: targetCopy, Ours: m.upload(f.Box, f.File), Rounds: 5},
		{What: "file of 100 MiB out", Task: TaskDownload, Target: targetCopy, Ours: m.download(f.Box, f.File), Rounds: 5},
		{What: "`modbox run` of `true`, command line", Task: TaskRunCLI, Ours: m.runCLI("true")},
		{What: "`modbox exec` of `true`, command line", Task: TaskExecCLI, Ours: m.execCLI(f.Box, "true")},
		{What: "resume a paused sandbox with an idle Python → first output, API", Task: TaskResume, Target: targetResume, Ours: m.resume(f.Idle)},
		{What: "pause that sandbox, API", Ours: m.pause(f.Idle)},
		{What: "fork it, memory included → the copy has answered, API", Ours: m.Fork(f.Idle, 1)},
		{What: "fork it 10 times → all copies have answered, API", Ours: m.Fork(f.Idle, 10), Rounds: 5},
		{What: "create from a snapshot → first output (`true`), API", Ours: m.fromSnapshot(f.Box)},
		{What: "`1+1` in a warm Python context, API", Ours: m.Code(f.Data), Peer: "Modbox API: exec of `true` there", Theirs: m.ExecAPI(f.Data, "true")},
		{
			What: "cold create of a data sandbox → first `1+1` in Python, API", Ours: m.AfterCreate(m.Code),
			Peer: "Modbox API: the same with `true`", Theirs: m.AfterCreate(func(id string) Op { return m.ExecAPI(id, "true") }),
		},
		{
			What: "create of a data sandbox from a memory template → output after `import pandas`, API", Ours: fromTemplate(m, dataImage, inPandas),
			Peer: "Modbox API: the same without a template", Theirs: m.AfterCreate(inPandas), Rounds: 5,
		},
	}
}

// Options are the inputs of [Run].
type Options struct {
	// Rounds is the number of measurements of each row, Burst the number of sandboxes that are created at once, and
	// Idle the number of sandboxes whose idle memory and CPU are measured.
	Rounds, Burst, Idle int
	// IdleTime is the duration of that measurement.
	IdleTime time.Duration
	// Seen is called after each row and fact.
	Seen func(text string)
}

// Run measures a server, and removes all that it made on it. With an error the report has what was
// measured before.
func Run(ctx context.Context, m *Server, o Options) (*Report, error) {
	r := NewReport(m.Version(ctx), o.Rounds, o.Seen)
	return r, errors.Join(r.runAll(ctx, m, o), m.removeSnapshots(ctx))
}

func (r *Report) runAll(ctx context.Context, m *Server, o Options) error {
	f, err := NewFixtures(ctx, m)
	if err != nil {
		return err
	}
	defer f.Close(ctx)
	for _, l := range Lines(o.Burst, m, f) {
		if l.Task == TaskCreateAlike || l.Task == TaskExecAlike { // they repeat the line above for a peer
			continue
		}
		if err := r.Add(ctx, o.Rounds, l); err != nil {
			return fmt.Errorf("%s: %w", l.What, err)
		}
	}
	if err := r.AddCommits(ctx, o.Rounds, m); err != nil {
		return fmt.Errorf("commits: %w", err)
	}
	if err := r.AddRoundTrip(ctx, o.Rounds, m, f.Data); err != nil {
		return fmt.Errorf("round trip: %w", err)
	}
	if err := r.AddSnapshot(ctx, o.Rounds, m); err != nil {
		return fmt.Errorf("snapshots: %w", err)
	}
	if err := r.AddStandstill(ctx, o.Rounds, m); err != nil {
		return fmt.Errorf("standstill: %w", err)
	}
	if err := r.AddProxy(ctx, o.Rounds, m, f.Box); err != nil {
		return fmt.Errorf("requests through a URL: %w", err)
	}
	if err := r.AddIdle(ctx, o.Idle, o.IdleTime, m, "", nil); err != nil {
		return fmt.Errorf("idle sandboxes: %w", err)
	}
	return nil
}

// Add measures one row.
func (r *Report) Add(ctx context.Context, rounds int, l Line) error {
	if l.Rounds > 0 {
		rounds = min(rounds, l.Rounds)
	}
	sides := []Side{{"modbox", l.Ours}}
	if l.Theirs != nil {
		sides = append(sides, Side{l.Peer, l.Theirs})
	}
	got, err := Alternate(ctx, rounds, sides...)
	if err != nil {
		return err
	}
	done := Row{What: l.What, Target: l.Target, Ours: got[0]}
	if len(got) > 1 {
		done.Peer = got[1]
	}
	r.Rows = append(r.Rows, done)
	r.see(done)
	return nil
}

// AddProxy measures the cost of the way through a sandbox's URL, in at most loadRounds rounds.
func (r *Report) AddProxy(ctx context.Context, rounds int, m *Server, box string) error {
	if m.Inside.Program == "" {
		return nil
	}
	ours, inside, err := m.proxied(ctx, min(rounds, loadRounds), box)
	if err != nil {
		return err
	}
	const against = "the same client inside the sandbox"
	rate, added := ours.PerSecond/inside.PerSecond, ours.Latency-inside.Latency
	r.Facts = append(r.Facts, Fact{
		What: fmt.Sprintf("requests a second through a sandbox's URL, %d connections kept, answers of 1 KiB", LoadAtOnce),
		Ours: fmt.Sprintf("%.0f", ours.PerSecond), Against: against, Theirs: fmt.Sprintf("%.0f", inside.PerSecond),
		Ratio: fmt.Sprintf("%.2f", rate), Target: fmt.Sprintf("≥ %.1f ×", targetProxy), Met: rate >= targetProxy,
	}, Fact{
		What: "time of one such request, one connection, p50", Ours: Milliseconds(ours.Latency), Against: against, Theirs: Milliseconds(inside.Latency),
		Target: "≤ " + Milliseconds(targetAdded) + " more", Met: added <= targetAdded,
	})
	return nil
}
