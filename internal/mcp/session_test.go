package mcp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/client"
)

// TestSessionEndsWhileItsImageIsBuilt ends a session whose sandbox is being made, at the create itself
// and during the wait for the image: the end does not wait for it, and deletes the sandbox.
func TestSessionEndsWhileItsImageIsBuilt(t *testing.T) {
	for _, at := range []string{"POST /v1/sandboxes", "GET /v1/sandboxes/s1/wait"} {
		t.Run(at, func(t *testing.T) {
			var mu sync.Mutex
			var deleted []string
			var name string
			reached := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				key := r.Method + " " + r.URL.Path
				var in struct{ Name string }
				_ = json.NewDecoder(r.Body).Decode(&in) // only a create has a body
				mu.Lock()
				if in.Name != "" {
					name = in.Name
				}
				made := client.Sandbox{ID: "s1", Name: name, State: client.Provisioning}
				if r.Method == http.MethodDelete {
					deleted = append(deleted, strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/"))
				}
				mu.Unlock()
				if key == at {
					close(reached)
					<-r.Context().Done() // as long as the client waits
					return
				}
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.Method == http.MethodPost:
					w.WriteHeader(http.StatusCreated)
					_ = json.NewEncoder(w).Encode(made)
				case r.Method == http.MethodDelete:
					_ = json.NewEncoder(w).Encode(made)
				case strings.HasSuffix(r.URL.Path, "/events"):
					_, _ = w.Write([]byte(`{"items":[{"seq":1,"type":"image_building","message":"installing"}]}`))
				default: // the images
					_, _ = w.Write([]byte(`{"items":[]}`))
				}
			}))
			defer server.Close()
			c, err := client.New(server.URL, "mbx_test", client.WithAttempts(1))
			if err != nil {
				t.Fatal(err)
			}
			s := New(c, Options{})
			called := make(chan error, 1)
			go func() {
				ctx, end, err := s.begin(t.Context())
				if err == nil {
					defer end()
					_, err = s.find(ctx, "", 0)
				}
				called <- err
			}()
			<-reached
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("Close() = %v", err)
			}
			if err := <-called; err == nil {
				t.Error("the call has succeeded after the end of its session")
			}
			mu.Lock()
			defer mu.Unlock()
			if len(deleted) == 0 || !strings.HasPrefix(name, "mcp-") || deleted[len(deleted)-1] != name {
				t.Errorf("deleted %v, want the sandbox %q that was being made", deleted, name)
			}
		})
	}
}
