// Package doctor finds out what a host lacks to run Modbox, and how to fix that. It changes
// nothing; the last check starts a real sandbox.
package doctor

import (
	"context"
	"time"
)

// Status is how a check ended.
type Status string

// The statuses.
const (
	OK   Status = "ok"   // as it should be
	Warn Status = "warn" // works, with a limit that Detail names
	Fail Status = "fail" // Modbox does not work here until this is mended
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
	// SharedOrigin is whether pages of sandboxes have the host at which people sign in
	// with a browser, and SharedOriginFix what to do about it.
	SharedOrigin    bool
	SharedOriginFix string
	// Quarantine describes the files that the server stores although its database does not know
	// them; "" for none.
	Quarantine func(ctx context.Context) (string, error)
	// FirstToken returns what there is to know of the first token; nil when none works.
	FirstToken func(ctx context.Context) (*FirstToken, error)
	// LastBackup returns when the last backup was made, zero for never; nil when the
	// server makes none by itself. BackupEvery is how often it does.
	LastBackup  func() (time.Time, error)
	BackupEvery time.Duration
	// Running is the address that the server of StateDir listens on; "" when it does not run.
	Running string
	// Images returns the images that must be built before a server is used, and whether they are.
	Images func(ctx context.Context) (map[string]bool, error)
	// Sandbox starts a sandbox and returns the result; see [TrySandbox].
	Sandbox func(ctx context.Context) (Trial, error)
}

// sandboxTime bounds the start of a sandbox.
const sandboxTime = time.Minute

// Run makes all checks, in order, and returns what each found. It calls seen,
// when given, after each.
func Run(ctx context.Context, o Options, seen func(Result)) []Result {
	var results []Result
	for _, check := range []func(context.Context, Options) Result{
		architecture, kernel, userNamespaces, controlGroups, memory, stateDir, quarantine, backups, firstToken, capacity, runDir, openFiles, port, origin, tools, images, trySandbox,
	} {
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

// origin finds out whether only a header keeps pages of sandboxes from being the API's.
func origin(_ context.Context, o Options) Result {
	if o.SharedOrigin {
		return warn("sandbox URLs", "pages of sandboxes have the host at which people sign in, and only a header keeps browsers from taking them for one origin", o.SharedOriginFix)
	}
	return ok("sandbox URLs", "no sign-in by other services shares its host with pages of sandboxes")
}
