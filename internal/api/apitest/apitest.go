// Package apitest runs a whole server for tests of the HTTP interfaces: real
// store, lifecycle service, authentication and proxy, over the fake driver.
package apitest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/auth/sso"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/mcphttp"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/server/services"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/imagerows"
	"github.com/modbox/modbox/internal/stream"
	"github.com/modbox/modbox/internal/webhook"
)

// Domain is the base domain of sandbox URLs beside the path form.
const Domain = "box.test"

// ConsoleHost is the host of the web console, which a browser finds.
const ConsoleHost = "console.localhost"

// Server is a running server. Its sandboxes run commands on this machine, below
// temporary directories as far as files go.
type Server struct {
	T     testing.TB
	URL   string
	Token string
	HTTP  *http.Client

	// Services are the services of a real server over the fake driver, without images, and with a
	// registry that accepts [RegistryPassword].
	*services.Services
	// Front is the handler of all requests.
	Front *services.Front
	// Service is Services.Lifecycle.
	Service *lifecycle.Service
	// Images are the images that workspaces build; empty at first.
	Images *image.Store
	API    *api.Server
	Store  *store.Store
	Keys   *secret.Keys
	Host   *fake.Host
	Log    *Log
}

// Log keeps what the server logs.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns everything logged so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// New starts a server that ends with the test. Sandboxes have path URLs.
func New(t testing.TB) *Server { return NewWith(t, nil) }

// NewWith is New after change, unless nil, has changed the API's settings, with
// services that people sign in with.
func NewWith(t testing.TB, change func(*api.Config, *api.Deps), providers ...sso.Provider) *Server {
	t.Helper()
	return start(t, options{change: change, providers: providers})
}

// NewLimited is New with a limit of sandboxes for the server, and default quotas for workspaces.
func NewLimited(t testing.TB, sandboxes int, quotas quota.Limits) *Server {
	t.Helper()
	return start(t, options{lives: lifecycle.Config{MaxSandboxes: sandboxes, Quota: quotas}})
}

// options configure a server.
type options struct {
	lives     lifecycle.Config
	change    func(*api.Config, *api.Deps) // of the API's settings; nil for none
	providers []sso.Provider
	driver    driver.Driver // nil for the fake driver on the server's Host
	images    images
	part      part
}

