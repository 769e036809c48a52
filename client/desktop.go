package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/modbox/modbox/client/wire"
)

// Types of desktops.
type (
	// Screen is the screen of a sandbox and its mouse pointer.
	Screen = wire.Desktop
	// Point is a position on a screen.
	Point = wire.Point
	// DesktopAction is a use of the mouse or the keyboard; its Type is one of the constants below.
	DesktopAction = wire.DesktopAction
	// DesktopWindow is a window on a screen.
	DesktopWindow = wire.DesktopWindow
	// RecordOptions describe a recording.
	RecordOptions = wire.StartRecording
	// Recording is a recording of a screen.
	Recording = wire.Recording
)

// The types of desktop actions.
const (
	ActionMove      = wire.ActionMove
	ActionClick     = wire.ActionClick
	ActionMouseDown = wire.ActionMouseDown
	ActionMouseUp   = wire.ActionMouseUp
	ActionDrag      = wire.ActionDrag
	ActionScroll    = wire.ActionScroll
	ActionType      = wire.ActionType
	ActionKey       = wire.ActionKey
	ActionKeyDown   = wire.ActionKeyDown
	ActionKeyUp     = wire.ActionKeyUp
	ActionWait      = wire.ActionWait
)

// Desktop uses the screen of a sandbox as a person would. Errors of all calls: NotFound, NotRunning,
// Ended; Unsupported if the sandbox has no desktop; Unavailable while its screen is starting.
type Desktop struct {
	*transport
	ref string
}

// Desktop returns the screen of a sandbox. It sends no request.
func (c *Sandboxes) Desktop(ref string) *Desktop { return &Desktop{c.transport, ref} }

// maxScreenshot bounds a picture; the server's limit is lower.
const maxScreenshot = 64 << 20

// allWindows is a page size with which a page has all windows of a screen.
const allWindows = 1000

// ScreenshotOptions select a part of the screen; the zero value is all of it, without the pointer.
type ScreenshotOptions struct {
	X, Y, Width, Height int
	Pointer             bool // show the mouse pointer
}

func (d *Desktop) path(more ...string) string {
	return sandboxPath(d.ref, append([]string{"desktop"}, more...)...)
}

// Screen returns the size of the screen and the position of the pointer.
func (d *Desktop) Screen(ctx context.Context) (*Screen, error) {
	return fetch[Screen](ctx, d.transport, request{method: http.MethodGet, path: d.path(), repeat: true})
}

// Resize changes the size of the screen.
func (d *Desktop) Resize(ctx context.Context, width, height int) (*Screen, error) {
	body := wire.ResizeDesktop{Width: width, Height: height}
	return fetch[Screen](ctx, d.transport, request{method: http.MethodPatch, path: d.path(), body: body, repeat: true})
}

// Screenshot returns a picture of the screen, a PNG.
func (d *Desktop) Screenshot(ctx context.Context, o ScreenshotOptions) ([]byte, error) {
	q := url.Values{}
	for name, n := range map[string]int{"x": o.X, "y": o.Y, "width": o.Width, "height": o.Height} {
		if n != 0 {
			q.Set(name, strconv.Itoa(n))
		}
	}
	if o.Pointer {
		q.Set("pointer", "true")
	}
	resp, err := d.send(ctx, request{method: http.MethodGet, path: d.path("screenshot"), query: q, repeat: true})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	picture, err := io.ReadAll(io.LimitReader(resp.Body, maxScreenshot))
	if err != nil {
		return nil, fmt.Errorf("read the screenshot: %w", err)
	}
	return picture, nil
}

// Act performs actions, one after the other. Errors: Invalid.
func (d *Desktop) Act(ctx context.Context, actions ...DesktopAction) error {
	return d.call(ctx, request{method: http.MethodPost, path: d.path("actions"), body: wire.DesktopActions{Actions: actions}}, nil)
}

// Move moves the pointer.
func (d *Desktop) Move(ctx context.Context, x, y int) error {
	return d.Act(ctx, DesktopAction{Type: ActionMove, At: &Point{X: x, Y: y}})
}

// Click clicks with the left button.
func (d *Desktop) Click(ctx context.Context, x, y int) error {
	return d.Act(ctx, DesktopAction{Type: ActionClick, At: &Point{X: x, Y: y}})
}

