package desktop

import (
	"context"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// MaxWindows bounds the windows of a list.
const MaxWindows = 500

// Window is a window on the screen. ID, title and class are the sandbox's word.
type Window struct {
	ID                  string
	Title, Class        string
	PID                 int
	X, Y, Width, Height int
	Active              bool
}

var windowLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^0x([0-9a-f]{1,8}) +(-?\d{1,4}) +(\d{1,10}) +(-?\d{1,6}) +(-?\d{1,6}) +(\d{1,6}) +(\d{1,6}) +(\S+ ?(.*))$`)
})

// classLine is a line of the list with classes, in which spaces may be anywhere.
var classLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^0x([0-9a-f]{1,8}) +-?\d{1,4} +(.*)$`) })

// Windows returns the windows, in the order of their opening. Errors: as for [Target.Screen].
func (t Target) Windows(ctx context.Context) ([]Window, error) {
	out, err := t.must(ctx, "wmctrl", "-lGp")
	if err != nil {
		return nil, err
	}
	classes, err := t.must(ctx, "wmctrl", "-lx")
	if err != nil {
		return nil, err
	}
	described := map[string]string{} // the rest of the line after the desk, by id
	for line := range strings.Lines(classes) {
		if m := classLine().FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			described[m[1]] = m[2]
		}
	}
	var active uint64
	r, err := t.run(ctx, Command{Argv: []string{"xdotool", "getactivewindow"}})
	if err != nil {
		return nil, err
	}
	if r.Code == 0 { // otherwise no window is active
		active, _ = strconv.ParseUint(strings.TrimSpace(string(r.Stdout)), 10, 32) // 0 is no window
	}
	list, listed := []Window{}, map[uint64]bool{}
	for line := range strings.Lines(out) {
		m := windowLine().FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || len(list) == MaxWindows { // a title may have several lines
			continue
		}
		id, err := strconv.ParseUint(m[1], 16, 32)
		if err != nil || listed[id] {
			continue
		}
		listed[id] = true
		// Both lists end with the name of the host and the title.
		class, found := strings.CutSuffix(described[m[1]], m[8])
		if !found { // the title has changed meanwhile
			class = ""
		}
		w := Window{ID: "0x" + strconv.FormatUint(id, 16), Class: sandbox.OneLine(strings.TrimSpace(class)), Title: sandbox.OneLine(m[9]), Active: id == active && id != 0}
		for i, into := range []*int{&w.PID, &w.X, &w.Y, &w.Width, &w.Height} {
			*into, _ = strconv.Atoi(m[3+i]) // digits only
		}
		list = append(list, w)
	}
	return list, nil
}

// Focus raises a window and gives it the keyboard. Errors: NotFound; as for [Target.Screen].
func (t Target) Focus(ctx context.Context, id string) error { return t.window(ctx, id, "-a") }

// Close asks a window to close, which its program may refuse or ask about. Errors: as for Focus.
func (t Target) Close(ctx context.Context, id string) error { return t.window(ctx, id, "-c") }

func (t Target) window(ctx context.Context, id, operation string) error {
	list, err := t.Windows(ctx)
	if err != nil {
		return err
	}
	for _, w := range list {
		if w.ID == id {
			_, err := t.must(ctx, "wmctrl", "-i", operation, id)
			return err
		}
	}
	return sandbox.Errorf(sandbox.NotFound, "there is no window %.64q on the screen", id)
}

// launch starts a program that goes on; it fails if the program does not exist.
const launch = `command -v -- "$1" >/dev/null || exit 127
setsid -- "$@" </dev/null >/dev/null 2>&1 &`

// Launch starts a program on the desktop. Errors: Invalid; ProgramNotFound; as for [Target.Screen].
func (t Target) Launch(ctx context.Context, argv []string) error {
	if err := sandbox.CheckArgv(argv); err != nil {
		return err
	}
	if _, err := t.Screen(ctx); err != nil {
		return err
	}
	r, err := t.run(ctx, Command{Argv: append([]string{"sh", "-c", launch, "sh"}, argv...), Program: argv})
	switch {
	case err != nil:
		return err
	case r.Code == 127:
		return sandbox.Errorf(sandbox.ProgramNotFound, "the sandbox does not have the program %.200q", argv[0])
	case r.Code != 0:
		return failure(argv[0], r)
	}
	return nil
}

// Open opens a URL or a file with the program for such. Errors: as for Launch.
func (t Target) Open(ctx context.Context, target string) error {
	u, err := url.Parse(target)
	if err != nil || u.Scheme == "" && !path.IsAbs(target) || strings.ContainsFunc(target, func(r rune) bool { return r < ' ' }) {
		return sandbox.InvalidField("target", "must be a URL, such as https://example.com, or the absolute path of a file")
	}
	err = t.Launch(ctx, []string{"xdg-open", target})
	if sandbox.CodeOf(err) == sandbox.ProgramNotFound {
		return errNone(err, "its image does not have the program xdg-open")
	}
	return err
}
