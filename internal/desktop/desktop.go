package desktop

import (
	"bytes"
	"context"
	"image/png"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// callTime bounds a program that does one thing.
	callTime = 30 * time.Second
	// maxAnswer bounds the output of a program, but for pictures.
	maxAnswer = 256 << 10
	// MaxPicture bounds a picture in bytes.
	MaxPicture = 16 << 20
	// MaxSide bounds the sides of a screen in pixels; MinWidth, MinHeight and MaxResize bound a new size.
	MaxSide             = 16384
	MinWidth, MinHeight = 320, 240
	MaxResize           = 4096
)

// Command is a command to run in a sandbox, to its end.
type Command struct {
	Argv      []string
	Program   []string // the part of Argv that the caller has given
	Stdin     string
	Timeout   time.Duration
	MaxOutput int // bytes of each output; the rest is lost
}

// Result is the end of a command.
type Result struct {
	Code           int
	TimedOut       bool
	Stdout, Stderr []byte
	Truncated      bool // there was more stdout
}

// Target is the desktop of a sandbox, for one caller. Run runs a command in the sandbox; its errors
// are the errors of every call into a sandbox, and ProgramNotFound.
type Target struct {
	Run func(ctx context.Context, cmd Command) (Result, error)
}

// errNone says that the sandbox has no desktop.
func errNone(reason error, what string) error {
	return sandbox.Wrap(sandbox.Unsupported, reason, "the sandbox has no desktop: %s; create one of modbox/sandbox", what)
}

// run runs a program of the desktop.
func (t Target) run(ctx context.Context, cmd Command) (Result, error) {
	if cmd.Timeout == 0 {
		cmd.Timeout = callTime
	}
	if cmd.MaxOutput == 0 {
		cmd.MaxOutput = maxAnswer
	}
	r, err := t.Run(ctx, cmd)
	if sandbox.CodeOf(err) == sandbox.ProgramNotFound {
		return r, errNone(err, "its image does not have the program "+cmd.Argv[0])
	}
	if err != nil {
		return r, err
	}
	if r.TimedOut {
		return r, sandbox.Errorf(sandbox.Timeout, "%s took more than %s in the sandbox", cmd.Argv[0], cmd.Timeout)
	}
	return r, nil
}

// must is run for a program that must succeed; it returns its output.
func (t Target) must(ctx context.Context, argv ...string) (string, error) {
	r, err := t.run(ctx, Command{Argv: argv})
	if err == nil && r.Code != 0 {
		err = failure(argv[0], r)
	}
	return string(r.Stdout), err
}

var noKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`No such key name '([^']{1,64})'`) })

// failure explains why a program failed.
func failure(program string, r Result) error {
	said := string(r.Stderr)
	if m := noKey().FindStringSubmatch(said); m != nil {
		return sandbox.InvalidField("keys", "there is no key %q", m[1])
	}
	if lower := strings.ToLower(said); strings.Contains(lower, "open display") || strings.Contains(lower, "open x display") || strings.Contains(lower, "cannot open") && strings.Contains(lower, "display") {
		if strings.Contains(said, "(null)") || strings.Contains(said, `""`) {
			return errNone(nil, "the variable DISPLAY is not set")
		}
		e := sandbox.Errorf(sandbox.Unavailable, "the screen of the sandbox does not answer; it may be starting")
		e.RetryAfter = time.Second
		return e
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s failed in the sandbox with exit code %d: %s", program, r.Code, sandbox.OneLine(said))
}

// Screen is a screen and its pointer.
type Screen struct{ Width, Height, X, Y int }

// Screen returns the size of the screen and the position of the pointer. Errors: Unsupported if the
// sandbox has no desktop; Unavailable.
func (t Target) Screen(ctx context.Context) (Screen, error) {
	out, err := t.must(ctx, "xdotool", "getdisplaygeometry", "--shell", "getmouselocation", "--shell")
	if err != nil {
		return Screen{}, err
	}
	var s Screen
	fields := map[string]*int{"WIDTH": &s.Width, "HEIGHT": &s.Height, "X": &s.X, "Y": &s.Y}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if into := fields[name]; into != nil {
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n > MaxSide {
				return Screen{}, errAnswer("xdotool")
			}
			*into = n
			delete(fields, name)
		}
	}
	if len(fields) != 0 || s.Width == 0 || s.Height == 0 {
		return Screen{}, errAnswer("xdotool")
	}
	return s, nil
}

// errAnswer says that a program did not answer as it should.
func errAnswer(program string) error {
	return sandbox.Errorf(sandbox.Unavailable, "%s in the sandbox gave no proper answer", program)
}

// picture is the script that takes a picture with the options of scrot, which does not write to a pipe
// of another user.
const picture = `dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && scrot --silent "$@" "$dir/screen.png" && cat "$dir/screen.png"`

