package image_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/integrity"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

const packageList = "debian\tbash\t5.2.37-2\tamd64\nnpm\tnpm\t10.9.9\tall\nnonsense\n"

func small(t *testing.T, content string) []byte {
	t.Helper()
	return tarball(t, file("content", content, 0o644), file("usr/share/modbox/packages.tsv", packageList, 0o644))
}

func TestBuild(t *testing.T) {
	dir := t.TempDir()
	f := &fake{tar: small(t, "one")}
	s := open(t, dir, f)
	var events []phase.Event
	got, err := s.Build(t.Context(), recipeOf(t, s, "test/main"), image.BuildOptions{Progress: func(e phase.Event) { events = append(events, e) }})
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest == "" || got.SizeBytes == 0 || got.CreatedAt.IsZero() || got.UpdatedAt.IsZero() {
		t.Errorf("Build() = %+v, want digest, size and times", got)
	}
	want := spec.Image{
		ID: got.ID, Name: "test/main", Tag: "latest", Digest: got.Digest, Description: "A test image", Builtin: true, IsDefault: true,
		SizeBytes: got.SizeBytes, OwnBytes: got.SizeBytes, MemoryBytes: 256 << 20, ReadinessPort: 8080, TTL: time.Hour, CreatedAt: got.CreatedAt, UpdatedAt: got.UpdatedAt,
		Config: spec.Config{Cmd: []string{"sleep", "1"}, Env: []string{"A=1", "B=2"}, WorkingDir: "/workspace", User: "user"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Build() (-want +got):\n%s", d)
	}
	if n := len(events); n == 0 || events[n-1].Phase != phase.Done {
		t.Errorf("the last event is not done: %+v", events)
	}

	resolved, path, err := s.Resolve(t.Context(), "test/main")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, resolved); d != "" {
		t.Errorf("Resolve() differs from Build() (-built +resolved):\n%s", d)
	}
	if want := filepath.Join(dir, "images", strings.TrimPrefix(got.Digest, "sha256:")+".erofs"); path != want {
		t.Errorf("Resolve() path = %s, want %s", path, want)
	}
	packages, err := s.Packages(t.Context(), "test/main")
	if err != nil {
		t.Fatal(err)
	}
	wantPackages := []recipe.Package{{Source: "debian", Name: "bash", Version: "5.2.37-2", Arch: "amd64"}, {Source: "npm", Name: "npm", Version: "10.9.9", Arch: "all"}}
	if d := cmp.Diff(wantPackages, packages); d != "" {
		t.Errorf("Packages() (-want +got):\n%s", d)
	}
	checkLayout(t, dir, "test/main:latest")
}

// checkLayout validates the OCI layout of a store and the one image in it.
func checkLayout(t *testing.T, dir, ref string) {
	t.Helper()
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	// Fast: the slow checks know layers compressed with gzip only; see checkLayer.
	if err := validate.Index(index, validate.Fast); err != nil {
		t.Errorf("the OCI layout is not valid: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(manifest.Manifests); n != 1 {
		t.Fatalf("the layout has %d images, want 1", n)
	}
	if got := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; got != ref {
		t.Errorf("the layout's image is named %q, want %q", got, ref)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	checkLayer(t, img)
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"A=1", "B=2"}, config.Config.Env); d != "" || config.Config.User != "user" || config.Config.WorkingDir != "/workspace" {
		t.Errorf("config of the OCI image = %+v", config.Config)
	}
}

// checkLayer compares the contents of an image's layer with its digests.
func checkLayer(t *testing.T, img v1.Image) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("Layers() = %d layers, %v, want 1", len(layers), err)
	}
	for what, read := range map[string]func() (io.ReadCloser, v1.Hash, error){
		"digest":  func() (io.ReadCloser, v1.Hash, error) { return both(layers[0].Compressed, layers[0].Digest) },
		"diff id": func() (io.ReadCloser, v1.Hash, error) { return both(layers[0].Uncompressed, layers[0].DiffID) },
	} {
		r, want, err := read()
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := v1.SHA256(r)
		if err := errors.Join(err, r.Close()); err != nil || got != want {
			t.Errorf("the layer's %s is %v, %v, want %v", what, got, err, want)
		}
	}
}

func both(open func() (io.ReadCloser, error), hash func() (v1.Hash, error)) (io.ReadCloser, v1.Hash, error) {
	h, err := hash()
	if err != nil {
		return nil, h, err
	}
	r, err := open()
	return r, h, err
}

func TestBuildIsReproducible(t *testing.T) {
	f := &fake{tar: small(t, "one")}
	var digests, manifests []string
	for range 2 {
		dir := t.TempDir()
		digests = append(digests, build(t, open(t, dir, f), "test/main").Digest)
		data, err := os.ReadFile(filepath.Join(dir, "layout", "index.json"))
		if err != nil {
			t.Fatal(err)
		}
		manifests = append(manifests, string(data))
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds of the same have digests %v", digests)
	}
	if d := cmp.Diff(manifests[0], manifests[1]); d != "" {
		t.Errorf("two builds of the same have other OCI images:\n%s", d)
	}
}

