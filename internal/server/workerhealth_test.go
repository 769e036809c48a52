package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestWorkerHealth checks that a worker is ready only while it has a connection.
func TestWorkerHealth(t *testing.T) {
	var h workerHealth
	status := func(path string) int {
		w := httptest.NewRecorder()
		h.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w.Code
	}
	want := func(when string, ready int) {
		t.Helper()
		if got := status("/healthz"); got != http.StatusOK {
			t.Errorf("%s: /healthz answers %d", when, got)
		}
		if got := status("/readyz"); got != ready {
			t.Errorf("%s: /readyz answers %d, want %d", when, got, ready)
		}
	}
	want("before", http.StatusServiceUnavailable)
	ended := h.accepted()
	want("connected", http.StatusOK)
	ended()
	want("after", http.StatusServiceUnavailable)
}
