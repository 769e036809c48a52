package otlp_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
)

// receive starts a receiver of batches at a path, and returns its address and a function that returns the batches so
// far. It answers with status.
func receive[T proto.Message](t *testing.T, path string, status int, empty func() T) (endpoint string, batches func() []T) {
	t.Helper()
	var mu sync.Mutex
	var got []T
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path || r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("request to %s with %v", r.URL.Path, r.Header)
		}
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		data, err := io.ReadAll(body)
		batch := empty()
		if err == nil {
			err = proto.Unmarshal(data, batch)
		}
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, batch)
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []T {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

var secretHeader = http.Header{"Authorization": {"Bearer secret"}}
