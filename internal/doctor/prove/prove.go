// Package prove tries on this host what the documentation promises: it starts a server with a state of its
// own, makes sandboxes, kills them and the server, fills disks, exceeds limits, and looks for remains.
package prove

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/internal/doctor/ownserver"
)

// poll is the time between two looks at other processes.
const poll = 20 * time.Millisecond

// totalTime bounds all rows together, and rowTime one row.
const totalTime, rowTime = 10 * time.Minute, 2 * time.Minute

// Options are the inputs of a proof.
type Options struct {
	// Program is the binary of the server.
	Program string
	// StateDir and RunDir are the directories in which the proof makes its own, and removes them.
	StateDir, RunDir string
	// Images is the directory of the image store with the image Image.
	Images, Image string
}

// proof is a proof under way.
type proof struct {
	*ownserver.Server
	image string
}

// untried is the reason for which a row was not tried.
type untried string

func (u untried) Error() string { return string(u) }

// row is something to try. It returns what it saw.
type row struct {
	name string
	try  func(context.Context, *proof) (string, error)
}

var rows = []row{
	{"create and exec", createAndExec},
	{"memory limit", memoryLimit},
	{"process limit", processLimit},
	{"disk limit", diskLimit},
	{"network off", networkOff},
	{"pause and resume", pauseAndResume},
	{"fork", fork},
	{"killed server", killedServer},
	{"killed sandbox", killedSandbox},
	{"destroy", destroy},
}

// Run tries all rows in order and returns their results. It calls seen, unless nil, after each. Once
// ctx has ended it tries no further row, but ends and removes all that it made.
func Run(ctx context.Context, o Options, seen func(doctor.Result)) []doctor.Result {
	ctx, cancel := context.WithTimeout(ctx, totalTime)
	defer cancel()
	var results []doctor.Result
	add := func(r doctor.Result) {
		results = append(results, r)
		if seen != nil {
			seen(r)
		}
	}
	own, err := ownserver.Open(ctx, ownserver.Options{Program: o.Program, StateDir: o.StateDir, RunDir: o.RunDir, Images: o.Images, Names: []string{o.Image}, Name: "prove", Args: []string{"--pool-size", "0"}})
	p := &proof{own, o.Image}
	add(result("server", "a server with a state of its own runs", err))
	for _, row := range rows {
		if err != nil {
			add(result(row.name, "", untried("the server of the proof did not start")))
			continue
		}
		add(p.tryRow(ctx, row))
	}
	if own == nil {
		add(result("nothing left", "", untried("the directories of the proof could not be made")))
		return results
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), rowTime)
	defer cancel()
	add(result("nothing left", "no process, mount, control group or file of the sandboxes remains", p.Close(ctx)))
	return results
}

func result(name, detail string, err error) doctor.Result {
	r := doctor.Result{Name: name, Status: doctor.OK, Detail: detail}
	var reason untried
	switch {
	case errors.As(err, &reason):
		r.Status, r.Detail = doctor.Untried, "not tried: "+string(reason)
	case err != nil:
		r.Status, r.Detail = doctor.Fail, "does not hold: "+err.Error()
		r.Fix = "see the checks of `modbox doctor`; if they find nothing, report this"
	}
	return r
}

// tryRow tries a row within its time, with a server that runs.
func (p *proof) tryRow(ctx context.Context, row row) doctor.Result {
	return attempt(ctx, row.name, func(ctx context.Context) (string, error) {
		if !p.Alive() {
			if err := p.Launch(ctx); err != nil {
				return "", untried("the server ended in the row before and did not start again: " + err.Error())
			}
		}
		return row.try(ctx, p)
	})
}

// attempt tries a row within its time.
func attempt(ctx context.Context, name string, try func(context.Context) (string, error)) doctor.Result {
	if ctx.Err() != nil {
		reason := "the proof was interrupted"
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			reason = fmt.Sprintf("the rows before it took all of the %s", totalTime)
		}
		return result(name, "", untried(reason))
	}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, rowTime)
	defer cancel()
	began := time.Now()
	detail, err := try(ctx)
	if err != nil && whole.Err() != nil {
		return result(name, "", untried("the proof was interrupted"))
	}
	return result(name, fmt.Sprintf("%s (%.1f s)", detail, time.Since(began).Seconds()), err)
}
