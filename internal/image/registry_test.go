package image_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	ociregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modbox/modbox/internal/image"
)

// loopback is where the registries of tests are, which no others may be.
var loopback = []string{"127.0.0.1"}

// testRegistry is a real registry on loopback that can be made to misbehave.
type testRegistry struct {
	host string

	mu sync.Mutex
	// intercept, when set, may answer a request itself. Guarded by mu.
	intercept func(w http.ResponseWriter, r *http.Request) (answered bool)
	gets      []string // of blobs: their path and, after a space, the range; guarded by mu
}

func newRegistry(t *testing.T) *testRegistry {
	t.Helper()
	reg := &testRegistry{}
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
	reg.host = strings.TrimPrefix(srv.URL, "http://")
	return reg
}

// on sets what answers before the registry does.
func (r *testRegistry) on(intercept func(http.ResponseWriter, *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intercept = intercept
}

// fetched returns how often each blob was asked for since the last call.
func (r *testRegistry) fetched() map[string]int {
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

// push puts an image or index into the registry and returns its reference.
func (r *testRegistry) push(t *testing.T, name string, what remote.Taggable) string {
	t.Helper()
	ref := r.host + "/" + name
	parsed := parse(t, ref)
	var err error
	switch w := what.(type) {
	case v1.Image:
		err = remote.Write(parsed, w, remote.WithContext(t.Context()))
	case v1.ImageIndex:
		err = remote.WriteIndex(parsed, w, remote.WithContext(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.fetched()
	return ref
}

func parse(t *testing.T, ref string) name.Reference {
	t.Helper()
	parsed, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// gzipped makes a layer of entries as Docker does.
func gzipped(t *testing.T, entries ...entry) v1.Layer {
	t.Helper()
	return layerOf(t, tarball(t, entries...))
}

func layerOf(t *testing.T, tar []byte) v1.Layer {
	t.Helper()
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	if _, err := zw.Write(tar); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	diffID, _, err := v1.SHA256(bytes.NewReader(tar))
	if err != nil {
		t.Fatal(err)
	}
	return compressedLayer{static.NewLayer(buf.Bytes(), types.DockerLayer), diffID}
}

// compressedLayer is a blob with the digest of what it holds.
type compressedLayer struct {
	v1.Layer
	diffID v1.Hash
}

func (l compressedLayer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// imageOf makes an image of layers.
func imageOf(t *testing.T, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.Config(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

func digestOf(t *testing.T, l interface{ Digest() (v1.Hash, error) }) v1.Hash {
	t.Helper()
	h, err := l.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// pullStore opens a store that may pull from the tests' registries.
func pullStore(t *testing.T, dir string) *image.Store {
	t.Helper()
	return stallStore(t, dir, time.Minute)
}

// stallStore is pullStore with how long registries may send nothing.
func stallStore(t *testing.T, dir string, stall time.Duration) *image.Store {
	t.Helper()
	s, err := image.Open(dir, recipeFS(), image.Options{InsecureRegistries: loopback, Bootstrapper: &fake{}, StallTimeout: stall})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// basicAuth asks for a user and password before anything else.
func basicAuth(user, password string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if u, p, ok := r.BasicAuth(); ok && u == user && p == password {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you?"}]}`, http.StatusUnauthorized)
		return true
	}
}

// tokenAuth gives tokens at /token to who has the password, for one repository each.
func tokenAuth(host, user, password string) func(http.ResponseWriter, *http.Request) bool {
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
