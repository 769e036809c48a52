package prove

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/doctor"
)

// clusterTime bounds the life of the sandboxes of a proof of a cluster, which is longer than the proof.
const clusterTime = 2 * totalTime

// connected is the state of a worker that the server has a connection to.
const connected = "connected"

// recordTime bounds calls that record something on the server and return. They do not end with an interruption, after which it would be
// unknown whether they had an effect.
const recordTime = 30 * time.Second

// ClusterOptions are the inputs of a proof of a cluster.
type ClusterOptions struct {
	// API acts as an administrator of the installation.
	API *client.Client
	// Image is the image of the sandboxes; "" is the default of the workspace.
	Image string
}

// clusterProof is a proof of a cluster under way.
type clusterProof struct {
	ClusterOptions
	box guest // its sandbox, by the name
	// worker is the name of the worker on which the sandbox was created.
	worker string
	// drained is the id of the worker that the proof may have begun to drain; "" for none.
	drained string
	counted int // the last number of the counter in the sandbox
	// fix is the advice about what the last row found, which holds with a limit; "" for none.
	fix string
}

// clusterRow is something to try. It returns what it saw.
type clusterRow struct {
	name string
	try  func(*clusterProof, context.Context) (string, error)
}

var clusterRows = []clusterRow{
	{"workers", (*clusterProof).workers},
	{"create", (*clusterProof).create},
	{"exec", (*clusterProof).exec},
	{"counter", (*clusterProof).startCounter},
	{"pause", (*clusterProof).pause},
	{"drain", (*clusterProof).drain},
	{"resume", (*clusterProof).resume},
	{"counter goes on", (*clusterProof).counterGoesOn},
	{"undrain", (*clusterProof).undrain},
	{forkRow, (*clusterProof).fork},
	{"destroy", (*clusterProof).destroy},
}

// forkRow is the name of the row about forks.
const forkRow = "fork"

// RunCluster tries through the API of a running cluster whether its workers run, save and take over sandboxes, and returns the results. It
// calls seen, unless nil, after each row. After a row that does not hold, or once ctx has ended, it tries no further row, but undoes all that
// it did.
func RunCluster(ctx context.Context, o ClusterOptions, seen func(doctor.Result)) []doctor.Result {
	return runCluster(ctx, o, clusterRows, seen)
}

func runCluster(ctx context.Context, o ClusterOptions, rows []clusterRow, seen func(doctor.Result)) []doctor.Result {
	ctx, cancel := context.WithTimeout(ctx, totalTime)
	defer cancel()
	p := &clusterProof{ClusterOptions: o, box: guest{o.API, "doctor-" + strings.ToLower(rand.Text()[:10])}}
	var results []doctor.Result
	failed := ""
	add := func(r doctor.Result) {
		switch {
		case r.Status == doctor.Fail:
			failed = r.Name
			r.Fix = "see the message, `modbox workers ls`, and the logs of the server and the workers (docs/cluster.md)"
		case r.Status == doctor.OK && p.fix != "":
			r.Status, r.Fix = doctor.Warn, p.fix
		}
		p.fix = ""
		results = append(results, r)
		if seen != nil {
			seen(r)
		}
	}
	for _, row := range rows {
		if failed != "" {
			add(result(row.name, "", untried(fmt.Sprintf("the row %q does not hold", failed))))
			continue
		}
		add(attempt(ctx, row.name, func(ctx context.Context) (string, error) { return row.try(p, ctx) }))
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), rowTime)
	defer cancel()
	add(result("nothing left", "no sandbox of the proof remains, and no worker is drained by it", p.undo(ctx)))
	return results
}

// workers lists the workers.
func (p *clusterProof) workers(ctx context.Context) (string, error) {
	list, err := p.API.Workers.List().Collect(ctx)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", errors.New("the server has no workers: its sandboxes run on its own machine, which `modbox doctor --prove` proves there")
	}
	var texts, fixes []string
	takes := 0
	for _, w := range list {
		texts = append(texts, describe(w))
		switch {
		case w.State != connected:
			fixes = append(fixes, fmt.Sprintf("start %s, or remove it: modbox workers rm %s", w.Name, w.Name))
		case w.Draining:
			fixes = append(fixes, fmt.Sprintf("if nobody drains %s on purpose: modbox workers undrain %s", w.Name, w.Name))
		default:
			takes++
		}
	}
	p.fix = strings.Join(fixes, "; ")
	detail := strings.Join(texts, "; ")
	if takes == 0 {
		return "", fmt.Errorf("no worker takes sandboxes: %s", detail)
	}
	return fmt.Sprintf("%d of %d take sandboxes: %s", takes, len(list), detail), nil
}

