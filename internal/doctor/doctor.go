// Package doctor finds out what a host lacks to run Modbox, and how to fix that. It changes
// nothing; the last check starts a real sandbox, unless workers run the sandboxes of the server.
package doctor

import (
	"context"
	"time"
)

// Status is the outcome of a check.
type Status string

// The statuses.
const (
	OK   Status = "ok"   // no problem
	Warn Status = "warn" // works, with a limit that Detail names
	Fail Status = "fail" // Modbox does not work here until this is fixed

	Untried Status = "untried" // could not be checked, for the reason that Detail names
)

// Result is the result of a check.
type Result struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Detail describes the finding in a few sentences.
	Detail string `json:"detail"`
	// Fix is the advice; empty when nothing needs to be done.
	Fix string `json:"fix,omitempty"`
}

// Options are the inputs of the checks.
type Options struct {
	StateDir, RunDir string
	// Capacity describes how much the server promises on this machine, in total and to a workspace.
	Capacity func() (string, error)
	// Listen is the address the server is to listen on.
	Listen string
	// SharedOrigin reports whether sandboxes' pages have the same host as sign-ins with a browser;
	// SharedOriginFix is the advice against it.
	SharedOrigin    bool
	SharedOriginFix string
	// Quarantine describes the files in quarantine, which the database does not know; "" for none.
	Quarantine func(ctx context.Context) (string, error)
	// Database connects to the PostgreSQL database, and returns warnings about its settings; nil with SQLite.
	Database func(ctx context.Context) (warnings []string, err error)
	// FirstToken returns the facts about the first token; nil when none is valid.
	FirstToken func(ctx context.Context) (*FirstToken, error)
	// LastBackup returns the time of the last backup, zero for never; nil when the server makes no
	// automatic backups. BackupEvery is their interval.
	LastBackup  func() (time.Time, error)
	BackupEvery time.Duration
	// Running is the address that the server of StateDir listens on; "" when it does not run.
	Running string
	// Workers describes the workers that run the sandboxes of the server; fix is the advice if sandboxes have no worker. Then Run does not check what
	// sandboxes need on this machine. nil for a server that runs sandboxes itself.
	Workers func(ctx context.Context) (detail, fix string, err error)
	// Images reports by name whether the images that a server needs are built.
	Images func(ctx context.Context) (map[string]bool, error)
	// Platform describes what runs the programs of new sandboxes, and why; fix is the advice, empty when nothing needs to be done.
	Platform func() (detail, fix string, err error)
	// Sandbox starts a sandbox and returns the result; see [TrySandbox].
	Sandbox func(ctx context.Context) (Trial, error)
}

// sandboxTime bounds the start of a sandbox.
const sandboxTime = time.Minute

// Run makes all checks that concern the server, in order, and returns their results. It calls seen, unless nil, after each.
func Run(ctx context.Context, o Options, seen func(Result)) []Result {
	checks := []func(context.Context, Options) Result{
		architecture, kernel, userNamespaces, controlGroups, memory, stateDir, postgres, quarantine, backups, firstToken, capacity, runDir, openFiles, port, origin, tools, images, platform, trySandbox,
	}
	if o.Workers != nil {
		checks = []func(context.Context, Options) Result{architecture, kernel, stateDir, postgres, quarantine, backups, firstToken, openFiles, port, origin, workers}
	}
	var results []Result
	for _, check := range checks {
		r := check(ctx, o)
		if seen != nil {
			seen(r)
		}
		results = append(results, r)
	}
	return results
}

// Failed reports whether any result is Fail.
func Failed(results []Result) bool {
	for _, r := range results {
		if r.Status == Fail {
			return true
		}
	}
	return false
}

func ok(name, detail string) Result        { return Result{Name: name, Status: OK, Detail: detail} }
func warn(name, detail, fix string) Result { return Result{name, Warn, detail, fix} }
func fail(name, detail, fix string) Result { return Result{name, Fail, detail, fix} }

// origin checks that more than a header separates sandboxes' pages from the API's origin.
func origin(_ context.Context, o Options) Result {
	if o.SharedOrigin {
		return warn("sandbox URLs", "pages of sandboxes have the host at which people sign in, and only a header keeps browsers from taking them for one origin", o.SharedOriginFix)
	}
	return ok("sandbox URLs", "no sign-in by other services shares its host with pages of sandboxes")
}

// workers checks that workers have joined a server whose sandboxes they run.
func workers(ctx context.Context, o Options) Result {
	const name = "workers"
	detail, fix, err := o.Workers(ctx)
	switch {
	case err != nil:
		return fail(name, err.Error(), "see docs/cluster.md")
	case fix != "":
		return warn(name, detail, fix)
	}
	return ok(name, detail)
}
