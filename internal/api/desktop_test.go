package api_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

// standIns are programs that replace the programs of a desktop. They know one window, WINDOW, and record their
// arguments in the directory DESKTOP.
var standIns = map[string]string{
	"wmctrl": `case "$1" in
-lGp) echo "$WINDOW  0 7      10 20   300  200  host A title" ;;
-lx) echo "$WINDOW  0 xterm.XTerm  host A title" ;;
*) echo "wmctrl $*" >>"$DESKTOP/did" ;;
esac`,
	"xdotool": `case "$1" in
getdisplaygeometry) cat "$DESKTOP/screen" ;;
getactivewindow) printf '%d\n' "$WINDOW" ;;
type) echo "xdotool $* <$(cat)" >>"$DESKTOP/did" ;;
*) echo "xdotool $*" >>"$DESKTOP/did" ;;
esac`,
	"scrot":    `for last; do :; done; cp "$DESKTOP/picture" "$last"`,
	"xrandr":   `echo "screen connected"`,
	"xdg-open": `echo "xdg-open $*" >>"$DESKTOP/did"`,
	"ffmpeg":   `[ "$1" = -version ] || exec sleep 600`,
}

// newDesktop returns the environment of a sandbox that has stand-ins for the programs of a desktop, with one window,
// whose id depends on the name.
func newDesktop(t testing.TB, name string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	write := func(file, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for program, script := range standIns {
		write(program, "#!/bin/sh\n"+script+"\n")
	}
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 800, 600))); err != nil {
		t.Fatal(err)
	}
	write("picture", picture.String())
	write("screen", "WIDTH=800\nHEIGHT=600\nX=10\nY=20\n")
	return map[string]string{
		"PATH": dir + ":/usr/local/bin:/usr/bin:/bin", "DESKTOP": dir, "WINDOW": fmt.Sprintf("0x1%07x", crc32.ChecksumIEEE([]byte(name))&0xfffffff),
	}
}

// withDesktop makes a sandbox with a desktop.
func withDesktop(t *testing.T, s *apitest.Server, name string) map[string]string {
	t.Helper()
	env := newDesktop(t, name)
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": name, "wait_seconds": 180, "env": env})
	return env
}

