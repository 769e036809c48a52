// Package computer has the routes of /v1 that use the desktops of sandboxes.
package computer

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/desktop"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Sandboxes finds sandboxes. [lifecycle.Service] implements it.
type Sandboxes interface {
	// Get returns the sandbox of an id or a name. Errors: NotFound.
	Get(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Sandbox, error)
}

// Routes are the routes' functions. All fields must be set.
type Routes struct {
	Guest     *guest.Calls
	Sandboxes Sandboxes
	Recorder  *desktop.Recorder
}

// WindowRef are the path parameters that name a window. It is exported because huma passes over
// embedded types that are not.
type WindowRef struct {
	route.SandboxRef
	Window string `path:"window" maxLength:"32" doc:"The window's id."`
}

// RecordingRef are the path parameters that name a recording.
type RecordingRef struct {
	route.SandboxRef
	Recording string `path:"recording" format:"uuid" doc:"The recording's id."`
}

// The inputs of the routes.
type (
	windowsInput struct {
		route.SandboxRef
		route.PageInput
	}
	resizeInput struct {
		route.SandboxRef
		Body wire.ResizeDesktop
	}
	actInput struct {
		route.SandboxRef
		Body wire.DesktopActions
	}
	openInput struct {
		route.SandboxRef
		Body wire.OpenOnDesktop
	}
	recordInput struct {
		route.SandboxRef
		Body *wire.StartRecording `required:"false"`
	}
	recordingsInput struct {
		route.SandboxRef
		route.PageInput
	}
)

// target returns the desktop of a sandbox. The audit log has neither texts nor keys.
func (r *Routes) target(ctx context.Context, ref string) desktop.Target {
	c := route.Caller(ctx)
	in := command.Sandbox{Exec: func(ctx context.Context, cmd agentapi.Command) (*guest.Command, error) {
		return r.Guest.Exec(ctx, c, ref, cmd)
	}}
	return desktop.Target{Run: func(ctx context.Context, cmd desktop.Command) (desktop.Result, error) {
		var stdin *strings.Reader
		if cmd.Stdin != "" {
			stdin = strings.NewReader(cmd.Stdin)
		}
		ctx = codescan.WithArgv(audit.WithEntry(ctx, nil), cmd.Program)
		res, err := command.Run(ctx, in, agentapi.Command{Argv: cmd.Argv, Timeout: cmd.Timeout}, stdin, cmd.MaxOutput)
		return desktop.Result{Code: res.Code, TimedOut: res.TimedOut, Stdout: res.Stdout, Stderr: res.Stderr, Truncated: res.StdoutTruncated}, err
	}}
}

// describe answers the size of the screen and the position of the pointer.
func (r *Routes) describe(ctx context.Context, in *route.SandboxRef) (*route.Body[wire.Desktop], error) {
	s, err := r.target(ctx, in.Ref).Screen(ctx)
	if err != nil {
		return nil, err
	}
	return screen(s), nil
}

func screen(s desktop.Screen) *route.Body[wire.Desktop] {
	return route.Reply(wire.Desktop{Width: s.Width, Height: s.Height, Cursor: wire.Point{X: s.X, Y: s.Y}})
}

// resize changes the size of the screen.
func (r *Routes) resize(ctx context.Context, in *resizeInput) (*route.Body[wire.Desktop], error) {
	s, err := r.target(ctx, in.Ref).Resize(ctx, in.Body.Width, in.Body.Height)
	if err != nil {
		return nil, err
	}
	return screen(s), nil
}

// screenshot answers a picture of the screen.
func (r *Routes) screenshot(w http.ResponseWriter, req *http.Request) error {
	q := req.URL.Query()
	var area desktop.Area
	given := 0
	for name, into := range map[string]*int{"x": &area.X, "y": &area.Y, "width": &area.Width, "height": &area.Height} {
		if q.Get(name) == "" {
			continue
		}
		n, err := strconv.Atoi(q.Get(name))
		if err != nil || n < 0 || n > desktop.MaxSide {
			return sandbox.InvalidField(name, "must be a number of pixels")
		}
		*into = n
		given++
	}
	if given != 0 && (area.Width == 0 || area.Height == 0) {
		return sandbox.InvalidField("width", "give width and height, and x and y unless they are 0, or none of them")
	}
	pointer := false
	if v := q.Get("pointer"); v != "" {
		var err error
		if pointer, err = strconv.ParseBool(v); err != nil {
			return sandbox.InvalidField("pointer", "must be true or false")
		}
	}
	picture, err := r.target(req.Context(), req.PathValue("sandbox")).Screenshot(req.Context(), area, pointer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "image/png")
	w.Header().Set("Content-Length", strconv.Itoa(len(picture)))
	_, err = w.Write(picture)
	return err
}

// act uses mouse and keyboard.
func (r *Routes) act(ctx context.Context, in *actInput) (*struct{}, error) {
	actions := make([]desktop.Action, len(in.Body.Actions))
	for i, a := range in.Body.Actions {
		actions[i] = desktop.Action{
			Kind: desktop.Kind(a.Type), At: point(a.At), To: point(a.To), Button: a.Button, Clicks: a.Clicks, Direction: a.Direction, Amount: a.Amount,
			Text: a.Text, Keys: a.Keys, Hold: a.Hold, Wait: time.Duration(a.DurationMS) * time.Millisecond,
		}
	}
	return nil, r.target(ctx, in.Ref).Do(ctx, actions)
}

