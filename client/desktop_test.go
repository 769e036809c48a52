package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/wire"
)

func TestDesktop(t *testing.T) {
	const base = "/v1/sandboxes/a%2Fb/desktop"
	screen := wire.Desktop{Width: 800, Height: 600, Cursor: wire.Point{X: 1, Y: 2}}
	window := wire.DesktopWindow{ID: "0x1", Title: "T"}
	film := wire.Recording{ID: "r", Path: "/a.mp4", State: "recording"}
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		path := strings.TrimPrefix(r.URL.EscapedPath(), base)
		got = append(got, strings.TrimSpace(r.Method+" "+path+r.URL.RawQuery+" "+string(body)))
		switch {
		case path == "":
			answer(t, w, screen)
		case path == "/screenshot":
			_, _ = io.WriteString(w, "png")
		case path == "/windows":
			answer(t, w, wire.Page[wire.DesktopWindow]{Items: []wire.DesktopWindow{window}})
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case path == "/recordings" && r.Method == http.MethodGet:
			answer(t, w, wire.Page[wire.Recording]{Items: []wire.Recording{film}})
		case strings.HasPrefix(path, "/recordings"):
			answer(t, w, film)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	d, ctx := c.Sandboxes.Desktop("a/b"), t.Context()
	done := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	s, err := d.Screen(ctx)
	if done(err); *s != screen {
		t.Errorf("Screen = %+v, want %+v", s, screen)
	}
	_, err = d.Resize(ctx, 800, 600)
	done(err)
	picture, err := d.Screenshot(ctx, client.ScreenshotOptions{Width: 5, Pointer: true})
	if done(err); string(picture) != "png" {
		t.Errorf("Screenshot = %q", picture)
	}
	done(d.Move(ctx, 1, 2))
	done(d.Click(ctx, 1, 2))
	done(d.DoubleClick(ctx, 1, 2))
	done(d.RightClick(ctx, 1, 2))
	done(d.Drag(ctx, client.Point{X: 1}, client.Point{Y: 2}))
	done(d.Scroll(ctx, 1, 2, "up", 5))
	done(d.Type(ctx, "text"))
	done(d.Press(ctx, "ctrl+l"))
	windows, err := d.Windows(ctx)
	if done(err); len(windows) != 1 || windows[0] != window {
		t.Errorf("Windows = %+v, want %+v", windows, window)
	}
	done(d.Focus(ctx, "0x1"))
	done(d.Close(ctx, "0x1"))
	done(d.Open(ctx, "about:blank"))
	done(d.Launch(ctx, "xterm"))
	r, err := d.Record(ctx, client.RecordOptions{FPS: 5})
	if done(err); *r != film {
		t.Errorf("Record = %+v, want %+v", r, film)
	}
	_, err = d.Recording(ctx, "r")
	done(err)
	_, err = d.StopRecording(ctx, "r")
	done(err)
	films, err := d.Recordings().Collect(ctx)
	if done(err); len(films) != 1 || films[0] != film {
		t.Errorf("Recordings = %+v, want %+v", films, film)
	}
	done(d.DeleteRecording(ctx, "r"))
	action := func(fields string) string { return `POST /actions {"actions":[{"type":` + fields + `}]}` }
	want := []string{
		"GET", `PATCH  {"width":800,"height":600}`, "GET /screenshotpointer=true&width=5",
		action(`"move","at":{"x":1,"y":2}`), action(`"click","at":{"x":1,"y":2}`), action(`"click","at":{"x":1,"y":2},"clicks":2`),
		action(`"click","at":{"x":1,"y":2},"button":"right"`), action(`"drag","at":{"x":1,"y":0},"to":{"x":0,"y":2}`),
		action(`"scroll","at":{"x":1,"y":2},"direction":"up","amount":5`), action(`"type","text":"text"`), action(`"key","keys":"ctrl+l"`),
		"GET /windowslimit=1000", "POST /windows/0x1/focus", "DELETE /windows/0x1", `POST /open {"target":"about:blank"}`, `POST /open {"command":["xterm"]}`,
		`POST /recordings {"fps":5}`, "GET /recordings/r", "POST /recordings/r/stop", "GET /recordings", "DELETE /recordings/r",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
