package image_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

// reentrant returns an action that needs the lock of the index, and fails instead of waiting for
// ever if its caller has the lock.
func reentrant(t *testing.T, s **image.Store) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := (*s).Hold(ctx, "sha256:none")
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return nil
		}
		return errors.Join(errors.New("the lock of the index is taken"), err)
	}
}

// TestFunctionsMayCallTheStore: the store holds no lock while it calls the functions of its options
// and the check of a staged image.
func TestFunctionsMayCallTheStore(t *testing.T) {
	var s *image.Store
	lock, calls := reentrant(t, &s), map[string]int{}
	list := func(name string) func(context.Context) ([]string, error) {
		return func(context.Context) ([]string, error) {
			calls[name]++
			return nil, lock()
		}
	}
	dir := t.TempDir()
	s, err := image.Open(dir, recipeFS(), image.Options{
		Bootstrapper: &fake{tar: small(t, "base")}, MaxDisk: 1 << 40,
		InUse: list("InUse"), Released: list("Released"), Catalogued: list("Catalogued"),
	})
	if err != nil {
		t.Fatal(err)
	}
	base := build(t, s, "test/main")
	check := func(context.Context, int64) error {
		calls["check"]++
		return lock()
	}
	commit := func(key string) image.Committed {
		t.Helper()
		done, err := commitWith(t, s, check, image.CommitRequest{
			Base: base.Digest, Owner: "me", CacheKey: key, Layer: bytes.NewReader(tarball(t, file(key, noise(1<<20), 0o644))),
		})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	layer := commit("a")
	built, err := s.StageBuilt(t.Context(), image.FinishRequest{Base: layer.Digest, Config: v1.Config{}, Owner: "me", Name: "app", Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	defer built.Discard()
	if _, err := built.Publish(t.Context(), check); err != nil {
		t.Errorf("Publish: %v", err)
	}
	if calls["check"] != 2 {
		t.Errorf("check was called %d times, want 2", calls["check"])
	}
	for name, remove := range map[string]func() error{
		"Trim":            func() error { _, _, err := s.Removal().Trim(t.Context(), 1, list("Trim")); return err },
		"TrimBuildCache":  func() error { _, err := s.Removal().TrimBuildCache(t.Context(), "me", 1); return err },
		"EvictBuildCache": func() error { _, err := s.EvictBuildCache(t.Context(), "me", 1); return err },
		"Prune":           func() error { _, err := s.Removal().Prune(t.Context(), list("Prune")); return err },
		"PruneFor":        func() error { _, err := s.Removal().PruneFor(t.Context(), image.PruneRequest{All: true}); return err },
	} {
		if err := remove(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"InUse", "Released", "Catalogued", "Trim", "Prune"} {
		if calls[name] == 0 {
			t.Errorf("%s was not called", name)
		}
	}
}

// TestImagesThatComeIntoUse: an image that comes into use after the list of images in use was made
// stays, whether another caller holds it, held it or resolved it, in this process or another.
func TestImagesThatComeIntoUse(t *testing.T) {
	for name, use := range map[string]func(*testing.T, *image.Store, string){
		"Resolve": func(t *testing.T, s *image.Store, digest string) {
			if _, _, err := s.Resolve(t.Context(), digest); err != nil {
				t.Error(err)
			}
		},
		"Hold": func(t *testing.T, s *image.Store, digest string) {
			release, err := s.Hold(t.Context(), digest)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(release)
		},
		"Released": func(t *testing.T, s *image.Store, digest string) {
			release, err := s.Hold(t.Context(), digest)
			if err != nil {
				t.Fatal(err)
			}
			release()
		},
		"": func(*testing.T, *image.Store, string) {},
	} {
		testComesIntoUse(t, "use_"+name, name != "", false, use)
		testComesIntoUse(t, "use_at_another_server_"+name, name != "", true, use)
	}
}

func testComesIntoUse(t *testing.T, name string, used, shared bool, use func(*testing.T, *image.Store, string)) {
	t.Run(name, func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir, &fake{tar: small(t, "one")})
		user := s
		if shared {
			var err error
			if user, err = image.Open(dir, recipeFS(), image.Options{Shared: true}); err != nil {
				t.Fatal(err)
			}
		}
		img := build(t, s, "test/main")
		if _, _, err := user.Resolve(t.Context(), img.Digest); err != nil {
			t.Fatal(err)
		}
		if err := s.Removal().Remove(t.Context(), img.Ref()); err != nil {
			t.Fatal(err)
		}
		_, err := s.Removal().Prune(t.Context(), func(context.Context) ([]string, error) {
			use(t, user, img.Digest)
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = s.Resolve(t.Context(), img.Digest)
		if want := map[bool]sandbox.Code{true: "", false: sandbox.NotFound}[used]; sandbox.CodeOf(err) != want {
			t.Errorf("Resolve after Prune = %v, want code %q", err, want)
		}
	})
}

// TestCheckIsExact: images that are published at the same time do not exceed the disk together,
// although each of them alone would fit.
func TestCheckIsExact(t *testing.T) {
	_, s, base := storeWithBase(t, new([]string))
	var staged []*image.Staged
	for _, name := range []string{"a", "b", "c", "d"} {
		p, err := s.Stage(t.Context(), image.CommitRequest{Base: base.Digest, Owner: "me", CacheKey: name, Layer: bytes.NewReader(tarball(t, file(name, noise(1<<20), 0o644)))})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Discard()
		staged = append(staged, p)
	}
	const disk = 5 << 20 // for one of them: each has 1 MiB, in a layer and in a root filesystem with the base
	room, all := fullDisk(s, "me", disk), make(chan struct{})
	var asked, wait sync.WaitGroup
	asked.Add(len(staged))
	var published, refused int
	var mu sync.Mutex
	for _, p := range staged {
		var once sync.Once
		wait.Go(func() {
			_, err := p.Publish(t.Context(), func(ctx context.Context, add int64) error {
				err := room(ctx, add)
				once.Do(func() { // all of them have agreed before the first is published
					if err != nil {
						t.Errorf("the first answer: %v", err)
					}
					asked.Done()
					<-all
				})
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			switch sandbox.CodeOf(err) {
			case "":
				published++
			case sandbox.QuotaExceeded:
				refused++
			default:
				t.Error(err)
			}
		})
	}
	asked.Wait()
	close(all)
	wait.Wait()
	if images, left, err := s.Owned("me"); err != nil || images+left > disk || published == 0 || refused == 0 {
		t.Errorf("the workspace has %d bytes, %v, want %d at most; %d were published and %d refused", images+left, err, disk, published, refused)
	}
}

// TestDiscard: an image that is not published leaves nothing.
func TestDiscard(t *testing.T) {
	dir, s, base := storeWithBase(t, new([]string))
	index := readIndex(t, dir)
	p, err := s.Stage(t.Context(), image.CommitRequest{Base: base.Digest, Owner: "me", CacheKey: "a", Layer: bytes.NewReader(newFile(t))})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Cached(t.Context(), "a", 0); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("a staged image is in the store: %v", err)
	}
	no := errors.New("no")
	if _, err := p.Publish(t.Context(), func(context.Context, int64) error { return no }); !errors.Is(err, no) {
		t.Errorf("Publish = %v, want the error of check", err)
	}
	p.Discard()
	if entries, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(entries) != 0 {
		t.Errorf("the staged image left %v, %v", entries, err)
	}
	if after := readIndex(t, dir); !bytes.Equal(after, index) {
		t.Errorf("the index changed to %s", after)
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
