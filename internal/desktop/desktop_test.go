package desktop_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/desktop"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// box is a sandbox whose programs answer what a test says; it keeps what was run.
type box struct {
	ran     []desktop.Command
	answers map[string]desktop.Result // by program
	err     error
}

func (b *box) target() desktop.Target {
	return desktop.Target{Run: func(_ context.Context, cmd desktop.Command) (desktop.Result, error) {
		b.ran = append(b.ran, cmd)
		name := strings.Join(cmd.Argv[:min(2, len(cmd.Argv))], " ")
		r, ok := b.answers[name]
		if !ok {
			r = b.answers[cmd.Argv[0]]
		}
		return r, b.err
	}}
}

const geometry = "WIDTH=800\nHEIGHT=600\nX=10\nY=20\nSCREEN=0\nWINDOW=1\n"

func said(stdout string) desktop.Result { return desktop.Result{Stdout: []byte(stdout)} }

func TestScreen(t *testing.T) {
	b := &box{answers: map[string]desktop.Result{"xdotool": said(geometry)}}
	got, err := b.target().Screen(t.Context())
	if want := (desktop.Screen{Width: 800, Height: 600, X: 10, Y: 20}); err != nil || got != want {
		t.Errorf("Screen() = %+v, %v, want %+v", got, err, want)
	}
	for _, hostile := range []string{"", "WIDTH=0\nHEIGHT=600\nX=1\nY=1\n", "WIDTH=999999\nHEIGHT=600\nX=1\nY=1\n", "WIDTH=a\nHEIGHT=600\nX=1\nY=1\n", "WIDTH=800\nHEIGHT=600\n"} {
		b.answers["xdotool"] = said(hostile)
		if _, err := b.target().Screen(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("Screen() of %q = %v, want unavailable", hostile, err)
		}
	}
}

func TestErrorsOfPrograms(t *testing.T) {
	for said, want := range map[string]sandbox.Code{
		"Error: Can't open display: (null)":   sandbox.Unsupported,
		"Error: Can't open display: :99":      sandbox.Unavailable,
		"(symbol) No such key name 'bogus'. ": sandbox.Invalid,
		"Segmentation fault":                  sandbox.Unavailable,
	} {
		b := &box{answers: map[string]desktop.Result{"xdotool": {Code: 1, Stderr: []byte(said)}}}
		if _, err := b.target().Screen(t.Context()); sandbox.CodeOf(err) != want {
			t.Errorf("%q: %v, want code %s", said, err, want)
		}
	}
	b := &box{err: sandbox.Errorf(sandbox.ProgramNotFound, "no xdotool")}
	if _, err := b.target().Screen(t.Context()); sandbox.CodeOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "modbox/sandbox") {
		t.Errorf("Screen() without xdotool = %v, want unsupported, with the image that has it", err)
	}
}

// picture returns a PNG.
func picture(t *testing.T, width, height int) desktop.Result {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return desktop.Result{Stdout: b.Bytes()}
}

func TestScreenshot(t *testing.T) {
	b := &box{answers: map[string]desktop.Result{"xdotool": said(geometry), "sh": picture(t, 100, 50)}}
	got, err := b.target().Screenshot(t.Context(), desktop.Area{X: 700, Y: 0, Width: 100, Height: 50}, true)
	if err != nil || !bytes.Equal(got, b.answers["sh"].Stdout) {
		t.Errorf("Screenshot() = %d bytes, %v", len(got), err)
	}
	if last := b.ran[len(b.ran)-1]; !slices.Contains(last.Argv, "700,0,100,50") || !slices.Contains(last.Argv, "--pointer") {
		t.Errorf("ran %q", last.Argv)
	}
	for name, area := range map[string]desktop.Area{
		"width": {X: 701, Width: 100, Height: 50}, "height": {Y: 551, Width: 100, Height: 50}, "x": {X: 800, Width: 1, Height: 1}, "y": {Y: 600, Width: 1, Height: 1},
	} {
		if _, err := b.target().Screenshot(t.Context(), area, false); sandbox.CodeOf(err) != sandbox.Invalid || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("Screenshot(%+v) = %v, want an error about %s", area, err, name)
		}
	}
	for name, r := range map[string]desktop.Result{
		"no picture":      said("hello"),
		"another size":    picture(t, 99, 50),
		"nothing":         {},
		"too much":        {Stdout: picture(t, 100, 50).Stdout, Truncated: true},
		"no such program": {Code: 127},
	} {
		b.answers["sh"] = r
		if got, err := b.target().Screenshot(t.Context(), desktop.Area{Width: 100, Height: 50}, false); err == nil {
			t.Errorf("%s: Screenshot() = %d bytes, want an error", name, len(got))
		}
	}
}