func TestBuildIsCached(t *testing.T) {
	dir := t.TempDir()
	f := &fake{tar: small(t, "one")}
	first := build(t, open(t, dir, f), "test/main")
	again := build(t, open(t, dir, f), "test/main") // as after a restart
	if d := cmp.Diff(first, again); d != "" {
		t.Errorf("the second build differs (-first +second):\n%s", d)
	}
	if n := f.calls.Load(); n != 1 {
		t.Errorf("the root filesystem was made %d times, want once", n)
	}

	changed := recipeFS()
	changed["main/setup.sh"].Data = []byte("false\n")
	s, err := image.Open(dir, changed, image.Options{Bootstrapper: f})
	if err != nil {
		t.Fatal(err)
	}
	build(t, s, "test/main")
	if n := f.calls.Load(); n != 2 {
		t.Errorf("after a change of the recipe the root filesystem was made %d times, want twice", n)
	}
}

// TestConcurrentBuildsShare starts builds in one process's store and in another's.
func TestConcurrentBuildsShare(t *testing.T) {
	dir := t.TempDir()
	const builds = 6
	started, release := make(chan struct{}), make(chan struct{})
	f := &fake{tar: small(t, "one")}
	f.before = func(context.Context, recipe.Job) error {
		close(started) // twice would panic
		<-release
		return nil
	}
	stores := []*image.Store{open(t, dir, f), open(t, dir, f)}
	r := recipeOf(t, stores[0], "test/main")
	var waiting sync.WaitGroup
	waiting.Add(builds - 1)
	var done sync.WaitGroup
	digests := make([]string, builds)
	start := func(i int, progress func(phase.Event)) {
		done.Go(func() {
			img, err := stores[i%2].Build(t.Context(), r, image.BuildOptions{Force: i%3 == 0, Progress: progress})
			if err != nil {
				t.Errorf("build %d: %v", i, err)
			}
			digests[i] = img.Digest
		})
	}
	start(0, nil)
	<-started
	for i := 1; i < builds; i++ {
		start(i, func(e phase.Event) {
			if e.Phase == phase.Waiting {
				waiting.Done()
			}
		})
	}
	waiting.Wait()
	close(release)
	done.Wait()
	for i, d := range digests {
		if d == "" || d != digests[0] {
			t.Errorf("build %d has digest %q, build 0 has %q", i, d, digests[0])
		}
	}
	if n := f.calls.Load(); n != 1 {
		t.Errorf("the root filesystem was made %d times, want once", n)
	}
}

func TestWaitingBuildEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	started, release := make(chan struct{}), make(chan struct{})
	f := &fake{tar: small(t, "one"), before: func(context.Context, recipe.Job) error {
		close(started)
		<-release
		return nil
	}}
	s := open(t, dir, f)
	r := recipeOf(t, s, "test/main")
	var first error
	var done sync.WaitGroup
	done.Go(func() { _, first = s.Build(t.Context(), r, image.BuildOptions{}) })
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Build(ctx, r, image.BuildOptions{Progress: func(e phase.Event) {
		if e.Phase == phase.Waiting {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the waiting build ended with %v, want %v", err, context.Canceled)
	}
	close(release)
	done.Wait()
	if first != nil {
		t.Errorf("the running build failed: %v", first)
	}
}

func TestFailedBuildLeavesTheStoreAsItWas(t *testing.T) {
	broken := errors.New("no network")
	for name, f := range map[string]*fake{
		"at_once":    {before: func(context.Context, recipe.Job) error { return broken }},
		"in_the_tar": {tar: small(t, "one")[:700], after: broken},
		"after_all":  {tar: small(t, "one"), after: broken},
		"with_litter": {before: func(_ context.Context, job recipe.Job) error {
			return errors.Join(os.WriteFile(filepath.Join(job.Dir, "x"), nil, 0o600), broken)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, &fake{tar: small(t, "zero")})
			want := build(t, s, "test/main")
			before := tree(t, dir)
			s = open(t, dir, f)
			_, err := s.Build(t.Context(), recipeOf(t, s, "test/main"), image.BuildOptions{Force: true})
			if !errors.Is(err, broken) {
				t.Errorf("Build() error = %v, want %v", err, broken)
			}
			if d := cmp.Diff(before, tree(t, dir)); d != "" {
				t.Errorf("the store changed (-before +after):\n%s", d)
			}
			if got, _, err := s.Resolve(t.Context(), "test/main"); err != nil || got.Digest != want.Digest {
				t.Errorf("Resolve() = %s, %v, want the earlier build", got.Digest, err)
			}
		})
	}
}

func TestCancelledBuild(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{before: func(ctx context.Context, _ recipe.Job) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}}
	dir := t.TempDir()
	s := open(t, dir, f)
	before := tree(t, dir)
	if _, err := s.Build(ctx, recipeOf(t, s, "test/main"), image.BuildOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Build() error = %v, want %v", err, context.Canceled)
	}
	if d := cmp.Diff(before, tree(t, dir)); d != "" {
		t.Errorf("the store changed (-before +after):\n%s", d)
	}
}

