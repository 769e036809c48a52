package edge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

func serve(t *testing.T, h http.Handler) (*httptest.Server, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s := httptest.NewServer(edge.Wrap(slog.New(slog.NewTextHandler(&log, nil)), h))
	t.Cleanup(s.Close)
	return s, &log
}

// get returns the answer's problem and request id. The server has logged
// everything by then: its answers end after that.
func get(t *testing.T, s *httptest.Server) (apierror.Problem, string) {
	t.Helper()
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var p apierror.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	if p.Status != resp.StatusCode {
		t.Errorf("status %d, in the body %d", resp.StatusCode, p.Status)
	}
	return p, resp.Header.Get(edge.RequestIDHeader)
}

func TestBrokenAnswersAreLogged(t *testing.T) {
	reason := sandbox.Errorf(sandbox.AgentUnreachable, "the agent is away")
	s, log := serve(t, edge.Handler(func(w http.ResponseWriter, r *http.Request) error {
		_, _ = io.WriteString(w, "a part")
		edge.LogBroken(r.Context(), reason)
		left, cancel := context.WithCancel(r.Context())
		cancel()
		edge.LogBroken(left, errors.New("the client left"))
		return nil
	}))
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if id := resp.Header.Get(edge.RequestIDHeader); strings.Count(log.String(), reason.Error()) != 1 || !strings.Contains(log.String(), "request_id="+id) || strings.Contains(log.String(), "left") {
		t.Errorf("log: %s", log)
	}
}

func TestInternalErrorsAreLoggedOnceAndHidden(t *testing.T) {
	s, log := serve(t, edge.Handler(func(http.ResponseWriter, *http.Request) error {
		return fmt.Errorf("open store: %w", errors.New("secret path"))
	}))
	p, id := get(t, s)
	if p.Code != sandbox.Internal || strings.Contains(p.Detail, "secret") || id == "" || p.RequestID != id {
		t.Errorf("answer %+v with id %s", p, id)
	}
	if n := strings.Count(log.String(), "secret path"); n != 1 || !strings.Contains(log.String(), id) {
		t.Errorf("log: %s", log)
	}
}

func TestErrorsOfCallersAreNotLogged(t *testing.T) {
	s, log := serve(t, edge.Handler(func(http.ResponseWriter, *http.Request) error {
		return sandbox.InvalidField("name", "is wrong")
	}))
	if p, _ := get(t, s); p.Code != sandbox.Invalid || len(p.Errors) != 1 || p.Errors[0].Location != "name" {
		t.Errorf("answer %+v", p)
	}
	if log.Len() != 0 {
		t.Errorf("log: %s", log)
	}
}

func TestDeadlinesAreTimeouts(t *testing.T) {
	s, _ := serve(t, edge.Handler(func(http.ResponseWriter, *http.Request) error {
		return fmt.Errorf("wait: %w", context.DeadlineExceeded)
	}))
	if p, _ := get(t, s); p.Code != sandbox.Timeout {
		t.Errorf("answer %+v", p)
	}
}

func TestPanics(t *testing.T) {
	s, log := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret state") }))
	p, id := get(t, s)
	if p.Code != sandbox.Internal || strings.Contains(p.Detail, "secret") {
		t.Errorf("answer %+v", p)
	}
	for _, want := range []string{id, "secret state", "edge_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}
}

func TestPanicInTheMiddleBreaksTheAnswerOff(t *testing.T) {
	s, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half of")
		_ = http.NewResponseController(w).Flush()
		panic("oops")
	}))
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("read %q without an error", b)
	}
}

// TestClientsThatDisconnect counts a request that fails because its client has disconnected as an error of the client, and
// any other failure as ours, also after its client has disconnected.
func TestClientsThatDisconnect(t *testing.T) {
	ended := fmt.Errorf("run: %w", context.Canceled)
	for _, c := range []struct {
		name        string
		disconnects bool
		fail        func() error
		want        string
	}{
		{"disconnects", true, func() error { return ended }, "4xx"},
		{"waits", false, func() error { return ended }, "5xx"},
		{"disconnects from a server without space", true, func() error { return sandbox.Errorf(sandbox.DiskFull, "full") }, "5xx"},
		{"disconnects before a panic", true, func() error { panic("oops") }, "5xx"},
	} {
		m := edge.NewMetrics()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		h := edge.Options{Logger: slog.New(slog.DiscardHandler), Metrics: m}.Wrap(edge.Handler(func(http.ResponseWriter, *http.Request) error {
			if c.disconnects {
				cancel()
			}
			return c.fail()
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		registry := prometheus.NewRegistry()
		registry.MustRegister(m.Collectors()...)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range families {
			for _, series := range f.GetMetric() {
				for _, l := range series.GetLabel() {
					if l.GetName() == "status" {
						got += l.GetValue()
					}
				}
			}
		}
		if got != c.want {
			t.Errorf("a client %s: status %q, not %q", c.name, got, c.want)
		}
	}
}