func TestActions(t *testing.T) {
	at := &desktop.Point{X: 5, Y: 6}
	for _, tt := range []struct {
		name    string
		actions []desktop.Action
		want    []string // the arguments of each run, and what it reads
	}{
		{"click", []desktop.Action{{Kind: desktop.Click, At: at}}, []string{"mousemove 5 6 click --delay 60 --repeat 1 1"}},
		{"double right click with keys", []desktop.Action{{Kind: desktop.Click, Button: "right", Clicks: 2, Hold: []string{"shift", "cmd"}}}, []string{"keydown shift keydown super click --delay 60 --repeat 2 3 keyup super keyup shift"}},
		{"scroll", []desktop.Action{{Kind: desktop.Scroll, Direction: "up"}}, []string{"click --delay 10 --repeat 3 4"}},
		{"keys", []desktop.Action{{Kind: desktop.Key, Keys: "ctrl+l Enter ctrl++ f5 +"}}, []string{"once: key ctrl+l key Return key ctrl+plus key F5 key plus"}},
		{"down, up and wait", []desktop.Action{{Kind: desktop.MouseDown}, {Kind: desktop.Wait, Wait: time.Second}, {Kind: desktop.MouseUp}}, []string{"mousedown 1 sleep 1.000 mouseup 1"}},
		{"text between keys", []desktop.Action{{Kind: desktop.Key, Keys: "a"}, {Kind: desktop.Type, Text: "-- hi\n"}, {Kind: desktop.Key, Keys: "b"}}, []string{"once: key a", "once: type --delay 4 --file - < -- hi\n", "once: key b"}},
		{"other characters", []desktop.Action{{Kind: desktop.Type, Text: "aéé€"}}, []string{"xmodmap < keycode 232 = U00E9\nkeycode 233 = U20AC\n", "once: type --delay 12 --file - < aéé€"}},
		{"a key that is held", []desktop.Action{{Kind: desktop.KeyDown, Keys: "Right"}, {Kind: desktop.Key, Keys: "a"}, {Kind: desktop.KeyUp, Keys: "Right"}}, []string{"keydown Right key a keyup Right"}},
	} {
		b := &box{}
		if err := b.target().Do(t.Context(), tt.actions); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		var got []string
		for _, cmd := range b.ran {
			line := strings.TrimPrefix(strings.Join(cmd.Argv, " "), "xdotool ")
			switch {
			case len(cmd.Argv) > 3 && strings.HasPrefix(cmd.Argv[2], "if xset"):
				line = "once: " + strings.Join(cmd.Argv[4:], " ")
			case cmd.Argv[0] == "sh":
				line, _, _ = strings.Cut(cmd.Argv[2], " -")
				line = strings.TrimSuffix(line, " || true")
			}
			if cmd.Stdin != "" {
				line += " < " + cmd.Stdin
			}
			got = append(got, line)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestManyOtherCharacters(t *testing.T) {
	var text strings.Builder
	for r := 'Α'; r < 'Α'+60; r++ {
		text.WriteRune(r)
	}
	b := &box{}
	if err := b.target().Do(t.Context(), []desktop.Action{{Kind: desktop.Type, Text: text.String()}}); err != nil {
		t.Fatal(err)
	}
	var typed strings.Builder
	for _, cmd := range b.ran {
		if strings.HasPrefix(cmd.Argv[len(cmd.Argv)-1], "xmodmap") {
			if strings.Contains(cmd.Stdin, "keycode 256") {
				t.Errorf("keys beyond the keyboard: %q", cmd.Stdin)
			}
			continue
		}
		typed.WriteString(cmd.Stdin)
	}
	if typed.String() != text.String() {
		t.Errorf("typed %q, want %q", typed.String(), text.String())
	}
}

func TestWrongActions(t *testing.T) {
	at := &desktop.Point{}
	for field, a := range map[string]desktop.Action{
		"type": {Kind: "jump"}, "at": {Kind: desktop.Move}, "to": {Kind: desktop.Drag, At: at}, "button": {Kind: desktop.Click, Button: "fourth"},
		"clicks": {Kind: desktop.Click, Clicks: 4}, "text": {Kind: desktop.Type, Text: "\x1b"}, "keys": {Kind: desktop.Key, Keys: "ctrl+;rm"},
		"amount": {Kind: desktop.Scroll, Amount: 101}, "direction": {Kind: desktop.Key, Keys: "a", Direction: "up"}, "hold": {Kind: desktop.Click, Hold: []string{"--file"}},
		"duration_ms": {Kind: desktop.Wait, Wait: time.Hour},
	} {
		b := &box{}
		err := b.target().Do(t.Context(), []desktop.Action{{Kind: desktop.Wait}, a})
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.HasPrefix(err.Error(), "actions[1]."+field+":") || len(b.ran) != 0 {
			t.Errorf("%s: %v, after %d commands; want an error about the field and nothing done", field, err, len(b.ran))
		}
	}
	many := make([]desktop.Action, 7)
	for i := range many {
		many[i] = desktop.Action{Kind: desktop.Wait, Wait: 10 * time.Second}
	}
	if err := (&box{}).target().Do(t.Context(), many); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("actions that wait 70 s: %v, want invalid", err)
	}
}

func TestWindows(t *testing.T) {
	b := &box{answers: map[string]desktop.Result{
		"wmctrl -lGp":             said("0x00400002  0 12     0    0    1920 1054 host about:blank - Chromium\n0x00c0000c  0 196    204  224  484  316  N/A \nnonsense\n0xzz 0\n"),
		"wmctrl -lx":              said("0x00400002  0 chromium (/home/user).Chromium  host about:blank - Chromium\n0x00c0000c  0 xterm.XTerm           N/A \n"),
		"xdotool getactivewindow": said("12582924\n"),
	}}
	got, err := b.target().Windows(t.Context())
	want := []desktop.Window{
		{ID: "0x400002", Title: "about:blank - Chromium", Class: "chromium (/home/user).Chromium", PID: 12, Width: 1920, Height: 1054},
		{ID: "0xc0000c", Class: "xterm.XTerm", PID: 196, X: 204, Y: 224, Width: 484, Height: 316, Active: true},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Windows() error = %v (-want +got):\n%s", err, diff)
	}
	if err := b.target().Focus(t.Context(), "0xc0000c"); err != nil {
		t.Errorf("Focus() = %v", err)
	}
	if err := b.target().Close(t.Context(), "-c"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Close of no window = %v, want not_found", err)
	}
}

func TestOpen(t *testing.T) {
	for target, ok := range map[string]bool{"https://example.com/?a=b": true, "/workspace/a.pdf": true, "about:blank": true, "page.html": false, "--help": false, "": false, "/a\nb": false} {
		b := &box{answers: map[string]desktop.Result{"xdotool": said(geometry)}}
		err := b.target().Open(t.Context(), target)
		if ok != (err == nil) || !ok && sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("Open(%q) = %v", target, err)
		}
	}
}

// commands are executions that end as a test says, and files.
type commands struct {
	started []execution.Request
	all     []sandbox.Execution // the newest last; the last is current
	current sandbox.Execution
	sizes   map[string]int64
	paused  bool
	silent  string // the path for which the sandbox does not answer
	stats   int
}

func (c *commands) Start(_ context.Context, _ sandbox.Caller, _ string, req execution.Request) (sandbox.Execution, error) {
	c.started = append(c.started, req)
	c.current = sandbox.Execution{ID: "e", Sandbox: "s", Argv: req.Argv, State: sandbox.ExecutionRunning}
	c.all = append(c.all, c.current)
	return c.current, nil
}

func (c *commands) Wait(context.Context, sandbox.Caller, sandbox.ExecutionID, time.Duration) (sandbox.Execution, error) {
	return c.current, nil
}

func (c *commands) Cancel(context.Context, sandbox.Caller, sandbox.ExecutionID, bool) (sandbox.Execution, error) {
	c.current.State = sandbox.ExecutionCancelled
	return c.current, nil
}

// List returns pages of two.
func (c *commands) List(_ context.Context, _ sandbox.Caller, _ string, _ sandbox.ExecutionKind, r page.Request) (page.Page[sandbox.Execution], error) {
	list := slices.Clone(c.all)
	slices.Reverse(list)
	n, _ := strconv.Atoi(r.Cursor)
	end := min(n+2, len(list))
	p := page.Page[sandbox.Execution]{Items: list[n:end]}
	if end < len(list) {
		p.Next = strconv.Itoa(end)
	}
	return p, nil
}

func (c *commands) Forget(_ context.Context, _ sandbox.Caller, id sandbox.ExecutionID) error {
	c.all = slices.DeleteFunc(c.all, func(e sandbox.Execution) bool { return e.ID == id })
	return nil
}

func (c *commands) Stat(ctx context.Context, by sandbox.Caller, _, path string) (agentapi.FileInfo, error) {
	c.stats++
	n, ok := c.sizes[path]
	switch {
	case path == c.silent:
		<-ctx.Done()
		return agentapi.FileInfo{}, ctx.Err()
	case c.paused && by.ReadOnly:
		return agentapi.FileInfo{}, sandbox.Errorf(sandbox.NotRunning, "paused")
	case !ok:
		return agentapi.FileInfo{}, sandbox.Errorf(sandbox.FileNotFound, "no file")
	}
	return agentapi.FileInfo{Size: n, Type: agentapi.TypeFile}, nil
}

func (c *commands) Remove(_ context.Context, _ sandbox.Caller, _, path string, _ bool) error {
	if _, ok := c.sizes[path]; !ok {
		return sandbox.Errorf(sandbox.FileNotFound, "no file")
	}
	delete(c.sizes, path)
	return nil
}

// have adds recordings in a state, with files of a size.
func (c *commands) have(n int, state sandbox.ExecutionState, size int64) {
	for range n {
		e := c.current
		e.ID, e.State = sandbox.ExecutionID(fmt.Sprint("old", len(c.all))), state
		e.Argv = slices.Clone(e.Argv)
		path := "/" + string(e.ID) + ".mp4"
		e.Argv[4] = path
		c.sizes[path] = size
		c.all = append(c.all, e)
	}
}

func TestRecordingsOfASandbox(t *testing.T) {
	b := &box{answers: map[string]desktop.Result{"xdotool": said(geometry)}}
	const gib = 1 << 30
	for name, limit := range map[string]struct {
		n     int
		state sandbox.ExecutionState
		size  int64
		more  desktop.RecordOptions
		code  sandbox.Code
	}{
		"below the limits":     {desktop.MaxAtOnce - 1, sandbox.ExecutionRunning, 5, desktop.RecordOptions{}, ""},
		"at once":              {desktop.MaxAtOnce, sandbox.ExecutionRunning, 5, desktop.RecordOptions{}, sandbox.QuotaExceeded},
		"files":                {desktop.MaxFilms, sandbox.ExecutionCompleted, 5, desktop.RecordOptions{}, sandbox.QuotaExceeded},
		"files, one fewer":     {desktop.MaxFilms - 1, sandbox.ExecutionCompleted, 5, desktop.RecordOptions{}, ""},
		"replaces a file":      {desktop.MaxFilms, sandbox.ExecutionCompleted, 5, desktop.RecordOptions{Path: "/old3.mp4"}, ""},
		"bytes":                {10, sandbox.ExecutionCompleted, gib, desktop.RecordOptions{}, sandbox.QuotaExceeded},
		"bytes, smaller":       {9, sandbox.ExecutionCompleted, gib, desktop.RecordOptions{}, ""},
		"bytes of its own":     {1, sandbox.ExecutionCompleted, 1, desktop.RecordOptions{MaxSize: desktop.MaxTotal}, sandbox.QuotaExceeded},
		"bytes under way":      {3, sandbox.ExecutionRunning, 0, desktop.RecordOptions{MaxSize: 7*gib + 1}, sandbox.QuotaExceeded},
		"bytes under way, fit": {3, sandbox.ExecutionRunning, 0, desktop.RecordOptions{MaxSize: 7 * gib}, ""},
		"a lie about a size":   {9, sandbox.ExecutionCompleted, -1 << 60, desktop.RecordOptions{}, ""},
	} {
		c := &commands{sizes: map[string]int64{}}
		r := desktop.NewRecorder(c, c)
		if _, err := r.Start(t.Context(), sandbox.Caller{}, "s", b.target(), desktop.RecordOptions{}); err != nil {
			t.Fatal(err)
		}
		first := c.current
		c.all = []sandbox.Execution{{ID: "other", Argv: []string{"true"}}} // a command that is no recording
		c.have(limit.n, limit.state, limit.size)
		c.current = first
		if list, err := r.List(t.Context(), sandbox.Caller{}, "s", true); err != nil || len(list) != limit.n || list[0].Size != max(limit.size, 0) {
			t.Errorf("%s: List() = %+v, %v, want %d recordings with a file", name, list, err, limit.n)
		}
		_, err := r.Start(t.Context(), sandbox.Caller{}, "s", b.target(), limit.more)
		if (err == nil) != (limit.code == "") || err != nil && sandbox.CodeOf(err) != limit.code {
			t.Errorf("%s: Start() = %v, want %q", name, err, limit.code)
		}
	}
}

// recorder returns a recorder of a sandbox that has recordings with files, and the arguments of a start.
func recorder(t *testing.T, n int) (*desktop.Recorder, *commands, func(desktop.RecordOptions) error) {
	t.Helper()
	b := &box{answers: map[string]desktop.Result{"xdotool": said(geometry)}}
	c := &commands{sizes: map[string]int64{}}
	r := desktop.NewRecorder(c, c)
	start := func(o desktop.RecordOptions) error {
		_, err := r.Start(t.Context(), sandbox.Caller{}, "s", b.target(), o)
		return err
	}
	if err := start(desktop.RecordOptions{}); err != nil {
		t.Fatal(err)
	}
	c.all = nil
	c.have(n, sandbox.ExecutionCompleted, 5)
	return r, c, start
}

func TestSizesOfManyRecordings(t *testing.T) {
	r, c, start := recorder(t, desktop.MaxMeasured+1)
	for path := range c.sizes {
		delete(c.sizes, path) // as a program in the sandbox can
	}
	c.sizes["/old0.mp4"], c.sizes["/old1.mp4"] = 1, 2
	list, err := r.List(t.Context(), sandbox.Caller{}, "s", true)
	if n := len(list); err != nil || n != desktop.MaxMeasured+1 || list[n-1].Size != -1 || list[n-2].Size != 2 || c.stats != desktop.MaxMeasured {
		t.Errorf("List() = %d recordings, %v, after %d calls for sizes; want %d calls, for the newest", n, err, c.stats, desktop.MaxMeasured)
	}
	c.stats = 0
	if err := start(desktop.RecordOptions{}); sandbox.CodeOf(err) != sandbox.QuotaExceeded || !strings.Contains(err.Error(), "delete") || c.stats != 0 {
		t.Errorf("Start() = %v after %d calls for sizes, want a refusal without any that says to delete recordings", err, c.stats)
	}
	c.all = c.all[1:] // as many as are measured
	if err := start(desktop.RecordOptions{}); sandbox.CodeOf(err) != sandbox.QuotaExceeded || c.stats != 0 {
		t.Errorf("Start() to path %d = %v after %d calls for sizes, want a refusal", desktop.MaxMeasured+1, err, c.stats)
	}
	if err := start(desktop.RecordOptions{Path: "/old7.mp4"}); err != nil {
		t.Errorf("Start() to a path on record = %v", err)
	}
	c.all = c.all[1:]
	if err := start(desktop.RecordOptions{}); err != nil {
		t.Errorf("Start() with one fewer = %v", err)
	}
}

func TestSizesOfASandboxThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c, start := recorder(t, 3)
		c.silent = "/old1.mp4"
		begin := time.Now()
		list, err := r.List(t.Context(), sandbox.Caller{}, "s", true)
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("List() takes %s", took)
		}
		if err != nil || len(list) != 3 || list[0].Size != 5 || list[1].Size != -1 || list[2].Size != -1 {
			t.Errorf("List() = %+v, %v, want the size that is known", list, err)
		}
		if err := start(desktop.RecordOptions{}); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("Start() = %v, want %s", err, sandbox.Unavailable)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.List(ctx, sandbox.Caller{}, "s", true); err == nil {
			t.Error("List() for a caller that has gone away succeeds")
		}
	})
}

