package edge_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modbox/modbox/internal/api/edge"
)

// TestAllowOrigins asks as a browser does, for a page of an origin that may call the API and for others.
func TestAllowOrigins(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	ask := func(h http.Handler, method, origin string, header ...string) *http.Response {
		r := httptest.NewRequest(method, "/v1/sandboxes", nil)
		r.Header.Set("Origin", origin)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	preflight := []string{"Access-Control-Request-Method", "PATCH", "Access-Control-Request-Headers", "authorization,content-type,idempotency-key,x-workspace-id"}
	for _, test := range []struct {
		name    string
		origins []string
		allowed string // the origin that an answer to https://app.test names
	}{
		{"no origins", nil, ""},
		{"the origin", []string{"https://app.test"}, "https://app.test"},
		{"another origin", []string{"https://other.test", "http://app.test", "https://app.test:8443"}, ""},
		{"every origin", []string{"*"}, "*"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := edge.AllowOrigins(test.origins, next)
			res := ask(h, http.MethodGet, "https://app.test")
			if got := res.Header.Get("Access-Control-Allow-Origin"); got != test.allowed || res.StatusCode != http.StatusTeapot {
				t.Errorf("GET = %d with Access-Control-Allow-Origin %q, want %q", res.StatusCode, got, test.allowed)
			}
			if got := res.Header.Get("Access-Control-Allow-Credentials"); got != "" {
				t.Errorf("Access-Control-Allow-Credentials = %q, want none", got)
			}
			res = ask(h, http.MethodOptions, "https://app.test", preflight...)
			if got := res.Header.Get("Access-Control-Allow-Origin"); got != test.allowed {
				t.Errorf("preflight: Access-Control-Allow-Origin = %q, want %q", got, test.allowed)
			}
			if got := res.Header.Get("Access-Control-Allow-Methods"); (got == "PATCH") != (test.allowed != "") {
				t.Errorf("preflight: Access-Control-Allow-Methods = %q", got)
			}
			if want := http.StatusNoContent; len(test.origins) > 0 && res.StatusCode != want {
				t.Errorf("preflight = %d, want %d", res.StatusCode, want)
			}
		})
	}
}
