package api_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/api/edge"
)

// TestAccessLog: each request has one line that says who did what, and has no secret in it.
func TestAccessLog(t *testing.T) {
	s := apitest.New(t)
	for name, c := range map[string]struct {
		method, path, token, body string
		want                      map[string]any
	}{
		"create":   {"POST", "/v1/sandboxes?secret=s3cret", s.Token, `{"image":"nowhere:s3cret"}`, map[string]any{"route": "POST /v1/sandboxes", "method": "POST", "client": "192.0.2.1"}},
		"401":      {"GET", "/v1/sandboxes/s3cret", "mbx_s3cret", "", map[string]any{"route": "GET /v1/sandboxes/{sandbox}", "status": 401.0, "user": nil}},
		"404":      {"GET", "/v1/sandboxes/none", s.Token, "", map[string]any{"route": "GET /v1/sandboxes/{sandbox}", "status": 404.0}},
		"no_route": {"GET", "/s3cret", s.Token, "", map[string]any{"route": nil, "status": 404.0}},
		"injected": {"X-LONGMETHODNAME-AND-MORE", "/v1/sandboxes/x%0alevel=ERROR", s.Token, "", map[string]any{"method": "X-LONGMETHODNAME", "level": "INFO"}},
		"stream":   {"GET", "/v1/streams/s3cret", "", "", map[string]any{"route": "GET /v1/streams/{stream}", "status": 404.0}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			served := edge.Options{Logger: slog.New(slog.DiscardHandler), Access: slog.New(slog.NewJSONHandler(&out, nil))}.Wrap(s.API)
			r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("User-Agent", "s3cret\n")
			if c.token != "" {
				r.Header.Set("Authorization", "Bearer "+c.token)
			}
			rec := httptest.NewRecorder()
			served.ServeHTTP(rec, r)
			var line map[string]any
			if err := json.Unmarshal(out.Bytes(), &line); err != nil || strings.Count(out.String(), "\n") != 1 {
				t.Fatalf("log %q: %v; want one line", out.String(), err)
			}
			if strings.Contains(strings.TrimPrefix(out.String(), c.method), "s3cret") && name != "injected" || strings.Contains(out.String(), s.Token) {
				t.Errorf("a secret is in the log: %s", out.String())
			}
			want := map[string]any{"msg": "request", "request_id": rec.Header().Get("X-Request-Id"), "status": float64(rec.Code), "bytes": float64(rec.Body.Len())}
			for k, v := range c.want {
				want[k] = v
			}
			for k, v := range want {
				if line[k] != v {
					t.Errorf("%s = %v, want %v", k, line[k], v)
				}
			}
			for _, k := range []string{"user", "workspace", "token"} {
				if known := c.token == s.Token && name != "no_route"; (line[k] != nil) != known {
					t.Errorf("%s = %v", k, line[k])
				}
			}
			if _, ok := line["duration"]; !ok {
				t.Error("the line has no duration")
			}
		})
	}
}