func TestNewFileForEachRecording(t *testing.T) {
	b := &box{answers: map[string]desktop.Result{"xdotool": said(geometry)}}
	c := &commands{sizes: map[string]int64{}}
	r := desktop.NewRecorder(c, c)
	seen := map[string]bool{}
	for range 20 {
		f, err := r.Start(t.Context(), sandbox.Caller{}, "s", b.target(), desktop.RecordOptions{})
		if err != nil || seen[f.Path] {
			t.Fatalf("Start() = %+v, %v, want a file of its own", f, err)
		}
		seen[f.Path] = true
		c.all = nil
	}
}

func TestDeleteRecording(t *testing.T) {
	b := &box{answers: map[string]desktop.Result{"xdotool": said(geometry)}}
	c := &commands{sizes: map[string]int64{}}
	r := desktop.NewRecorder(c, c)
	if _, err := r.Start(t.Context(), sandbox.Caller{}, "s", b.target(), desktop.RecordOptions{Path: "/a.mp4"}); err != nil {
		t.Fatal(err)
	}
	c.sizes["/a.mp4"] = 3
	c.paused = true
	if list, err := r.List(t.Context(), sandbox.Caller{}, "s", true); err != nil || len(list) != 1 || list[0].Size != -1 {
		t.Errorf("List() of a paused sandbox = %+v, %v, want a recording whose size is not known", list, err)
	}
	c.paused = false
	later := c.current
	later.ID = "later"
	c.all = append(c.all, later)
	if err := r.Delete(t.Context(), sandbox.Caller{}, "s", "e"); err != nil || len(c.all) != 1 || c.sizes["/a.mp4"] != 3 || c.current.State != sandbox.ExecutionCancelled {
		t.Errorf("Delete() = %v, leaving %v and %v, want it ended and forgotten, and the file for the later recording", err, c.all, c.sizes)
	}
	c.current = later
	if err := r.Delete(t.Context(), sandbox.Caller{}, "s", "later"); err != nil || len(c.all)+len(c.sizes) != 0 {
		t.Errorf("Delete() of the last = %v, leaving %v and %v", err, c.all, c.sizes)
	}
}