func point(p *wire.Point) *desktop.Point {
	if p == nil {
		return nil
	}
	return &desktop.Point{X: p.X, Y: p.Y}
}

// windows lists the windows.
func (r *Routes) windows(ctx context.Context, in *windowsInput) (*route.Body[wire.Page[wire.DesktopWindow]], error) {
	list, err := r.target(ctx, in.Ref).Windows(ctx)
	return route.PagedOf(in.PageInput, list, err, page.Order[desktop.Window]{
		Name: "windows", Key: func(w desktop.Window) string { return fmt.Sprintf("%10s", w.ID) }, // ids have up to ten characters
	}, func(w desktop.Window) wire.DesktopWindow {
		return wire.DesktopWindow{ID: w.ID, Title: w.Title, WMClass: w.Class, PID: w.PID, X: w.X, Y: w.Y, Width: w.Width, Height: w.Height, Active: w.Active}
	})
}

// focus raises a window.
func (r *Routes) focus(ctx context.Context, in *WindowRef) (*struct{}, error) {
	return nil, r.target(ctx, in.Ref).Focus(ctx, in.Window)
}

// close closes a window.
func (r *Routes) close(ctx context.Context, in *WindowRef) (*struct{}, error) {
	return nil, r.target(ctx, in.Ref).Close(ctx, in.Window)
}

// open opens a URL or a file, or starts a program.
func (r *Routes) open(ctx context.Context, in *openInput) (*struct{}, error) {
	t := r.target(ctx, in.Ref)
	switch {
	case in.Body.Target != "" && len(in.Body.Command) > 0:
		return nil, sandbox.InvalidField("command", "give either target or command, not both")
	case in.Body.Target != "":
		return nil, t.Open(ctx, in.Body.Target)
	case len(in.Body.Command) == 0:
		return nil, sandbox.InvalidField("target", "give target (a URL or a path) or command (a program and its arguments)")
	}
	return nil, t.Launch(ctx, in.Body.Command)
}

// record starts a recording.
func (r *Routes) record(ctx context.Context, in *recordInput) (*route.Body[wire.Recording], error) {
	var o desktop.RecordOptions
	if b := in.Body; b != nil {
		o = desktop.RecordOptions{Path: b.Path, FPS: b.FPS, MaxTime: time.Duration(b.MaxSeconds) * time.Second, MaxSize: b.MaxBytes}
	}
	c := route.Caller(ctx)
	of, err := r.Sandboxes.Get(ctx, c, in.Ref)
	if err != nil {
		return nil, err
	}
	f, err := r.Recorder.Start(codescan.Exempt(ctx), c, of.ID, r.target(ctx, string(of.ID)), o)
	if err != nil {
		return nil, err
	}
	return route.Reply(film(f)), nil
}

// recordings lists the recordings.
func (r *Routes) recordings(ctx context.Context, in *recordingsInput) (*route.Body[wire.Page[wire.Recording]], error) {
	c := route.Caller(ctx)
	of, err := r.Sandboxes.Get(ctx, c, in.Ref)
	if err != nil {
		return nil, err
	}
	list, err := r.Recorder.List(ctx, c, of.ID, of.State == sandbox.Running)
	return route.PagedOf(in.PageInput, list, err, page.Order[desktop.Film]{
		Name: "recordings desc", Descending: true, Key: func(f desktop.Film) string { return page.ByTime(f.CreatedAt, string(f.ID)) },
	}, film)
}

// recording answers a recording.
func (r *Routes) recording(ctx context.Context, in *RecordingRef) (*route.Body[wire.Recording], error) {
	return r.onRecording(ctx, in, r.Recorder.Get)
}

// stopRecording ends a recording.
func (r *Routes) stopRecording(ctx context.Context, in *RecordingRef) (*route.Body[wire.Recording], error) {
	return r.onRecording(ctx, in, r.Recorder.Stop)
}

// deleteRecording ends a recording and deletes its file.
func (r *Routes) deleteRecording(ctx context.Context, in *RecordingRef) (*struct{}, error) {
	_, err := r.onRecording(ctx, in, func(ctx context.Context, c sandbox.Caller, of sandbox.ID, id sandbox.ExecutionID) (desktop.Film, error) {
		return desktop.Film{}, r.Recorder.Delete(ctx, c, of, id)
	})
	return nil, err
}

func (r *Routes) onRecording(ctx context.Context, in *RecordingRef, do func(context.Context, sandbox.Caller, sandbox.ID, sandbox.ExecutionID) (desktop.Film, error)) (*route.Body[wire.Recording], error) {
	c := route.Caller(ctx)
	of, err := r.Sandboxes.Get(ctx, c, in.Ref)
	if err != nil {
		return nil, err
	}
	f, err := do(ctx, c, of.ID, sandbox.ExecutionID(in.Recording))
	if err != nil {
		return nil, err
	}
	return route.Reply(film(f)), nil
}

func film(f desktop.Film) wire.Recording {
	out := wire.Recording{
		ID: string(f.ID), Path: f.Path, State: string(f.State), Error: f.Error, CreatedAt: f.CreatedAt, EndedAt: route.Optional(f.EndedAt),
	}
	if f.Size >= 0 {
		out.SizeBytes = &f.Size
	}
	return out
}