// DoubleClick clicks twice with the left button.
func (d *Desktop) DoubleClick(ctx context.Context, x, y int) error {
	return d.Act(ctx, DesktopAction{Type: ActionClick, At: &Point{X: x, Y: y}, Clicks: 2})
}

// RightClick clicks with the right button.
func (d *Desktop) RightClick(ctx context.Context, x, y int) error {
	return d.Act(ctx, DesktopAction{Type: ActionClick, At: &Point{X: x, Y: y}, Button: "right"})
}

// Drag moves the pointer to a position, and to another with the left button pressed.
func (d *Desktop) Drag(ctx context.Context, from, to Point) error {
	return d.Act(ctx, DesktopAction{Type: ActionDrag, At: &from, To: &to})
}

// Scroll turns the wheel at a position: up, down, left or right, by a number of steps.
func (d *Desktop) Scroll(ctx context.Context, x, y int, direction string, amount int) error {
	return d.Act(ctx, DesktopAction{Type: ActionScroll, At: &Point{X: x, Y: y}, Direction: direction, Amount: amount})
}

// Type types a text.
func (d *Desktop) Type(ctx context.Context, text string) error {
	return d.Act(ctx, DesktopAction{Type: ActionType, Text: text})
}

// Press presses keys together, such as "ctrl+l" or "Return".
func (d *Desktop) Press(ctx context.Context, keys string) error {
	return d.Act(ctx, DesktopAction{Type: ActionKey, Keys: keys})
}

// Windows returns the windows on the screen, in the order of their ids.
func (d *Desktop) Windows(ctx context.Context) ([]DesktopWindow, error) {
	list := newList[DesktopWindow](d.transport, d.path("windows"), nil)
	list.PageSize = allWindows
	return list.Collect(ctx)
}

// Focus raises a window and gives it the keyboard. Errors: NotFound.
func (d *Desktop) Focus(ctx context.Context, window string) error {
	return d.call(ctx, request{method: http.MethodPost, path: d.path("windows", window, "focus")}, nil)
}

// Close closes a window. Errors: NotFound.
func (d *Desktop) Close(ctx context.Context, window string) error {
	return d.call(ctx, request{method: http.MethodDelete, path: d.path("windows", window)}, nil)
}

// Open opens a URL, or a file by its absolute path.
func (d *Desktop) Open(ctx context.Context, target string) error {
	return d.call(ctx, request{method: http.MethodPost, path: d.path("open"), body: wire.OpenOnDesktop{Target: target}}, nil)
}

// Launch starts a program, which goes on. Errors: ProgramNotFound.
func (d *Desktop) Launch(ctx context.Context, command ...string) error {
	return d.call(ctx, request{method: http.MethodPost, path: d.path("open"), body: wire.OpenOnDesktop{Command: command}}, nil)
}

// Record begins a recording of the screen, to a file in the sandbox.
func (d *Desktop) Record(ctx context.Context, o RecordOptions) (*Recording, error) {
	return fetch[Recording](ctx, d.transport, request{method: http.MethodPost, path: d.path("recordings"), body: o})
}

// Recordings lists the recordings, newest first. It resumes no paused sandbox. Errors: NotFound.
func (d *Desktop) Recordings() *List[Recording] {
	return newList[Recording](d.transport, d.path("recordings"), nil)
}

// Recording returns a recording. Errors: NotFound.
func (d *Desktop) Recording(ctx context.Context, id string) (*Recording, error) {
	return fetch[Recording](ctx, d.transport, request{method: http.MethodGet, path: d.path("recordings", id), repeat: true})
}

// StopRecording ends a recording, and returns when its file is complete. Errors: NotFound.
func (d *Desktop) StopRecording(ctx context.Context, id string) (*Recording, error) {
	return fetch[Recording](ctx, d.transport, request{method: http.MethodPost, path: d.path("recordings", id, "stop"), repeat: true})
}

// DeleteRecording ends a recording and deletes its file, unless a later recording has the same path. Errors: NotFound.
func (d *Desktop) DeleteRecording(ctx context.Context, id string) error {
	return d.call(ctx, request{method: http.MethodDelete, path: d.path("recordings", id)}, nil)
}