// TestOpenRemovesLeftovers plants what a killed build leaves, and what a living
// one holds, which must stay.
func TestOpenRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, &fake{})
	dead, alive := filepath.Join(dir, "tmp", "build-dead"), filepath.Join(dir, "tmp", "build-alive")
	for _, d := range []string{dead, alive} {
		if err := os.MkdirAll(filepath.Join(d, "bootstrap", "usr"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	held, err := os.Open(alive)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	open(t, dir, &fake{})
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the remains of the dead build are there: %v", err)
	}
	if _, err := os.Stat(alive); err != nil {
		t.Errorf("the living build lost its files: %v", err)
	}
}

func TestDamagedImages(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"cut":     func(p string) error { return os.Truncate(p, 4096) },
		"one_bit": func(p string) error {
			f, err := os.OpenFile(p, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte{0xff}, 5000)
			return errors.Join(err, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := &fake{tar: small(t, strings.Repeat("x", 10_000))}
			s := open(t, dir, f)
			want := build(t, s, "test/main")
			_, path, err := s.Resolve(t.Context(), "test/main")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := damage(path); err != nil {
				t.Fatal(err)
			}

			s = open(t, dir, f)
			wantCode(t, "Verify", s.Verifier().All(t.Context()), sandbox.Unavailable)
			_, _, err = s.Resolve(t.Context(), "test/main")
			wantCode(t, "Resolve", err, sandbox.Unavailable)
			if !strings.Contains(err.Error(), "modbox images build test/main") {
				t.Errorf("the error does not say what to do: %v", err)
			}
			if got := build(t, s, "test/main"); got.Digest != want.Digest {
				t.Errorf("the repaired image has digest %s, want %s", got.Digest, want.Digest)
			}
			if err := s.Verifier().All(t.Context()); err != nil {
				t.Errorf("Verify() after the repair: %v", err)
			}
		})
	}
}

// TestRestartReadsNoVerifiedImage records a damaged file as verified: a store that is opened then
// trusts the record, and so has not read the file.
func TestRestartReadsNoVerifiedImage(t *testing.T) {
	dir := t.TempDir()
	f := &fake{tar: small(t, strings.Repeat("x", 10_000))}
	s := open(t, dir, f)
	want := build(t, s, "test/main")
	_, path, err := s.Resolve(t.Context(), "test/main")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.Truncate(path, 4096)); err != nil {
		t.Fatal(err)
	}
	records, err := integrity.Open(filepath.Join(dir, "verified"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	records.Written(want.Digest, path)
	s = open(t, dir, f)
	if _, _, err := s.Resolve(t.Context(), "test/main"); err != nil {
		t.Errorf("Resolve() = %v, want the record trusted", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "verified")); err != nil {
		t.Fatal(err)
	}
	_, _, err = open(t, dir, f).Resolve(t.Context(), "test/main")
	wantCode(t, "Resolve without records", err, sandbox.Unavailable)
}

// TestBuildNoticesDamage: also before anything else had a look, and a flipped bit
// that left the file's time alone as soon as the image is used.
func TestBuildNoticesDamage(t *testing.T) {
	dir := t.TempDir()
	f := &fake{tar: small(t, strings.Repeat("x", 10_000))}
	s := open(t, dir, f)
	build(t, s, "test/main")
	_, path, err := s.Resolve(t.Context(), "test/main")
	if err != nil {
		t.Fatal(err)
	}
	flip := func(keepTime bool) {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[5000] ^= 1
		err = errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, data, 0o600))
		if keepTime {
			err = errors.Join(err, os.Chtimes(path, info.ModTime(), info.ModTime()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	flip(false)
	build(t, s, "test/main")
	if n := f.calls.Load(); n != 2 {
		t.Errorf("after the damage the root filesystem was made %d times in all, want twice", n)
	}
	flip(true)
	s = open(t, dir, f)
	_, _, err = s.Resolve(t.Context(), "test/main")
	wantCode(t, "Resolve", err, sandbox.Unavailable)
	build(t, s, "test/main")
	if n := f.calls.Load(); n != 3 {
		t.Errorf("after the second damage the root filesystem was made %d times in all, want 3", n)
	}
	if err := s.Verifier().All(t.Context()); err != nil {
		t.Errorf("Verify() after the repairs: %v", err)
	}
}