func describe(w client.Worker) string {
	switch {
	case w.State != connected:
		return w.Name + " is away"
	case w.Draining:
		return w.Name + " is being drained"
	case w.MemoryPromisedMaxBytes == 0:
		return w.Name + " promises memory without a limit"
	}
	size := func(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
	return fmt.Sprintf("%s has %s of %s for more", w.Name, size(w.MemoryPromisedMaxBytes-w.MemoryPromisedBytes), size(w.MemoryPromisedMaxBytes))
}

// create makes the sandbox.
func (p *clusterProof) create(ctx context.Context) (string, error) {
	if err := p.record(ctx, func(ctx context.Context) error {
		_, err := p.API.Sandboxes.Create(ctx, client.CreateOptions{
			Name: p.box.ref, Image: p.Image, Description: "made by modbox doctor --cluster",
			Resources: client.Resources{Memory: memory, Disk: disk, CPU: "1"}, TTL: clusterTime,
		})
		return err
	}); err != nil {
		return "", err
	}
	sb, err := p.API.Sandboxes.Wait(ctx, p.box.ref, client.Running)
	switch {
	case err != nil:
		return "", err
	case sb.State != client.Running:
		return "", fmt.Errorf("the sandbox is %s%s", sb.State, causeOf(sb))
	case sb.Worker == "":
		return "", errors.New("the server does not say on which worker the sandbox is; it must have the version of this program")
	}
	p.worker = sb.Worker
	return fmt.Sprintf("a sandbox of %s runs on %s", memory, sb.Worker), nil
}

// record makes a call that records something on the server. It goes on after an interruption.
func (p *clusterProof) record(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	return call(ctx)
}

func (p *clusterProof) exec(ctx context.Context) (string, error) {
	return "a command ran in it, and a file has what the command wrote", p.box.hello(ctx)
}

func (p *clusterProof) startCounter(ctx context.Context) (string, error) {
	p.counted = 1
	return "a process in it counts in its memory", p.box.startCounter(ctx)
}

func (p *clusterProof) pause(ctx context.Context) (string, error) {
	sb, err := p.API.Sandboxes.Pause(ctx, p.box.ref)
	switch {
	case err != nil:
		return "", err
	case sb.State != client.Paused || sb.PausedWithoutMemory:
		return "", fmt.Errorf("the sandbox is %s after a pause with its memory", sb.State)
	case sb.Worker != "":
		return "", fmt.Errorf("the paused sandbox is still on %s", sb.Worker)
	}
	return "its memory and its files are saved, and it is on no worker", nil
}

// drain drains the worker on which the sandbox was, if there is another for it.
func (p *clusterProof) drain(ctx context.Context) (string, error) {
	list, err := p.API.Workers.List().Collect(ctx)
	if err != nil {
		return "", err
	}
	var others []string
	var own *client.Worker
	if i := slices.IndexFunc(list, func(w client.Worker) bool { return w.Name == p.worker }); i >= 0 {
		own = &list[i]
	}
	for _, w := range list {
		switch {
		case own == nil || w.Name == p.worker || w.ShardRanges != own.ShardRanges: // the sandbox stays with its server
		case w.State == connected && !w.Draining && (w.MemoryPromisedMaxBytes == 0 || w.MemoryPromisedMaxBytes-w.MemoryPromisedBytes >= memoryBytes):
			others = append(others, w.Name)
		}
	}
	switch {
	case own == nil:
		return "", untried(p.worker + " is gone, as the Pod of a paused sandbox is, and the sandbox will be resumed on another worker")
	case own.Draining:
		return "", untried("somebody else drains " + p.worker)
	case len(list) == 1:
		return "", untried("there is only one worker, so that the move to another was not tried")
	case len(others) == 0:
		return "", untried("no other worker is connected, not drained, and has " + memory + " for more, so that the move was not tried")
	}
	p.drained = own.ID
	if err := p.record(ctx, func(ctx context.Context) error { return present(p.setDraining(ctx, true)) }); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s gets no sandbox; %s can", p.worker, strings.Join(others, ", ")), nil
}

// setDraining drains the worker, or ends that.
func (p *clusterProof) setDraining(ctx context.Context, on bool) error {
	w, err := p.API.Workers.Update(ctx, p.drained, client.WorkerChanges{Draining: &on})
	if err == nil && w.Draining != on {
		err = fmt.Errorf("the server says that the worker %s is being drained: %t, want %t", w.Name, w.Draining, on)
	}
	return err
}

// resume resumes the sandbox, on another worker if its own is drained.
func (p *clusterProof) resume(ctx context.Context) (string, error) {
	sb, err := p.API.Sandboxes.Resume(ctx, p.box.ref, client.ResumeOptions{Memory: client.MemoryRequire})
	switch {
	case err != nil:
		return "", err
	case sb.Worker == "":
		return "", errors.New("the resumed sandbox is on no worker")
	case p.drained != "" && sb.Worker == p.worker:
		return "", fmt.Errorf("the sandbox is on %s, which is being drained", sb.Worker)
	case sb.Worker == p.worker:
		return "with its memory on the same worker, " + sb.Worker, nil
	}
	return fmt.Sprintf("with its memory on another worker, %s", sb.Worker), nil
}

func (p *clusterProof) counterGoesOn(ctx context.Context) (string, error) {
	p.counted++
	return fmt.Sprintf("the process in it goes on with %d", p.counted), p.box.counts(ctx, p.counted)
}

// fork forks the sandbox, and destroys the fork.
func (p *clusterProof) fork(ctx context.Context) (string, error) {
	var fork client.Forked
	if err := p.record(ctx, func(ctx context.Context) error {
		list, err := p.API.Sandboxes.Fork(ctx, p.box.ref, client.ForkOptions{Names: []string{p.forkName()}, TTL: clusterTime})
		if err == nil {
			fork = list[0]
			err = fork.Err
		}
		return err
	}); err != nil {
		return "", err
	}
	if err := (guest{p.API, p.forkName()}).counts(ctx, p.counted+1); err != nil {
		return "", err
	}
	_, err := p.API.Sandboxes.Delete(ctx, p.forkName())
	return fmt.Sprintf("a fork on %s has the memory of the sandbox", fork.Sandbox.Worker), err
}

func (p *clusterProof) forkName() string { return p.box.ref + "-fork" }

func (p *clusterProof) undrain(ctx context.Context) (string, error) {
	if p.drained == "" {
		return "", untried("the proof drained no worker")
	}
	if err := present(p.setDraining(ctx, false)); err != nil {
		return "", err
	}
	p.drained = ""
	return p.worker + " gets sandboxes again", nil
}

func (p *clusterProof) destroy(ctx context.Context) (string, error) {
	sb, err := p.API.Sandboxes.Delete(ctx, p.box.ref)
	switch {
	case err != nil:
		return "", err
	case sb.State != client.Destroyed || sb.Worker != "":
		return "", fmt.Errorf("the sandbox is %s, on the worker %q", sb.State, sb.Worker)
	}
	return "the sandbox is destroyed, and on no worker", nil
}

// undo destroys the sandboxes, and ends the drain.
func (p *clusterProof) undo(ctx context.Context) (err error) {
	if p.drained != "" {
		if e := persist(ctx, func() error { return present(p.setDraining(ctx, false)) }); e != nil {
			err = fmt.Errorf("the worker %s is perhaps still being drained, end that with `modbox workers undrain %s`: %w", p.worker, p.worker, e)
		}
	}
	for _, name := range []string{p.forkName(), p.box.ref} {
		destroy := func() error {
			_, err := p.API.Sandboxes.Delete(ctx, name)
			return present(err)
		}
		if e := persist(ctx, destroy); e != nil {
			err = errors.Join(err, fmt.Errorf("the sandbox %s may remain, and ends by itself %s after its creation: %w", name, clusterTime, e))
		}
	}
	return err
}

// present returns the error of a call about something that is perhaps not there.
func present(err error) error {
	if client.IsCode(err, client.NotFound) {
		return nil
	}
	return err
}

// persist calls f until it succeeds, the server refuses it, or ctx ends.
func persist(ctx context.Context, f func() error) error {
	for {
		err := f()
		var answer *client.Error
		if err == nil || errors.As(err, &answer) && answer.Code != client.Unavailable {
			return err
		}
		select {
		case <-time.After(undoPause):
		case <-ctx.Done():
			return err
		}
	}
}

// undoPause is the pause between two attempts to undo something.
const undoPause = time.Second
