package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/cli/base"
)

// screenServer answers the requests for the desktop of a sandbox, and notes them.
type screenServer struct{ seen []string }

func (s *screenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/demo/desktop")
	s.seen = append(s.seen, strings.Join(strings.Fields(r.Method+" "+strings.TrimSuffix(path+"?"+r.URL.RawQuery, "?")+" "+string(body)), " "))
	film := wire.Recording{ID: "r1", Path: "/w/\x1b[2J.mp4", State: "recording", CreatedAt: fixed}
	var answer any = film
	switch {
	case path == "":
		answer = wire.Desktop{Width: 800, Height: 600}
	case path == "/screenshot":
		_, _ = io.WriteString(w, "\x89PNG")
		return
	case path == "/windows":
		answer = wire.Page[wire.DesktopWindow]{Items: []wire.DesktopWindow{{ID: "0x1", Active: true, Width: 30, Height: 20, X: 5, Y: 6, WMClass: "xterm", Title: "a\x1bb"}}}
	case r.Method == http.MethodDelete || !strings.HasPrefix(path, "/recordings"):
		w.WriteHeader(http.StatusNoContent)
		return
	case path == "/recordings" && r.Method == http.MethodGet:
		answer = wire.Page[wire.Recording]{Items: []wire.Recording{film}}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func TestDesktopCommands(t *testing.T) {
	for _, c := range []struct{ args, request, out string }{
		{"screenshot demo --region 1,2,3,4 --pointer", "GET /screenshot?height=4&pointer=true&width=3&x=1&y=2", "\x89PNG"},
		{"click demo 1 2 --double --hold shift,ctrl", `POST /actions {"actions":[{"type":"click","at":{"x":1,"y":2},"button":"left","clicks":2,"hold":["shift","ctrl"]}]}`, ""},
		{"click demo --button right", `POST /actions {"actions":[{"type":"click","button":"right"}]}`, ""},
		{"move demo 7 8", `POST /actions {"actions":[{"type":"move","at":{"x":7,"y":8}}]}`, ""},
		{"drag demo 1 2 3 4", `POST /actions {"actions":[{"type":"drag","at":{"x":1,"y":2},"to":{"x":3,"y":4},"button":"left"}]}`, ""},
		{"scroll demo up --amount 5 --at 1,2", `POST /actions {"actions":[{"type":"scroll","at":{"x":1,"y":2},"direction":"up","amount":5}]}`, ""},
		{"type demo text", `POST /actions {"actions":[{"type":"type","text":"text"}]}`, ""},
		{"key demo ctrl+l Return", `POST /actions {"actions":[{"type":"key","keys":"ctrl+l Return"}]}`, ""},
		{"windows demo", "GET /windows?limit=1000", "0x1      *        30x20+5+6   xterm   a\ufffdb"},
		{"focus demo 0x1", "POST /windows/0x1/focus", ""},
		{"close demo 0x1", "DELETE /windows/0x1", ""},
		{"open demo about:blank", `POST /open {"target":"about:blank"}`, ""},
		{"open --program demo -- xterm -e top", `POST /open {"command":["xterm","-e","top"]}`, ""},
		{"size demo", "GET", "800x600\n"},
		{"size demo 640x480", `PATCH {"width":640,"height":480}`, "800x600\n"},
		{"record demo --fps 5 --path /a.mp4", `POST /recordings {"path":"/a.mp4","fps":5,"max_seconds":600,"max_bytes":1073741824}`, "r1 /w/\ufffd[2J.mp4\n"},
		{"record demo --stop r1", "POST /recordings/r1/stop", "r1 "},
		{"record demo --delete r1", "DELETE /recordings/r1", ""},
		{"recordings demo", "GET /recordings", "r1          recording"},
	} {
		s := new(screenServer)
		r := invoke(t, s, "", append([]string{"desktop"}, strings.Fields(c.args)...)...)
		if r.code != 0 || !strings.Contains(r.stdout, c.out) || !slices.Equal(s.seen, []string{c.request}) {
			t.Errorf("modbox desktop %s = %+v after %q, want %q after %q", c.args, r, s.seen, c.out, c.request)
		}
	}
	file := filepath.Join(t.TempDir(), "screen.png")
	if r := invoke(t, new(screenServer), "", "desktop", "screenshot", "demo", file); r.code != 0 || r.stdout != "" {
		t.Errorf("screenshot to a file = %+v", r)
	}
	if b, err := os.ReadFile(file); string(b) != "\x89PNG" {
		t.Errorf("the file has %q, %v", b, err)
	}
	for _, args := range []string{"click demo 1", "move demo -- -1 2", "scroll demo up --at 1", "size demo 640", "screenshot demo --region 1,2", "open demo a b", "record demo --stop a --delete b"} {
		if r := invoke(t, nil, "", append([]string{"desktop"}, strings.Fields(args)...)...); r.code != base.ExitUsage {
			t.Errorf("modbox desktop %s = %+v, want that the arguments are wrong", args, r)
		}
	}
}
