package mcp

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/sandbox"
)

// settleTime is the time between actions and the screenshot after them, in which programs react.
const settleTime = time.Second

// maxWait bounds the time of the tool wait; the server bounds a single action.
const maxWait = 10 * time.Second

// onScreen are the arguments of all tools that use a desktop.
type onScreen struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"id or name of a sandbox with a desktop, instead of the session's own"`
}

// acting are the arguments of all tools that use the mouse or the keyboard.
type acting struct {
	onScreen
	Screenshot bool `json:"screenshot,omitempty" jsonschema:"answer with a screenshot, taken a second later"`
}

// addDesktopTools adds the tools for sandboxes with a screen.
func (s *Session) addDesktopTools() {
	tool(s, "screenshot", "Take a screenshot", "Take a picture of the sandbox's screen or of a part of it, and return its size and the position of the mouse pointer. Coordinates of other tools are pixels of the whole screen.", reading, s.screenshot)
	tool(s, "click", "Click", "Click with the mouse, at a position or where the pointer is.", destroying, s.click)
	tool(s, "move_mouse", "Move the mouse", "Move the mouse pointer, for example to see what a program shows for it.", changing, s.moveMouse)
	tool(s, "drag", "Drag", "Press the left mouse button at a position and release it at another.", destroying, s.drag)
	tool(s, "scroll", "Scroll", "Turn the mouse wheel, at a position or where the pointer is.", changing, s.scroll)
	tool(s, "type", "Type a text", "Type a text, any Unicode, into the window that has the keyboard. A line feed is the key Return.", destroying, s.typeText)
	tool(s, "key", "Press keys", "Press keys together, such as ctrl+l, Return, alt+F4 or Page_Down. Spaces separate combinations, which are pressed one after the other.", destroying, s.key)
	tool(s, "wait", "Wait", "Wait until programs on the screen have reacted.", reading, s.wait)
	tool(s, "list_windows", "List windows", "List the windows on the screen of the sandbox, with titles and positions.", reading, s.listWindows)
	tool(s, "focus_window", "Raise a window", "Raise a window and give it the keyboard.", changing, s.focusWindow)
	tool(s, "open", "Open on the desktop", "Open a URL, or a file by its absolute path, on the desktop of the sandbox, or start a program there.", changing, s.open)
}

// onDesktop runs do on the desktop of the sandbox that the arguments name, and answers a screenshot if show says so.
func (s *Session) onDesktop(ctx context.Context, ref string, show bool, do func(*client.Desktop) error) (*sdk.CallToolResult, error) {
	return s.in(ctx, ref, 0, func(sbx *sandbox.Sandbox) (*sdk.CallToolResult, error) {
		d := sbx.Desktop()
		if err := do(d); err != nil {
			return nil, err
		}
		if !show {
			return text("done"), nil
		}
		if err := d.Act(ctx, client.DesktopAction{Type: client.ActionWait, DurationMS: int(settleTime.Milliseconds())}); err != nil {
			return nil, err
		}
		return showScreen(ctx, d, client.ScreenshotOptions{Pointer: true})
	})
}

// act performs an action.
func (s *Session) act(ctx context.Context, a acting, action client.DesktopAction) (*sdk.CallToolResult, error) {
	return s.onDesktop(ctx, a.Sandbox, a.Screenshot, func(d *client.Desktop) error { return d.Act(ctx, action) })
}

// showScreen answers a picture with the size of the screen.
func showScreen(ctx context.Context, d *client.Desktop, o client.ScreenshotOptions) (*sdk.CallToolResult, error) {
	screen, err := d.Screen(ctx)
	if err != nil {
		return nil, err
	}
	picture, err := d.Screenshot(ctx, o)
	if err != nil {
		return nil, err
	}
	if len(picture) > maxImage {
		return nil, &client.Error{Code: client.TooLarge, Message: fmt.Sprintf("the picture has more than %d MiB; ask for a part of the screen with x, y, width and height", maxImage>>20)}
	}
	of := ""
	if o.Width != 0 {
		of = fmt.Sprintf("; the picture is its part of %dx%d pixels at %d,%d", o.Width, o.Height, o.X, o.Y)
	}
	return &sdk.CallToolResult{Content: []sdk.Content{
		&sdk.TextContent{Text: fmt.Sprintf("The screen has %dx%d pixels, and the mouse pointer is at %d,%d%s.", screen.Width, screen.Height, screen.Cursor.X, screen.Cursor.Y, of)},
		&sdk.ImageContent{MIMEType: "image/png", Data: picture},
	}}, nil
}

type screenshotArguments struct {
	onScreen
	X      int `json:"x,omitempty" jsonschema:"left edge of the part; 0 when omitted"`
	Y      int `json:"y,omitempty" jsonschema:"top edge of the part; 0 when omitted"`
	Width  int `json:"width,omitempty" jsonschema:"width of the part; the whole screen when omitted"`
	Height int `json:"height,omitempty" jsonschema:"height of the part"`
}

func (s *Session) screenshot(ctx context.Context, a screenshotArguments) (*sdk.CallToolResult, error) {
	return s.in(ctx, a.Sandbox, 0, func(sbx *sandbox.Sandbox) (*sdk.CallToolResult, error) {
		return showScreen(ctx, sbx.Desktop(), client.ScreenshotOptions{X: a.X, Y: a.Y, Width: a.Width, Height: a.Height, Pointer: true})
	})
}

// position is a position that may be omitted.
type position struct {
	X *int `json:"x,omitempty" jsonschema:"pixels from the left; where the pointer is when omitted"`
	Y *int `json:"y,omitempty" jsonschema:"pixels from the top"`
}

// point returns the position; nil if it is omitted.
func (p position) point() (*client.Point, error) {
	switch {
	case p.X == nil && p.Y == nil:
		return nil, nil
	case p.X == nil || p.Y == nil:
		return nil, &client.Error{Code: client.Invalid, Message: "give both x and y, or neither"}
	}
	return &client.Point{X: *p.X, Y: *p.Y}, nil
}

type clickArguments struct {
	acting
	position
	Button string   `json:"button,omitempty" jsonschema:"left, middle or right; left when omitted"`
	Clicks int      `json:"clicks,omitempty" jsonschema:"2 for a double click, 3 for a triple click; 1 when omitted"`
	Hold   []string `json:"hold,omitempty" jsonschema:"keys that are held down meanwhile, such as shift"`
}

func (s *Session) click(ctx context.Context, a clickArguments) (*sdk.CallToolResult, error) {
	at, err := a.point()
	if err != nil {
		return nil, err
	}
	return s.act(ctx, a.acting, client.DesktopAction{Type: client.ActionClick, At: at, Button: a.Button, Clicks: a.Clicks, Hold: a.Hold})
}

type moveArguments struct {
	acting
	X int `json:"x" jsonschema:"pixels from the left"`
	Y int `json:"y" jsonschema:"pixels from the top"`
}

func (s *Session) moveMouse(ctx context.Context, a moveArguments) (*sdk.CallToolResult, error) {
	return s.act(ctx, a.acting, client.DesktopAction{Type: client.ActionMove, At: &client.Point{X: a.X, Y: a.Y}})
}

type dragArguments struct {
	acting
	FromX int      `json:"from_x" jsonschema:"where the button is pressed, pixels from the left"`
	FromY int      `json:"from_y" jsonschema:"where the button is pressed, pixels from the top"`
	ToX   int      `json:"to_x" jsonschema:"where the button is released, pixels from the left"`
	ToY   int      `json:"to_y" jsonschema:"where the button is released, pixels from the top"`
	Hold  []string `json:"hold,omitempty" jsonschema:"keys that are held down meanwhile, such as shift"`
}

func (s *Session) drag(ctx context.Context, a dragArguments) (*sdk.CallToolResult, error) {
	return s.act(ctx, a.acting, client.DesktopAction{Type: client.ActionDrag, At: &client.Point{X: a.FromX, Y: a.FromY}, To: &client.Point{X: a.ToX, Y: a.ToY}, Hold: a.Hold})
}

type scrollArguments struct {
	acting
	position
	Direction string   `json:"direction,omitempty" jsonschema:"up, down, left or right; down when omitted"`
	Amount    int      `json:"amount,omitempty" jsonschema:"steps of the wheel, 1 to 100; 3 when omitted"`
	Hold      []string `json:"hold,omitempty" jsonschema:"keys that are held down meanwhile, such as ctrl"`
}

func (s *Session) scroll(ctx context.Context, a scrollArguments) (*sdk.CallToolResult, error) {
	at, err := a.point()
	if err != nil {
		return nil, err
	}
	return s.act(ctx, a.acting, client.DesktopAction{Type: client.ActionScroll, At: at, Direction: a.Direction, Amount: a.Amount, Hold: a.Hold})
}

type typeArguments struct {
	acting
	Text string `json:"text" jsonschema:"the text, at most 16 KiB"`
}

func (s *Session) typeText(ctx context.Context, a typeArguments) (*sdk.CallToolResult, error) {
	return s.act(ctx, a.acting, client.DesktopAction{Type: client.ActionType, Text: a.Text})
}

type keyArguments struct {
	acting
	Keys string `json:"keys" jsonschema:"the keys, such as ctrl+l"`
}

func (s *Session) key(ctx context.Context, a keyArguments) (*sdk.CallToolResult, error) {
	return s.act(ctx, a.acting, client.DesktopAction{Type: client.ActionKey, Keys: a.Keys})
}

type waitArguments struct {
	acting
	Seconds float64 `json:"seconds" jsonschema:"how long, at most 10"`
}

func (s *Session) wait(ctx context.Context, a waitArguments) (*sdk.CallToolResult, error) {
	if !(a.Seconds > 0 && a.Seconds <= maxWait.Seconds()) {
		return nil, &client.Error{Code: client.Invalid, Message: fmt.Sprintf("seconds must be more than 0, and at most %g", maxWait.Seconds())}
	}
	return s.act(ctx, a.acting, client.DesktopAction{Type: client.ActionWait, DurationMS: max(int(a.Seconds*1000), 1)})
}

func (s *Session) listWindows(ctx context.Context, a onScreen) (*sdk.CallToolResult, error) {
	return s.in(ctx, a.Sandbox, 0, func(sbx *sandbox.Sandbox) (*sdk.CallToolResult, error) {
		windows, err := sbx.Desktop().Windows(ctx)
		if err != nil {
			return nil, err
		}
		list := struct {
			Windows []client.DesktopWindow `json:"windows"`
			More    bool                   `json:"more,omitempty"` // there are more windows
		}{Windows: windows[:min(len(windows), maxWindows)], More: len(windows) > maxWindows}
		for i := range list.Windows {
			list.Windows[i].Title, list.Windows[i].WMClass = shorten(list.Windows[i].Title), shorten(list.Windows[i].WMClass)
		}
		return answer(list)
	})
}

// maxWindows bounds the windows of an answer, and maxTitle the characters of a title.
const maxWindows, maxTitle = 50, 80

// shorten cuts a text that a program on the screen chooses.
func shorten(s string) string {
	if r := []rune(s); len(r) > maxTitle {
		return string(r[:maxTitle]) + "…"
	}
	return s
}

type focusArguments struct {
	acting
	Window string `json:"window" jsonschema:"the window's id, from list_windows"`
}

func (s *Session) focusWindow(ctx context.Context, a focusArguments) (*sdk.CallToolResult, error) {
	return s.onDesktop(ctx, a.Sandbox, a.Screenshot, func(d *client.Desktop) error { return d.Focus(ctx, a.Window) })
}

type openArguments struct {
	acting
	Target  string   `json:"target,omitempty" jsonschema:"a URL, or the absolute path of a file"`
	Command []string `json:"command,omitempty" jsonschema:"a program and its arguments, instead of target"`
}

func (s *Session) open(ctx context.Context, a openArguments) (*sdk.CallToolResult, error) {
	return s.onDesktop(ctx, a.Sandbox, a.Screenshot, func(d *client.Desktop) error {
		switch {
		case (a.Target == "") == (len(a.Command) == 0):
			return &client.Error{Code: client.Invalid, Message: "give either target or command"}
		case a.Target != "":
			return d.Open(ctx, a.Target)
		}
		return d.Launch(ctx, a.Command...)
	})
}
