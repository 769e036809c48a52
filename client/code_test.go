package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/wire"
)

// answer writes v as JSON.
func answer(t *testing.T, w http.ResponseWriter, v any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		t.Error(err)
	}
}

func TestRunCode(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var body wire.RunCode
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		want := wire.RunCode{Code: "1/0", ContextID: "c1", TimeoutSeconds: 2}
		if r.Method != "POST" || r.URL.EscapedPath() != "/v1/sandboxes/a%2Fb/code" || body != want {
			t.Errorf("%s %s %+v, want POST …/a%%2Fb/code %+v", r.Method, r.URL.EscapedPath(), body, want)
		}
		answer(t, w, wire.CodeResult{Status: "error", ContextID: "c1", Error: &wire.CodeError{Name: "ZeroDivisionError", Value: "division by zero"}})
	})
	res, err := c.Sandboxes.RunCode(t.Context(), "a/b", "1/0", client.CodeOptions{ContextID: "c1", Timeout: 1500 * time.Millisecond})
	if err != nil || res.Status != "error" || res.Error == nil || res.Error.Name != "ZeroDivisionError" {
		t.Errorf("Run = %+v, %v; want the code's error in the result", res, err)
	}
}

// lines answers events, one a line, and breaks the connection after them.
func lines(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, ev := range events {
			_, _ = io.WriteString(w, ev+"\n")
		}
	}
}

func TestStreamCode(t *testing.T) {
	const started, text = `{"type":"started","context_id":"python"}`, `{"type":"stdout","text":"hello"}`
	for name, tt := range map[string]struct {
		events []string
		want   []string
		err    error
	}{
		"whole":   {[]string{started, `{"type":"ping"}`, text, `{"type":"end","status":"ok"}`}, []string{"started", "stdout", "end"}, nil},
		"cut":     {[]string{started, text}, []string{"started", "stdout"}, client.ErrCut},
		"failure": {[]string{started, `{"type":"failure","code":"ended","message":"it has ended"}`}, []string{"started"}, client.Ended},
	} {
		c := serve(t, lines(tt.events...))
		var got []string
		err := c.Sandboxes.RunCodeStream(t.Context(), "s", "x", client.CodeOptions{}, func(ev client.CodeEvent) error {
			got = append(got, ev.Type)
			return nil
		})
		if !errors.Is(err, tt.err) || !slices.Equal(got, tt.want) {
			t.Errorf("%s: events %v, %v; want %v, %v", name, got, err, tt.want, tt.err)
		}
	}
	stop := errors.New("enough")
	c := serve(t, lines(started, text))
	if err := c.Sandboxes.RunCodeStream(t.Context(), "s", "x", client.CodeOptions{}, func(client.CodeEvent) error { return stop }); err != stop {
		t.Errorf("Stream = %v, want the function's error", err)
	}
}

func TestContexts(t *testing.T) {
	var calls []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.Method+" "+r.URL.Path)
		switch {
		case r.Method == "GET":
			answer(t, w, wire.Page[wire.Context]{Items: []wire.Context{{ID: "python"}, {ID: "c1"}}})
		case r.Method == "DELETE":
			w.WriteHeader(http.StatusNoContent)
		default:
			answer(t, w, wire.Context{ID: "c1", Restarts: 1})
		}
	})
	contexts := c.Sandboxes.Contexts
	made, err := contexts.Create(t.Context(), "s", client.ContextOptions{Language: "bash"})
	if err != nil || made.ID != "c1" {
		t.Errorf("Create = %+v, %v", made, err)
	}
	if list, err := contexts.List("s").Collect(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("List = %+v, %v", list, err)
	}
	restarted, err := contexts.Restart(t.Context(), "s", "c1")
	if err != nil || restarted.Restarts != 1 {
		t.Errorf("Restart = %+v, %v", restarted, err)
	}
	if err := errors.Join(contexts.Interrupt(t.Context(), "s", "c1"), contexts.Delete(t.Context(), "s", "c1")); err != nil {
		t.Error(err)
	}
	const at = "/v1/sandboxes/s/contexts"
	want := []string{"POST " + at, "GET " + at, "POST " + at + "/c1/restart", "POST " + at + "/c1/interrupt", "DELETE " + at + "/c1"}
	if !slices.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
}

func TestCodesAreErrors(t *testing.T) {
	err := fmt.Errorf("read: %w", &client.Error{Code: client.FileNotFound, Message: "there is no file"})
	if !errors.Is(err, client.FileNotFound) || errors.Is(err, client.NotFound) {
		t.Error("errors.Is must find the code of an error, and no other code")
	}
}
