package mcp

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/client"
)

// screenServer answers the calls of /v1 for a sandbox with a desktop, and records the calls of its desktop.
type screenServer struct {
	called  []string
	picture []byte
	windows []client.DesktopWindow
}

func (s *screenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // an error makes the body differ from the wanted one
	path, onDesktop := strings.CutPrefix(r.URL.Path, "/v1/sandboxes/s1/desktop")
	if onDesktop {
		s.called = append(s.called, strings.TrimSpace(strings.Join([]string{r.Method, path, r.URL.RawQuery, string(body)}, " ")))
	}
	say := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // the caller reports that an answer is missing
	}
	switch {
	case !onDesktop:
		say(client.Sandbox{ID: "s1", Name: "s1", State: client.Running})
	case path == "":
		say(client.Screen{Width: 800, Height: 600, Cursor: client.Point{X: 3, Y: 4}})
	case path == "/screenshot":
		_, _ = w.Write(s.picture)
	case path == "/windows":
		say(client.Page[client.DesktopWindow]{Items: s.windows})
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// connect returns a client of the tools of a session whose server is s.
func (s *screenServer) connect(t *testing.T) *sdk.ClientSession {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "mbx_test", client.WithAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	there, here := sdk.NewInMemoryTransports()
	serving, err := New(c, Options{}).Server().Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Error(err)
		}
		_ = serving.Wait() // that the client has left is no error of the test
	})
	return session
}

// use calls a tool, and returns the result and its text.
func use(t *testing.T, session *sdk.ClientSession, name string, args map[string]any) (*sdk.CallToolResult, string) {
	t.Helper()
	args["sandbox"] = "s1"
	res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var all strings.Builder
	for _, c := range res.Content {
		if c, ok := c.(*sdk.TextContent); ok {
			all.WriteString(c.Text)
		}
	}
	return res, all.String()
}

func TestDesktopTools(t *testing.T) {
	s := &screenServer{picture: []byte("png")}
	session := s.connect(t)
	for _, c := range []struct {
		tool string
		args map[string]any
		want []string
	}{
		{"click", map[string]any{"x": 1, "y": 0, "clicks": 2}, []string{`POST /actions  {"actions":[{"type":"click","at":{"x":1,"y":0},"clicks":2}]}`}},
		{"click", map[string]any{"button": "right", "hold": []string{"shift"}}, []string{`POST /actions  {"actions":[{"type":"click","button":"right","hold":["shift"]}]}`}},
		{"move_mouse", map[string]any{"x": 1, "y": 2}, []string{`POST /actions  {"actions":[{"type":"move","at":{"x":1,"y":2}}]}`}},
		{"drag", map[string]any{"from_x": 1, "from_y": 2, "to_x": 3, "to_y": 4}, []string{`POST /actions  {"actions":[{"type":"drag","at":{"x":1,"y":2},"to":{"x":3,"y":4}}]}`}},
		{"scroll", map[string]any{"direction": "up", "amount": 5}, []string{`POST /actions  {"actions":[{"type":"scroll","direction":"up","amount":5}]}`}},
		{"type", map[string]any{"text": "a\nb"}, []string{`POST /actions  {"actions":[{"type":"type","text":"a\nb"}]}`}},
		{"wait", map[string]any{"seconds": 0.5}, []string{`POST /actions  {"actions":[{"type":"wait","duration_ms":500}]}`}},
		{"key", map[string]any{"keys": "ctrl+l", "screenshot": true}, []string{
			`POST /actions  {"actions":[{"type":"key","keys":"ctrl+l"}]}`, `POST /actions  {"actions":[{"type":"wait","duration_ms":1000}]}`, "GET", "GET /screenshot pointer=true"}},
		{"screenshot", map[string]any{"width": 5, "height": 6}, []string{"GET", "GET /screenshot height=6&pointer=true&width=5"}},
		{"focus_window", map[string]any{"window": "0x1"}, []string{"POST /windows/0x1/focus"}},
		{"open", map[string]any{"target": "about:blank"}, []string{`POST /open  {"target":"about:blank"}`}},
		{"open", map[string]any{"command": []string{"xterm"}}, []string{`POST /open  {"command":["xterm"]}`}},
	} {
		s.called = nil
		res, said := use(t, session, c.tool, c.args)
		if res.IsError || !slices.Equal(s.called, c.want) {
			t.Errorf("%s: %q, which called %q, want %q", c.tool, said, s.called, c.want)
		}
		picture := slices.IndexFunc(res.Content, func(c sdk.Content) bool { _, ok := c.(*sdk.ImageContent); return ok }) >= 0
		if want := c.tool == "screenshot" || c.args["screenshot"] == true; picture != want || want && !strings.Contains(said, "800x600") {
			t.Errorf("%s: answers a picture: %t, want %t; it says %q", c.tool, picture, want, said)
		}
	}
}

func TestDesktopToolsRefuse(t *testing.T) {
	s := &screenServer{picture: make([]byte, maxImage+1)}
	session := s.connect(t)
	for tool, c := range map[string]struct {
		args map[string]any
		want string
	}{
		"click":      {map[string]any{"x": 1}, "invalid: give both x and y"},
		"scroll":     {map[string]any{"y": 1}, "invalid: give both x and y"},
		"wait":       {map[string]any{"seconds": 11}, "invalid: seconds"},
		"open":       {map[string]any{}, "invalid: give either target or command"},
		"screenshot": {map[string]any{}, "too_large: "},
	} {
		if res, said := use(t, session, tool, c.args); !res.IsError || !strings.HasPrefix(said, c.want) {
			t.Errorf("%s %v: %q, want an error %q", tool, c.args, said, c.want)
		}
	}
}

// TestWindowsOfAHostileProgram has more windows and longer titles than a model can read.
func TestWindowsOfAHostileProgram(t *testing.T) {
	s := &screenServer{windows: slices.Repeat([]client.DesktopWindow{{ID: "0x1", Title: strings.Repeat("<", 2_000), WMClass: strings.Repeat("😀", 2_000)}}, 500)}
	_, said := use(t, s.connect(t), "list_windows", map[string]any{})
	var list struct {
		Windows []client.DesktopWindow
		More    bool
	}
	if err := json.Unmarshal([]byte(said), &list); err != nil || len(said) > 2*maxText || len(list.Windows) != maxWindows || !list.More || len([]rune(list.Windows[0].Title)) != maxTitle+1 {
		t.Errorf("list_windows answers %d bytes, %d windows, more: %t, %v", len(said), len(list.Windows), list.More, err)
	}
}
