package wire

import "time"

// Desktop is the screen of a sandbox.
type Desktop struct {
	Width  int   `json:"width" doc:"Width of the screen in pixels." example:"1920"`
	Height int   `json:"height" doc:"Height of the screen in pixels." example:"1080"`
	Cursor Point `json:"cursor" doc:"The position of the mouse pointer."`
}

// Point is a position on a screen.
type Point struct {
	X int `json:"x" minimum:"0" maximum:"16383" doc:"Pixels from the left." example:"640"`
	Y int `json:"y" minimum:"0" maximum:"16383" doc:"Pixels from the top." example:"360"`
}

// ResizeDesktop is the body of the route that changes the size of a screen.
type ResizeDesktop struct {
	Width  int `json:"width" minimum:"320" maximum:"4096" doc:"Width in pixels." example:"1280"`
	Height int `json:"height" minimum:"240" maximum:"4096" doc:"Height in pixels." example:"800"`
}

// The types of desktop actions.
const (
	ActionMove      = "move"
	ActionClick     = "click"
	ActionMouseDown = "mouse_down"
	ActionMouseUp   = "mouse_up"
	ActionDrag      = "drag"
	ActionScroll    = "scroll"
	ActionType      = "type"
	ActionKey       = "key"
	ActionKeyDown   = "key_down"
	ActionKeyUp     = "key_up"
	ActionWait      = "wait"
)

// DesktopActions is the body of the route that uses mouse and keyboard.
type DesktopActions struct {
	Actions []DesktopAction `json:"actions" minItems:"1" maxItems:"100" nullable:"false" doc:"What to do, one after the other."`
}

// DesktopAction is a use of the mouse or the keyboard.
type DesktopAction struct {
	Type       string   `json:"type" enum:"move,click,mouse_down,mouse_up,drag,scroll,type,key,key_down,key_up,wait" doc:"The action."`
	At         *Point   `json:"at,omitempty" doc:"move, drag: the position, required. click, mouse_down, mouse_up, scroll: the pointer moves there first."`
	To         *Point   `json:"to,omitempty" doc:"drag: where the button is released. Required."`
	Button     string   `json:"button,omitempty" enum:"left,middle,right" doc:"click, mouse_down, mouse_up, drag: the button; left when omitted."`
	Clicks     int      `json:"clicks,omitempty" minimum:"0" maximum:"3" doc:"click: 2 for a double click; 1 when omitted."`
	Direction  string   `json:"direction,omitempty" enum:"up,down,left,right" doc:"scroll: the direction; down when omitted."`
	Amount     int      `json:"amount,omitempty" minimum:"0" maximum:"100" doc:"scroll: steps of the wheel; 3 when omitted."`
	Text       string   `json:"text,omitempty" maxLength:"16384" doc:"type: the text, any Unicode."`
	Keys       string   `json:"keys,omitempty" maxLength:"256" doc:"key, key_down, key_up: keys pressed together, such as ctrl+l, Return or alt+F4; X11's names of keys, and enter, esc, backspace, delete, pageup, pagedown, cmd. Several combinations one after the other are separated by spaces." example:"ctrl+l"`
	Hold       []string `json:"hold,omitempty" maxItems:"4" nullable:"false" doc:"click, drag, scroll: keys that are held down meanwhile, such as shift."`
	DurationMS int      `json:"duration_ms,omitempty" minimum:"0" maximum:"10000" doc:"wait: how long, in milliseconds; 500 when omitted."`
}

// DesktopWindow is a window on the screen of a sandbox.
type DesktopWindow struct {
	ID      string `json:"id" doc:"The window's id." example:"0x1400003"`
	Title   string `json:"title" doc:"Its title."`
	WMClass string `json:"wm_class" doc:"Its class, by which window managers know the program."`
	PID     int    `json:"pid" doc:"The process that it says it belongs to; 0 if it does not say."`
	X       int    `json:"x" doc:"Left edge in pixels."`
	Y       int    `json:"y" doc:"Top edge in pixels."`
	Width   int    `json:"width" doc:"Width in pixels."`
	Height  int    `json:"height" doc:"Height in pixels."`
	Active  bool   `json:"active" doc:"It has the keyboard."`
}

// OpenOnDesktop is the body of the route that opens something on a desktop.
type OpenOnDesktop struct {
	Target  string   `json:"target,omitempty" maxLength:"8192" doc:"A URL, or the absolute path of a file, for the program that opens such."`
	Command []string `json:"command,omitempty" maxItems:"100" nullable:"false" doc:"A program and its arguments, in place of target. It goes on after the request."`
}

// StartRecording is the body of the route that records a screen.
type StartRecording struct {
	Path       string `json:"path,omitempty" maxLength:"4096" doc:"The file, absolute, replaced if it exists; a new file in the directory recordings of the working directory when omitted. Must end in .mp4." example:"/workspace/demo.mp4"`
	FPS        int    `json:"fps,omitempty" minimum:"0" maximum:"30" doc:"Pictures in a second; 10 when omitted."`
	MaxSeconds int    `json:"max_seconds,omitempty" minimum:"0" maximum:"14400" doc:"It ends by itself after this; 600 when omitted."`
	MaxBytes   int64  `json:"max_bytes,omitempty" minimum:"0" maximum:"10737418240" doc:"It ends by itself at this size; 1 GiB when omitted."`
}

// Recording is a recording of a screen.
type Recording struct {
	ID    string `json:"id" format:"uuid" doc:"Its id, which is also the id of an execution."`
	Path  string `json:"path" doc:"The file in the sandbox, an MP4."`
	State string `json:"state" enum:"recording,done,failed" doc:"done: the file is complete. failed: its program ended with an error, or with the sandbox."`
	Error string `json:"error,omitempty" doc:"failed: what the program said."`

	CreatedAt time.Time  `json:"created_at" doc:"When it was requested."`
	EndedAt   *time.Time `json:"ended_at,omitempty" doc:"When it ended."`
	SizeBytes *int64     `json:"size_bytes,omitempty" doc:"The size of the file in bytes, in lists of a sandbox that runs. Absent without a file."`
}
