package e2e_test

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	ocitarball "github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// imageRegistry serves images made for a test; before, when set, may answer first.
type imageRegistry struct {
	host string

	mu     sync.Mutex
	before func(http.ResponseWriter, *http.Request) bool // guarded by mu
}

func startRegistry(t *testing.T) *imageRegistry {
	t.Helper()
	reg := &imageRegistry{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reg.mu.Lock()
		before := reg.before
		reg.mu.Unlock()
		if before == nil || !before(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	reg.host = strings.TrimPrefix(srv.URL, "http://")
	return reg
}

func (r *imageRegistry) on(before func(http.ResponseWriter, *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = before
}

// push puts a small system into the registry: busybox under several names, and a file with the
// version.
func (r *imageRegistry) push(t *testing.T, ref, version string) string {
	t.Helper()
	return r.pushConfig(t, ref, version, v1.Config{User: "app", WorkingDir: "/srv", Env: []string{"GREETING=hello", "PATH=/bin"}})
}

// pushConfig is push for an image that is run in another way.
func (r *imageRegistry) pushConfig(t *testing.T, ref, version string, config v1.Config) string {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("the Debian package busybox-static is not installed: %v", err)
	}
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	add := func(h tar.Header, data string) {
		h.Size = int64(len(data))
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, data); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, string(program))
	for _, n := range []string{"sh", "cat", "id", "pwd", "echo", "env", "sleep"} {
		add(tar.Header{Typeflag: tar.TypeLink, Name: "bin/" + n, Linkname: "bin/busybox"}, "")
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, "root:x:0:0::/:/bin/sh\napp:x:7:7::/srv:/bin/sh\n")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "srv/version", Mode: 0o644}, version)
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := ocitarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err == nil {
		img, err = mutate.Config(img, config)
	}
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := name.ParseReference(r.host + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(parsed, img); err != nil {
		t.Fatal(err)
	}
	return parsed.Name()
}

const tellAll = "id -un; pwd; echo $GREETING; cat version"

func TestImagesFromARegistry(t *testing.T) {
	reg := startRegistry(t)
	s := testserver.Start(t, "--images-default-registry", reg.host, "--images-recheck-interval", "1ns")
	full := reg.push(t, "team/app:v1", "one")
	if out, errOut, code := run(t, s, "", "run", "team/app:v1", "--", "sh", "-c", tellAll); out != "app\n/srv\nhello\none" || code != 0 {
		t.Errorf("run of a pulled image = %q, %q, %d", out, errOut, code)
	}
	if out, _, code := run(t, s, "", "images"); code != 0 || !strings.Contains(out, full) {
		t.Errorf("images = %q, which lacks %s", out, full)
	}
	old := s.MustCreate(client.CreateOptions{Image: full})
	reg.push(t, "team/app:v1", "two")
	if out, errOut, code := run(t, s, "", "run", full, "--", "cat", "/srv/version"); out != "two" || code != 0 {
		t.Errorf("run after the tag moved = %q, %q, %d, want what it means now", out, errOut, code)
	}
	if got := version(t, s, old.ID); got != "one" {
		t.Errorf("a running sandbox has %q after the tag moved", got)
	}
	if _, errOut, code := run(t, s, "", "run", "team/none:v1", "true"); code != 125 || !strings.Contains(errOut, "team/none") {
		t.Errorf("run of an image that the registry lacks = %q, %d", errOut, code)
	}
	if _, errOut, code := run(t, s, "", "images", "pull", "team/none"); code == 0 || !strings.Contains(errOut, "team/none") {
		t.Errorf("pull of an image that the registry lacks = %q, %d", errOut, code)
	}
	if out, errOut, code := run(t, s, "", "images", "pull", "team/app:v1", "--json"); code != 0 || !strings.Contains(out, `"digest"`) {
		t.Errorf("pull = %q, %q, %d", out, errOut, code)
	}
}

// version reads the version of the image that a sandbox was made from.
func version(t *testing.T, s *testserver.Server, ref string) string {
	t.Helper()
	res, err := s.Client.Sandboxes.Exec(t.Context(), ref, client.Command{Argv: []string{"cat", "/srv/version"}})
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Stdout)
}

func TestImagesFromAFile(t *testing.T) {
	reg := startRegistry(t)
	s := testserver.Start(t)
	ref := reg.push(t, "team/app:v1", "one")
	file := filepath.Join(t.TempDir(), "app.tar")
	for _, args := range [][]string{
		{"images", "pull", ref}, {"images", "export", ref, file, "--state-dir", s.StateDir}, {"images", "rm", ref, "--state-dir", s.StateDir},
		{"images", "prune", "--state-dir", s.StateDir}, {"images", "import", file, "--name", "mine:v2", "--state-dir", s.StateDir},
	} {
		if _, errOut, code := run(t, s, "", args...); code != 0 {
			t.Fatalf("modbox %v = %d %q", args, code, errOut)
		}
	}
	if out, errOut, code := run(t, s, "", "run", "mine:v2", "--", "sh", "-c", tellAll); out != "app\n/srv\nhello\none" || code != 0 {
		t.Errorf("run of an imported image = %q, %q, %d", out, errOut, code)
	}
}

// TestKilledWhilePulling: the next server begins the start again, pulls what is missing, and nothing of the first pull remains.
func TestKilledWhilePulling(t *testing.T) {
	reg := startRegistry(t)
	ref := reg.push(t, "team/app:v1", "one")
	s := testserver.Start(t)
	entered := make(chan struct{}, 10)
	reg.on(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		entered <- struct{}{}
		<-r.Context().Done()
		return true
	})
	sb, err := s.Client.Sandboxes.Create(t.Context(), client.CreateOptions{Image: ref})
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	s.Kill()
	reg.on(nil)
	s.Launch()
	if got, err := s.Client.Sandboxes.Wait(t.Context(), sb.ID, client.Running); err != nil || got.State != client.Running {
		t.Fatalf("the sandbox is %+v, %v, want it running", got, err)
	}
	if v := version(t, s, sb.ID); v != "one" {
		t.Errorf("the image pulled by the next server has version %q", v)
	}
	if left, err := os.ReadDir(filepath.Join(s.StateDir, "images", "tmp")); err != nil || len(left) != 0 {
		t.Errorf("left in tmp/ is %v, %v", left, err)
	}
	again := s.MustCreate(client.CreateOptions{Image: ref})
	if v := version(t, s, again.ID); v != "one" {
		t.Errorf("the image of a later sandbox has version %q", v)
	}
}

// TestImageByDigest: a digest means the same image after the tag it was pulled by moved.
func TestImageByDigest(t *testing.T) {
	reg := startRegistry(t)
	s := testserver.Start(t, "--images-recheck-interval", "1ns")
	ref := reg.push(t, "team/app:v1", "one")
	parsed, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	desc, err := remote.Head(parsed)
	if err != nil {
		t.Fatal(err)
	}
	pinned := parsed.Context().Name() + "@" + desc.Digest.String()
	s.MustCreate(client.CreateOptions{Image: ref})
	for _, when := range []string{"one", "two"} {
		sb := s.MustCreate(client.CreateOptions{Image: pinned})
		if got := version(t, s, sb.ID); got != "one" {
			t.Errorf("%s has %q when the tag means %q", pinned, got, when)
		}
		reg.push(t, "team/app:v1", "two")
		if sb := s.MustCreate(client.CreateOptions{Image: ref}); version(t, s, sb.ID) != "two" {
			t.Errorf("the tag does not mean what it does now")
		}
	}
}