// Area is a part of a screen. The zero value is all of it.
type Area struct{ X, Y, Width, Height int }

// Screenshot returns a picture of the screen or a part of it, a PNG, with the pointer if asked.
// Errors: Invalid for an area that is not on the screen; TooLarge; as for Screen.
func (t Target) Screenshot(ctx context.Context, area Area, pointer bool) ([]byte, error) {
	var options []string
	if pointer {
		options = append(options, "--pointer")
	}
	if area != (Area{}) {
		s, err := t.Screen(ctx)
		if err != nil {
			return nil, err
		}
		if err := area.check(s); err != nil {
			return nil, err
		}
		options = append(options, "--autoselect", strings.Join([]string{strconv.Itoa(area.X), strconv.Itoa(area.Y), strconv.Itoa(area.Width), strconv.Itoa(area.Height)}, ","))
	}
	r, err := t.run(ctx, Command{Argv: append([]string{"sh", "-c", picture, "picture"}, options...), MaxOutput: MaxPicture})
	if err != nil {
		return nil, err
	}
	if r.Code == 127 {
		return nil, errNone(nil, "its image does not have the program scrot")
	}
	if r.Code != 0 {
		return nil, failure("scrot", r)
	}
	if r.Truncated {
		return nil, sandbox.Errorf(sandbox.TooLarge, "the picture has more than %d MiB; ask for a part of the screen, or make the screen smaller", MaxPicture>>20)
	}
	return r.Stdout, checkPicture(r.Stdout, area)
}

func (a Area) check(s Screen) error {
	switch {
	case a.X < 0 || a.X >= s.Width:
		return sandbox.InvalidField("x", "must be 0 to %d: the screen has %d columns", s.Width-1, s.Width)
	case a.Y < 0 || a.Y >= s.Height:
		return sandbox.InvalidField("y", "must be 0 to %d: the screen has %d rows", s.Height-1, s.Height)
	case a.Width < 1 || a.X+a.Width > s.Width:
		return sandbox.InvalidField("width", "must be 1 to %d: the screen has %d columns", s.Width-a.X, s.Width)
	case a.Height < 1 || a.Y+a.Height > s.Height:
		return sandbox.InvalidField("height", "must be 1 to %d: the screen has %d rows", s.Height-a.Y, s.Height)
	}
	return nil
}

// checkPicture checks that data begins as a PNG of the right size does: what it came from may be
// hostile, and who gets it decodes it.
func checkPicture(data []byte, area Area) error {
	c, err := png.DecodeConfig(bytes.NewReader(data))
	if err != nil || c.Width < 1 || c.Height < 1 || c.Width > MaxSide || c.Height > MaxSide {
		return errAnswer("scrot")
	}
	if area != (Area{}) && (c.Width != area.Width || c.Height != area.Height) {
		return errAnswer("scrot")
	}
	return nil
}

// resize sets the size of the first screen that is connected. The times of a mode have no meaning for
// a screen that is not a monitor.
const resize = `set -e
out=$(xrandr | awk '/ connected/ { print $1; exit }')
[ -n "$out" ] || { echo "no screen is connected" >&2; exit 1; }
if ! xrandr | grep -q "^ *$1x$2 "; then
	xrandr --newmode "$1x$2" 60 "$1" "$1" "$1" "$1" "$2" "$2" "$2" "$2" 2>/dev/null || true
	xrandr --addmode "$out" "$1x$2"
fi
xrandr --output "$out" --mode "$1x$2"`

// Resize changes the size of the screen. Errors: Invalid; as for Screen.
func (t Target) Resize(ctx context.Context, width, height int) (Screen, error) {
	if width < MinWidth || width > MaxResize {
		return Screen{}, sandbox.InvalidField("width", "must be %d to %d", MinWidth, MaxResize)
	}
	if height < MinHeight || height > MaxResize {
		return Screen{}, sandbox.InvalidField("height", "must be %d to %d", MinHeight, MaxResize)
	}
	if _, err := t.Screen(ctx); err != nil {
		return Screen{}, err
	}
	r, err := t.run(ctx, Command{Argv: []string{"sh", "-c", resize, "sh", strconv.Itoa(width), strconv.Itoa(height)}})
	if err != nil {
		return Screen{}, err
	}
	if r.Code == 127 {
		return Screen{}, errNone(nil, "its image does not have the program xrandr")
	}
	if r.Code != 0 {
		return Screen{}, failure("xrandr", r)
	}
	s, err := t.Screen(ctx)
	if err == nil && (s.Width != width || s.Height != height) {
		return s, sandbox.Errorf(sandbox.Unsupported, "the screen of the sandbox stays at %dx%d: its X server does not have the size %dx%d", s.Width, s.Height, width, height)
	}
	return s, err
}
