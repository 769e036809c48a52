package sandbox_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
)

// TestOutput reads both outputs of a command, whose characters arrive in pieces.
func TestOutput(t *testing.T) {
	read := make(chan struct{}, 1)
	stream := func(parts ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for _, part := range parts {
				if part == "wait" {
					select {
					case <-read:
					case <-r.Context().Done():
					}
					continue
				}
				_, _ = w.Write([]byte(part))
				w.(http.Flusher).Flush()
			}
		}
	}
	_, sbx := running(t, map[string]http.HandlerFunc{
		"GET /executions/e1":  say(client.Execution{ID: "e1", SandboxID: "s1", Stdout: client.OutputStream{StreamID: "out"}, Stderr: client.OutputStream{StreamID: "err"}}),
		"GET /executions/tty": say(client.Execution{ID: "tty", SandboxID: "s1", Stdout: client.OutputStream{StreamID: "one"}, Stderr: client.OutputStream{StreamID: "one"}}),
		"GET /executions/e2":  say(client.Execution{ID: "e2", SandboxID: "s1", Stdout: client.OutputStream{StreamID: "open"}, Stderr: client.OutputStream{StreamID: "none"}}),
		"GET /executions/e3":  say(client.Execution{ID: "e3", SandboxID: "s1", Stdout: client.OutputStream{StreamID: "open"}, Stderr: client.OutputStream{StreamID: "open2"}}),
		// The first piece of the euro sign is read before the second is sent.
		"GET /streams/out":   stream("a\xe2\x82", "wait", "\xac\xff\xe2"),
		"GET /streams/err":   stream("no"),
		"GET /streams/one":   stream("tty"),
		"GET /streams/open":  stream("begun", "wait"),
		"GET /streams/open2": stream("wait"),
		"GET /streams/none":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "gone", http.StatusNotFound) },
	})
	output := func(ctx context.Context, id string, each func(text string) bool) (got map[string]string, err error) {
		t.Helper()
		p, err := sbx.Process(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		got = map[string]string{}
		for chunk, err := range p.Output(ctx) {
			if err != nil {
				return got, err
			}
			got[chunk.Stream] += chunk.Text
			if !each(chunk.Text) {
				break
			}
		}
		return got, nil
	}
	got, err := output(t.Context(), "e1", func(text string) bool {
		if strings.HasPrefix(text, "a") {
			read <- struct{}{}
		}
		return true
	})
	if err != nil || got["stdout"] != "a€\uFFFD\uFFFD" || got["stderr"] != "no" {
		t.Errorf("output %q, %v", got, err)
	}
	if got, err := output(t.Context(), "tty", func(string) bool { return true }); err != nil || got["stdout"] != "tty" || len(got) != 1 {
		t.Errorf("output of one stream %q, %v", got, err)
	}
	if _, err := output(t.Context(), "e2", func(string) bool { return true }); err == nil {
		t.Error("a stream that is missing gave no error")
	}
	// A loop can break while the command runs, and ends with its context.
	if got, err := output(t.Context(), "e3", func(string) bool { return false }); err != nil || got["stdout"] != "begun" {
		t.Errorf("output until the loop breaks: %q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := output(ctx, "e3", func(string) bool { cancel(); return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("output after the end of its context: %v", err)
	}
}
