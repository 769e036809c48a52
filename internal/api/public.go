package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/executions"
	"github.com/modbox/modbox/internal/auth"
)

// readyTime bounds all checks of one GET /readyz together.
const readyTime = 5 * time.Second

// registerPublic adds the routes that need no token. They show nothing of any sandbox, except
// streams to clients with their ids.
func (s *Server) registerPublic() {
	open := func(pattern string, h http.Handler) {
		s.mux.Handle(pattern, auth.Rule{Needs: auth.Public, Action: publicActions[pattern], Fail: edge.Error}, h)
	}
	open("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, struct {
			Status      string `json:"status"`
			Role        string `json:"role,omitempty"`
			ShardRanges string `json:"shard_ranges,omitempty"`
		}{"ok", s.deps.Role, s.deps.ShardRanges})
	}))
	open("GET /readyz", http.HandlerFunc(s.ready))
	streams := &executions.Streams{Service: s.deps.Service.Executions()}
	open("GET /v1/streams/{stream}", edge.Handler(streams.Read))
	open("PUT /v1/streams/{stream}", edge.Handler(streams.Write))
	open("GET /auth/sso/{provider}", edge.Handler(s.deps.SSO.Begin))
	open("GET /auth/sso/{provider}/callback", edge.Handler(s.deps.SSO.Callback))
	if s.deps.Metrics != nil {
		s.registerMetrics()
	}
	open("GET /openapi.json", encoded("application/openapi+json", func() ([]byte, error) { return json.Marshal(s.openapi) }))
	open("GET /openapi.yaml", encoded("application/openapi+yaml", s.openapi.YAML))
}

// encoded serves what encode returns, which it calls with the first request: encoding
// the whole description of the API takes longer than all else at the server's start.
func encoded(contentType string, encode func() ([]byte, error)) edge.Handler {
	once := sync.OnceValues(encode)
	return func(w http.ResponseWriter, _ *http.Request) error {
		b, err := once()
		if err != nil {
			return fmt.Errorf("encode OpenAPI document: %w", err)
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(b) // an error is the client's
		return nil
	}
}

// ready reports whether the server can do its work. The reason is only in the log: anybody may ask
// here.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTime)
	defer cancel()
	answer := struct {
		Ready       bool              `json:"ready"`
		Role        string            `json:"role,omitempty"`
		ShardRanges string            `json:"shard_ranges,omitempty"`
		Checks      map[string]string `json:"checks"`
	}{true, s.deps.Role, s.deps.ShardRanges, map[string]string{}}
	var mu sync.Mutex // guards answer
	var wg sync.WaitGroup
	for name, check := range s.deps.Ready {
		wg.Go(func() {
			err := check(ctx)
			mu.Lock()
			defer mu.Unlock()
			answer.Checks[name] = "ok"
			if err != nil {
				answer.Checks[name], answer.Ready = "failing", false
				s.deps.Logger.WarnContext(ctx, "not ready", "check", name, "error", err)
			}
		})
	}
	wg.Wait()
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, answer)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone when this fails
}