// did returns the record of the stand-ins.
func did(t *testing.T, env map[string]string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(env["DESKTOP"], "did"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDesktop(t *testing.T) {
	s := apitest.New(t)
	env := withDesktop(t, s, "s")
	const at = "/v1/sandboxes/s/desktop"
	var screen wire.Desktop
	s.Want(200, "GET", at, nil).Into(t, &screen)
	if want := (wire.Desktop{Width: 800, Height: 600, Cursor: wire.Point{X: 10, Y: 20}}); screen != want {
		t.Errorf("the screen is %+v, want %+v", screen, want)
	}
	s.Want(200, "PATCH", at, map[string]any{"width": 800, "height": 600})
	shot := s.Want(200, "GET", at+"/screenshot?pointer=true", nil)
	if c, err := png.DecodeConfig(bytes.NewReader(shot.Body)); err != nil || c.Width != 800 || shot.Header.Get("Content-Type") != "image/png" {
		t.Errorf("the screenshot is %+v of type %s, %v", c, shot.Header.Get("Content-Type"), err)
	}
	s.Want(204, "POST", at+"/actions", map[string]any{"actions": []any{
		map[string]any{"type": "click", "at": map[string]any{"x": 1, "y": 2}}, map[string]any{"type": "type", "text": "secret; $(reboot)"}, map[string]any{"type": "key", "keys": "ctrl+l"},
	}})
	var windows wire.Page[wire.DesktopWindow]
	s.Want(200, "GET", at+"/windows", nil).Into(t, &windows)
	want := wire.DesktopWindow{ID: env["WINDOW"], Title: "A title", WMClass: "xterm.XTerm", PID: 7, X: 10, Y: 20, Width: 300, Height: 200, Active: true}
	if len(windows.Items) != 1 || windows.Items[0] != want || windows.NextCursor != nil {
		t.Errorf("the windows are %+v, want %+v", windows, want)
	}
	s.Want(204, "POST", at+"/windows/"+want.ID+"/focus", nil)
	s.Want(204, "DELETE", at+"/windows/"+want.ID, nil)
	s.Want(204, "POST", at+"/open", map[string]any{"target": "https://example.com"})
	got := did(t, env)
	for _, line := range []string{
		"xdotool mousemove 1 2 click --delay 60 --repeat 1 1\n", "xdotool type --delay 4 --file - <secret; $(reboot)\n", "xdotool key ctrl+l\n",
		"wmctrl -i -a " + want.ID, "wmctrl -i -c " + want.ID,
	} {
		if !strings.Contains(got, line) {
			t.Errorf("the programs did %q, in which %q is missing", got, line)
		}
	}
}

func TestDesktopRefuses(t *testing.T) {
	s := apitest.New(t)
	withDesktop(t, s, "s")
	running(t, s, "plain")
	const at = "/v1/sandboxes/s/desktop"
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		code         sandbox.Code
		field        string
	}{
		{"PATCH", at, map[string]any{"width": 1, "height": 600}, 422, sandbox.Invalid, "width"},
		{"GET", at + "/screenshot?x=800&width=1&height=1", nil, 422, sandbox.Invalid, "x"},
		{"GET", at + "/screenshot?width=five", nil, 422, sandbox.Invalid, "width"},
		{"GET", at + "/screenshot?pointer=perhaps", nil, 422, sandbox.Invalid, "pointer"},
		{"POST", at + "/actions", map[string]any{"actions": []any{}}, 422, sandbox.Invalid, "actions"},
		{"POST", at + "/actions", map[string]any{"actions": []any{map[string]any{"type": "wait"}, map[string]any{"type": "move"}}}, 422, sandbox.Invalid, "actions[1].at"},
		{"POST", at + "/windows/0x999/focus", nil, 404, sandbox.NotFound, ""},
		{"DELETE", at + "/windows/-r", nil, 404, sandbox.NotFound, ""},
		{"POST", at + "/open", map[string]any{}, 422, sandbox.Invalid, "target"},
		{"POST", at + "/open", map[string]any{"target": "relative/path"}, 422, sandbox.Invalid, "target"},
		{"POST", at + "/open", map[string]any{"target": "about:blank", "command": []string{"true"}}, 422, sandbox.Invalid, "command"},
		{"POST", at + "/open", map[string]any{"command": []string{"no-such-program"}}, 404, sandbox.ProgramNotFound, ""},
		{"POST", at + "/recordings", map[string]any{"path": "/a.txt"}, 422, sandbox.Invalid, "path"},
		{"GET", "/v1/sandboxes/plain/desktop/recordings/00000000-0000-7000-8000-000000000000", nil, 404, sandbox.NotFound, ""},
		{"GET", "/v1/sandboxes/none/desktop", nil, 404, sandbox.NotFound, ""},
	} {
		p := problem(t, s.Want(c.status, c.method, c.path, c.body))
		field := ""
		if len(p.Errors) > 0 {
			field = p.Errors[0].Location
		}
		if p.Code != c.code || field != c.field {
			t.Errorf("%s %s: %s of %q, want %s of %q: %s", c.method, c.path, p.Code, field, c.code, c.field, p.Detail)
		}
	}
}

// TestDesktopOfGarbage has programs whose answers are not what such programs answer.
func TestDesktopOfGarbage(t *testing.T) {
	s := apitest.New(t)
	env := withDesktop(t, s, "s")
	const at = "/v1/sandboxes/s/desktop"
	for file, content := range map[string]string{"screen": strings.Repeat("WIDTH=1\n", 1000), "picture": "<script>alert(1)</script>"} {
		if err := os.WriteFile(filepath.Join(env["DESKTOP"], file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{at, at + "/screenshot", at + "/screenshot?width=10&height=10"} {
		if p := problem(t, s.Want(503, "GET", path, nil)); p.Code != sandbox.Unavailable || strings.Contains(p.Detail, "alert") {
			t.Errorf("GET %s: %+v, want unavailable, without what the program answered", path, p)
		}
	}
	if err := os.WriteFile(filepath.Join(env["DESKTOP"], "wmctrl"), []byte("#!/bin/sh\nyes '0x1  0 7 10 20 300 200 host a' | head -c 4000000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var windows wire.Page[wire.DesktopWindow]
	s.Want(200, "GET", at+"/windows?limit=1000", nil).Into(t, &windows)
	if len(windows.Items) != 1 {
		t.Errorf("there are %d windows in the list, want the one that is there again and again", len(windows.Items))
	}
}

func TestRecordings(t *testing.T) {
	s := apitest.New(t)
	withDesktop(t, s, "s")
	withDesktop(t, s, "other")
	const at = "/v1/sandboxes/s/desktop/recordings"
	var film wire.Recording
	s.Want(201, "POST", at, map[string]any{"fps": 5}).Into(t, &film)
	if film.State != "recording" || !strings.HasPrefix(film.Path, "recordings/") {
		t.Errorf("the new recording is %+v", film)
	}
	s.Want(200, "GET", at+"/"+film.ID, nil).Into(t, &film)
	if film.State != "recording" {
		t.Errorf("the recording is %+v, want recording", film)
	}
	if p := problem(t, s.Want(404, "POST", "/v1/sandboxes/other/desktop/recordings/"+film.ID+"/stop", nil)); p.Code != sandbox.NotFound {
		t.Errorf("stop by the path of another sandbox: %+v", p)
	}
	for range 2 { // the second changes nothing
		if s.Want(200, "POST", at+"/"+film.ID+"/stop", nil).Into(t, &film); film.State != "done" {
			t.Errorf("the recording is %+v after it was stopped, want done", film)
		}
	}
	// A recording that was stopped at once may not have made its directory.
	s.Want(200, "PUT", "/v1/sandboxes/s/files?parents=true&path="+film.Path, "film")
	var later wire.Recording
	s.Want(201, "POST", at, nil).Into(t, &later)
	var page wire.Page[wire.Recording]
	s.Want(200, "GET", at+"?limit=1", nil).Into(t, &page)
	if len(page.Items) != 1 || page.Items[0].ID != later.ID || page.NextCursor == nil {
		t.Fatalf("the first page is %+v, want the last recording", page)
	}
	cursor := *page.NextCursor
	page = wire.Page[wire.Recording]{}
	s.Want(200, "GET", at+"?limit=1&cursor="+cursor, nil).Into(t, &page)
	if len(page.Items) != 1 || page.Items[0].ID != film.ID || page.Items[0].SizeBytes == nil || *page.Items[0].SizeBytes != 4 || page.Items[0].EndedAt == nil || page.NextCursor != nil {
		t.Errorf("the second page is %+v, want %s, ended, with 4 bytes", page, film.ID)
	}
	for range 3 {
		s.Want(201, "POST", at, nil)
	}
	if p := problem(t, s.Want(429, "POST", at, nil)); p.Code != sandbox.QuotaExceeded {
		t.Errorf("a fifth recording at once: %+v", p)
	}
	s.Want(204, "DELETE", at+"/"+later.ID, nil)
	s.Want(404, "GET", at+"/"+later.ID, nil)
	s.Want(404, "GET", "/v1/executions/"+later.ID, nil)
	s.Want(204, "DELETE", at+"/"+film.ID, nil)
	s.Want(404, "GET", "/v1/sandboxes/s/files/stat?path="+film.Path, nil)
	var command wire.Execution
	s.Want(201, "POST", "/v1/sandboxes/s/executions", map[string]any{"shell": "true"}).Into(t, &command)
	if p := problem(t, s.Want(404, "POST", at+"/"+command.ID+"/stop", nil)); p.Code != sandbox.NotFound {
		t.Errorf("stop a command as if it were a recording: %+v", p)
	}
}
