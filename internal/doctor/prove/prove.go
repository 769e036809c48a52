// Package prove tries on this host what the documentation promises: it starts a server with a state of its
// own, makes sandboxes, kills them and the server, fills disks, exceeds limits, and looks for remains.
package prove

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/internal/statedir"
)

// totalTime bounds all rows together, rowTime one row, and endTime the end of the server.
const totalTime, rowTime, endTime = 10 * time.Minute, 2 * time.Minute, 30 * time.Second

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
	Options
	*server
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
	p, err := open(ctx, o)
	add(result("server", "a server with a state of its own runs", err))
	for _, row := range rows {
		if err != nil {
			add(result(row.name, "", untried("the server of the proof did not start")))
			continue
		}
		add(p.tryRow(ctx, row))
	}
	if p == nil {
		add(result("nothing left", "", untried("the directories of the proof could not be made")))
		return results
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), rowTime)
	defer cancel()
	add(result("nothing left", "no process, mount, control group or file of the sandboxes remains", p.close(ctx)))
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
	if ctx.Err() != nil {
		reason := "the proof was interrupted"
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			reason = fmt.Sprintf("the rows before it took all of the %s", totalTime)
		}
		return result(row.name, "", untried(reason))
	}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, rowTime)
	defer cancel()
	if !p.alive() {
		if err := p.launch(ctx); err != nil {
			return result(row.name, "", untried("the server ended in the row before and did not start again: "+err.Error()))
		}
	}
	began := time.Now()
	detail, err := row.try(ctx, p)
	if err != nil && whole.Err() != nil {
		return result(row.name, "", untried("the proof was interrupted"))
	}
	return result(row.name, fmt.Sprintf("%s (%.1f s)", detail, time.Since(began).Seconds()), err)
}

// open makes the directories of a proof and starts its server. With an error after the directories
// were made it also returns the proof, for [proof.close].
func open(ctx context.Context, o Options) (p *proof, err error) {
	if err := statedir.Make(o.RunDir); err != nil {
		return nil, err
	}
	s := &server{program: o.Program}
	if s.runDir, err = os.MkdirTemp(o.RunDir, "p"); err != nil {
		return nil, err
	}
	if s.stateDir, err = os.MkdirTemp(o.StateDir, "prove-"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.runDir))
	}
	p = &proof{o, s}
	if err := linkImage(ctx, o.Images, filepath.Join(s.stateDir, statedir.ImagesDir), o.Image); err != nil {
		return p, fmt.Errorf("link the image %s: %w", o.Image, err)
	}
	return p, p.launch(ctx)
}
