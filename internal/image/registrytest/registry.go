// Package registrytest is a registry for tests.
package registrytest

import (
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	ociregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Registry is a real registry on loopback, which tests can make misbehave.
type Registry struct {
	Host string

	mu sync.Mutex
	// intercept, when set, may answer a request itself. Guarded by mu.
	intercept func(w http.ResponseWriter, r *http.Request) (answered bool)
	gets      []string // of blobs: the path and, after a space, the range; guarded by mu
}

// New returns a registry that ends with the test.
func New(t testing.TB) *Registry {
	t.Helper()
	reg := &Registry{}
	inner := ociregistry.New(ociregistry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reg.mu.Lock()
		intercept := reg.intercept
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			reg.gets = append(reg.gets, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
		}
		reg.mu.Unlock()
		if intercept == nil || !intercept(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	reg.Host = strings.TrimPrefix(srv.URL, "http://")
	return reg
}

// On sets a handler that may answer requests before the registry does; nil is none.
func (r *Registry) On(intercept func(http.ResponseWriter, *http.Request) (answered bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intercept = intercept
}

// Fetched returns the number of requests for each blob since the last call.
func (r *Registry) Fetched() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := map[string]int{}
	for _, g := range r.gets {
		path, _, _ := strings.Cut(g, " ")
		count[path[strings.LastIndex(path, "/")+1:]]++
	}
	r.gets = nil
	return count
}

// Push puts an image or index into the registry and returns its reference.
func (r *Registry) Push(t testing.TB, as string, what remote.Taggable) string {
	t.Helper()
	ref := r.Host + "/" + as
	parsed, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	switch w := what.(type) {
	case v1.Image:
		err = remote.Write(parsed, w, remote.WithContext(t.Context()))
	case v1.ImageIndex:
		err = remote.WriteIndex(parsed, w, remote.WithContext(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Fetched()
	return ref
}

// BasicAuth is a handler for [Registry.On] that requires a user and password.
func BasicAuth(user, password string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if u, p, ok := r.BasicAuth(); ok && u == user && p == password {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you?"}]}`, http.StatusUnauthorized)
		return true
	}
}

// TokenAuth is a handler for [Registry.On] that requires a token, and gives one at /token to users
// with the password, for one repository each.
func TokenAuth(host, user, password string) func(http.ResponseWriter, *http.Request) bool {
	token := func(scope string) string { return base64.URLEncoding.EncodeToString([]byte("token for " + scope)) }
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			if u, p, _ := r.BasicAuth(); u != user || p != password {
				http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"wrong password"}]}`, http.StatusUnauthorized)
				return true
			}
			fmt.Fprintf(w, `{"token":%q}`, token(r.FormValue("scope")))
			return true
		}
		parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
		if scope := "repository:" + parts[0] + ":pull"; r.URL.Path != "/v2/" && r.Header.Get("Authorization") == "Bearer "+token(scope) {
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, host))
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"no token"}]}`, http.StatusUnauthorized)
		return true
	}
}