func newServer(t testing.TB, o options) *Server {
	t.Helper()
	s := &Server{T: t, Log: &Log{}}
	logger := slog.New(slog.NewTextHandler(s.Log, nil))
	var err error
	check := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	o.part.dir = cmp.Or(o.part.dir, t.TempDir())
	keys, err := secret.Open(filepath.Join(o.part.dir, "secret.key"), "")
	check()
	s.Keys = keys
	s.Store = o.part.openStore(t, keys)
	s.Host = fake.NewHost(t.TempDir())
	t.Cleanup(func() { s.Host.Close() })
	if o.driver == nil {
		o.driver = fake.New(s.Host)
	}
	front := httptest.NewUnstartedServer(nil)
	s.URL = "http://" + front.Listener.Addr().String()
	urls, err := proxy.NewURLs(s.URL, "")
	check()
	s.openImages(filepath.Join(o.part.dir, "images"))
	streams, err := stream.Open(filepath.Join(o.part.dir, "streams"), s.Store.Owner(), logger)
	check()
	o.lives.CheckpointDir = filepath.Join(o.part.dir, "checkpoints")
	s.Services, err = services.New(t.Context(), services.Config{
		Lifecycle: o.lives, Audit: audit.Config{MaxRefused: 1 << 20},
		Accounts: auth.AccountsConfig{MaxWorkspaces: 3}, Providers: o.providers, DefaultMemory: 512 << 20, URLs: urls, Console: "http://" + ConsoleHost,
		Webhooks: webhook.Config{MaxPerWorkspace: 100, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
	}, services.Ports{
		Store: s.Store, Keys: keys, Driver: o.driver, Images: o.images, Known: o.images, Layers: o.images, Installed: s.Images,
		Registries: registry.New(s.Store.Registries, keys, signIn, registry.FailAfter(0)), Streams: streams, Logger: logger,
	})
	check()
	t.Cleanup(s.Services.Close)
	s.Service = s.Lifecycle
	token, _, err := s.Auth.Bootstrap(t.Context(), s.Store.Workspaces)
	check()
	s.Token = cmp.Or(token, o.part.token)
	err = s.Services.Start(t.Context())
	check()
	config, deps := api.Config{SandboxURL: urls.Sandbox, Version: "test"}, s.Services.API()
	if o.change != nil {
		o.change(&config, &deps)
	}
	s.API, err = api.New(config, deps)
	check()
	s.Front, err = s.Handler(s.API, services.Edge{Proxy: proxy.Config{URLs: urls}, Others: o.part.others, Requests: edge.Options{Logger: logger}, MCP: mcphttp.Config{MaxSessions: 4, PerWorkspace: 3, PerUser: 2, Version: "test"}})
	check()
	front.Config.Handler = s.Front
	front.Start()
	s.HTTP = front.Client()
	t.Cleanup(func() {
		s.Front.EndSessions()
		front.Close()
		s.Front.Close()
		// Sandboxes outlive a server by design; the sandboxes of a test end here.
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		live, err := s.Store.Sandboxes.Owned(s.Store.Owner()).LiveSandboxes(ctx)
		if err != nil {
			t.Error(err)
		}
		for _, sb := range live {
			caller := sandbox.Caller{User: sb.CreatedBy, Workspace: sb.Workspace}
			if _, err := s.Lifecycle.Destroy(ctx, caller, string(sb.ID), sandbox.CauseDestroyed); err != nil {
				t.Errorf("destroy %s: %v", sb.Name, err)
			}
		}
		if err := s.Lifecycle.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// openImages opens a store without images.
func (s *Server) openImages(dir string) {
	err := os.MkdirAll(dir, 0o700)
	if err != nil {
		s.T.Fatal(err)
	}
	s.Images, err = image.Open(dir, fstest.MapFS{}, image.Options{Rows: imagerows.New(s.Store.DB), InUse: s.Store.Snapshots.DigestsInUse, Catalogued: s.Store.Catalogue.CatalogueReferences})
	if err != nil {
		s.T.Fatal(err)
	}
}

// Answer is an answer with its whole body.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Into decodes the body into v.
func (a *Answer) Into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil {
		t.Fatalf("answer %d %q: %v", a.Status, a.Body, err)
	}
}

// Request returns an authenticated request; body is a reader or is encoded as
// JSON, and path may be a whole URL.
func (s *Server) Request(method, path string, body any) *http.Request {
	s.T.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		r = b
	case string:
		r = strings.NewReader(b)
	default:
		enc, err := json.Marshal(b)
		if err != nil {
			s.T.Fatal(err)
		}
		r = bytes.NewReader(enc)
	}
	if !strings.HasPrefix(path, "http") {
		path = s.URL + path
	}
	req, err := http.NewRequestWithContext(s.T.Context(), method, path, r)
	if err != nil {
		s.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	if r != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// Send makes a request and reads its whole answer.
func (s *Server) Send(r *http.Request) *Answer {
	s.T.Helper()
	resp, err := s.HTTP.Do(r)
	if err != nil {
		s.T.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.T.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return &Answer{Status: resp.StatusCode, Header: resp.Header, Body: b}
}

// Do is Send for an authenticated request.
func (s *Server) Do(method, path string, body any) *Answer {
	s.T.Helper()
	return s.Send(s.Request(method, path, body))
}

// Want is Do, and fails the test unless the status is the one given.
func (s *Server) Want(status int, method, path string, body any) *Answer {
	s.T.Helper()
	a := s.Do(method, path, body)
	if a.Status != status {
		s.T.Fatalf("%s %s = %d %s, want %d", method, path, a.Status, a.Body, status)
	}
	return a
}

// ImageID is the id of the one image there is, "modbox/code-exec:latest".
const ImageID = "0193b1f0-0000-7000-8000-000000000001"

// RegistryPassword is the password that registries accept.
const RegistryPassword = "right"

func signIn(_ context.Context, host string, login registry.Login) error {
	if login.Password != RegistryPassword {
		return sandbox.Errorf(sandbox.Forbidden, "%s does not accept it", host)
	}
	return nil
}

// images are the images of a server.
type images struct {
	root string // the path of the root filesystem of all; "": there is no file
}

// PullName is the one repository of a registry, with any tag, and PullRef the image
// that can be pulled anew.
const (
	PullName = "registry.test/app"
	PullRef  = PullName + ":v1"
)

func (i images) Resolve(_ context.Context, ref string) (spec.Image, string, error) {
	img := builtin()
	if name, tag, ok := strings.Cut(ref, ":"); ok && name == PullName {
		return spec.Image{ID: sandbox.ImageID("id-of-" + tag), Name: name, Tag: tag, Digest: "sha256:" + tag}, i.rootfs(), nil
	}
	if ref != img.Ref() && ref != img.Name && ref != img.Digest {
		return spec.Image{}, "", sandbox.Errorf(sandbox.NotFound, "there is no image %q", ref)
	}
	return img, i.rootfs(), nil
}

func (i images) rootfs() string { return cmp.Or(i.root, "/nowhere/root.erofs") }

func (i images) Planned(ctx context.Context, ref string) (spec.Image, error) {
	return i.Lookup(ctx, ref)
}

func (i images) Lookup(ctx context.Context, ref string) (spec.Image, error) {
	img, _, err := i.Resolve(ctx, ref)
	return img, err
}

func (i images) LookupFor(ctx context.Context, _ sandbox.WorkspaceID, ref string) (spec.Image, error) {
	return i.Lookup(ctx, ref)
}

func (i images) Ensure(ctx context.Context, ref string, _ registry.Puller, _ func(phase.Event)) (spec.Image, string, error) {
	return i.Resolve(ctx, ref)
}

func (images) Owned(sandbox.WorkspaceID) (images, left int64, err error) { return 0, 0, nil }

func (images) EvictBuildCache(context.Context, sandbox.WorkspaceID, int64) (bool, error) {
	return false, nil
}

func (images) Built(context.Context, sandbox.WorkspaceID, string) (spec.Image, error) {
	return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "nothing is built here")
}

func (images) Stale(string, registry.Puller) bool { return false }

// Update knows one image of a registry.
func (images) Update(ctx context.Context, ref string, _ registry.Puller, progress func(phase.Event)) (spec.Image, error) {
	if ref != PullRef {
		return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "the registry has no %q", ref)
	}
	progress(phase.Event{Phase: "pulling", Done: 1, Total: 2, Message: "layers"})
	return spec.Image{ID: "pulled", Name: PullName, Tag: "v1", Digest: "sha256:1"}, nil
}

func (images) Runtimes(context.Context) ([]spec.Runtime, error) {
	img := builtin()
	return []spec.Runtime{{
		ID: img.ID, Name: "code-exec:latest", Image: img.Ref(), Description: img.Description, IconURL: "https://icons.test/x",
		Color: "#336699", URL: "https://code.test", Tags: []string{"python"}, Readme: "Read me.", NeedsNetwork: true,
		Requires: sandbox.Resources{MemoryBytes: 256 << 20, CPUMilli: 500}, Digest: img.Digest, SizeBytes: img.SizeBytes, CreatedAt: img.CreatedAt,
	}}, nil
}

func (images) ByID(_ context.Context, id sandbox.ImageID) (spec.Image, error) {
	if id != ImageID {
		return spec.Image{}, sandbox.Errorf(sandbox.NotFound, "there is no image %s", id)
	}
	return builtin(), nil
}

// Hold has nothing to keep: no image is ever removed.
func (images) Hold(context.Context, string) (func(), error) { return func() {}, nil }

// Collect finds nothing to remove.
func (images) Collect(context.Context, func(context.Context) ([]string, error)) (int64, error) {
	return 0, nil
}

// Files knows one file in every root filesystem, Archive packs its name.
func (images) Files(_ context.Context, _ string, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error) {
	f := sandbox.SnapshotFile{Path: "/srv/file", Mode: 0o640, Size: 4, ModTime: time.Unix(1e9, 0)}
	if q.Hash {
		f.SHA256 = strings.Repeat("0", 64)
	}
	return sandbox.SnapshotFilePage{Files: []sandbox.SnapshotFile{f}, More: q.After == ""}, nil
}

func (images) Archive(_ context.Context, _, path string, compress bool) (io.ReadCloser, error) {
	if path == "/none" {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no %q", path)
	}
	return io.NopCloser(strings.NewReader(fmt.Sprint(path, " ", compress))), nil
}

// Commit makes nothing: the fake driver does not look at root filesystems.
func (images) Commit(_ context.Context, base string, layer io.Reader) (prepare.Layered, error) {
	n, err := io.Copy(io.Discard, layer)
	return prepare.Layered{Digest: base, SizeBytes: builtin().SizeBytes + n, LayerBytes: n, FileCount: 1}, err
}

func (i images) Stack(ctx context.Context, _ sandbox.WorkspaceID, base string, layer io.Reader) (prepare.Layered, error) {
	return i.Commit(ctx, base, layer)
}

func (i images) CommitCached(ctx context.Context, _ prepare.CacheEntry, base string, layer io.Reader) (prepare.Layered, error) {
	return i.Commit(ctx, base, layer)
}

func (images) Cached(context.Context, sandbox.WorkspaceID, string, time.Duration) (spec.Image, string, error) {
	return spec.Image{}, "", sandbox.Errorf(sandbox.NotFound, "nothing is cached")
}

func (images) List(context.Context) ([]spec.Image, error) { return []spec.Image{builtin()}, nil }

func builtin() spec.Image {
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return spec.Image{
		ID: ImageID, Name: "modbox/code-exec", Tag: "latest", Digest: "sha256:1234", Description: "Python, Node, Bash, Go",
		Builtin: true, IsDefault: true, SizeBytes: 1 << 20, MemoryBytes: 512 << 20, CreatedAt: made, UpdatedAt: made,
	}
}