func TestRecording(t *testing.T) {
	c := &commands{}
	r := desktop.NewRecorder(c, c)
	b := &box{answers: map[string]desktop.Result{"xdotool": said(geometry)}}
	film, err := r.Start(t.Context(), sandbox.Caller{}, "s", b.target(), desktop.RecordOptions{Path: "/workspace/a.mp4", FPS: 5, MaxTime: time.Minute})
	want := desktop.Film{ID: "e", Path: "/workspace/a.mp4", State: desktop.Recording, Size: -1}
	if diff := cmp.Diff(want, film, cmpopts.IgnoreUnexported(desktop.Film{})); err != nil || diff != "" {
		t.Fatalf("Start() = %v (-want +got):\n%s", err, diff)
	}
	if got := c.started[0].Argv[4:]; !slices.Equal(got, []string{"/workspace/a.mp4", "5", "60", "1073741824"}) {
		t.Errorf("ffmpeg's values are %q", got)
	}
	if film, err = r.Stop(t.Context(), sandbox.Caller{}, "s", "e"); err != nil || film.State != desktop.Recorded {
		t.Errorf("Stop() = %+v, %v, want done", film, err)
	}
	code := 1
	c.current.State, c.current.ExitCode = sandbox.ExecutionCompleted, &code
	if film, err = r.Get(t.Context(), sandbox.Caller{}, "s", "e"); err != nil || film.State != desktop.Failed || film.Error == "" {
		t.Errorf("Get() of one that failed = %+v, %v", film, err)
	}
	if _, err := r.Get(t.Context(), sandbox.Caller{}, "other", "e"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Get() of another sandbox's = %v, want not_found", err)
	}
	c.current.Argv = []string{"true"}
	if _, err := r.Get(t.Context(), sandbox.Caller{}, "s", "e"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Get() of another command = %v, want not_found", err)
	}
	for field, o := range map[string]desktop.RecordOptions{
		"path": {Path: "a.mp4"}, "fps": {FPS: 31}, "max_seconds": {MaxTime: 5 * time.Hour}, "max_bytes": {MaxSize: -1},
	} {
		if _, err := r.Start(t.Context(), sandbox.Caller{}, "s", b.target(), o); sandbox.CodeOf(err) != sandbox.Invalid || !strings.HasPrefix(err.Error(), field+":") {
			t.Errorf("Start(%+v) = %v, want an error about %s", o, err, field)
		}
	}
}
