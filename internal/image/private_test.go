package image_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestPrivateImages: what one workspace had by signing in is not another's.
func TestPrivateImages(t *testing.T) {
	reg := registrytest.New(t)
	ref := reg.Push(t, "private:v1", imageOf(t, v1.Config{User: "app"}, gzipped(t, file("secret", "s", 0o644))))
	reg.On(registrytest.BasicAuth("ann", "pw"))
	ours, theirs := registry.Puller{Workspace: "ours"}, registry.Puller{Workspace: "theirs"}
	ann := registry.Login{Proof: "1@a", Username: "ann", Password: "pw"}
	logins := map[sandbox.WorkspaceID]registry.Login{"ours": ann}
	var gone error
	s, err := image.Open(t.TempDir(), recipeFS(), image.Options{Remote: remote.Options{InsecureRegistries: loopback, Login: func(_ context.Context, who registry.Puller, _ string) (registry.Login, error) {
		return logins[who.Workspace], gone
	}}, Bootstrapper: &fake{}, RecheckInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ensure := func(ref string, who registry.Puller) (spec.Image, error) {
		img, _, err := s.Ensure(t.Context(), ref, who, nil)
		return img, err
	}
	img, err := ensure(ref, ours)
	if err != nil {
		t.Fatal(err)
	}
	if !img.VisibleTo("ours") || img.VisibleTo("theirs") {
		t.Errorf("the image is readable by %v", img.Readers)
	}
	same, more := commit(t, s, img.Digest), commit(t, s, commit(t, s, img.Digest, file("a", "a", 0o644)).Digest, file("b", "b", 0o644))
	for _, name := range []string{ref, img.Digest, strings.TrimSuffix(ref, ":v1") + "@" + img.Digest, same.Digest, more.Digest} {
		if !s.Stale(name, theirs) {
			t.Errorf("%s is simply there for others", name)
		}
		_, err := ensure(name, theirs)
		wantCode(t, "Ensure("+name+") for others", err, sandbox.Forbidden)
	}
	if _, err := s.Lookup(t.Context(), "modbox/nosuch"); err == nil || strings.Contains(err.Error(), ref) {
		t.Errorf("everybody is told of it: %v", err)
	}
	for _, name := range []string{ref, strings.TrimSuffix(ref, ":v1") + "@" + img.Digest} {
		if known, err := s.LookupFor(t.Context(), "ours", name); err != nil || known.SizeBytes != img.SizeBytes || known.Config.User != "app" {
			t.Errorf("LookupFor(%s) of who has it = %+v, %v", name, known, err)
		}
		known, err := s.LookupFor(t.Context(), "theirs", name)
		if err != nil || known.SizeBytes != 0 || known.Config.User != "" || known.VisibleTo("theirs") {
			t.Errorf("LookupFor(%s) tells others %+v, %v", name, known, err)
		}
		if pulled, err := s.Lookup(t.Context(), name+"x"); err == nil && (known.Name != pulled.Name || known.ID == "") {
			t.Errorf("LookupFor(%s) tells others %+v, and of what is not here %+v", name, known, pulled)
		}
	}
	_, err = s.LookupFor(t.Context(), "theirs", img.Digest)
	_, none := s.LookupFor(t.Context(), "theirs", "sha256:"+strings.Repeat("0", 64))
	wantCode(t, "LookupFor by digest for others", err, sandbox.NotFound)
	if err != nil && strings.ReplaceAll(err.Error(), img.Digest, "") != strings.ReplaceAll(none.Error(), "sha256:"+strings.Repeat("0", 64), "") {
		t.Errorf("others are told %q of what is here, and %q of what is not", err, none)
	}
	logins["theirs"] = registry.Login{Proof: "2@a", Username: "ann", Password: "wrong"}
	_, err = ensure(ref, theirs)
	wantCode(t, "Ensure with a wrong password", err, sandbox.Forbidden)
	asked := 0
	reg.On(func(w http.ResponseWriter, r *http.Request) bool {
		asked++
		return registrytest.BasicAuth("ann", "pw")(w, r)
	})
	if _, err := ensure(ref, ours); err != nil || asked != 0 {
		t.Errorf("Ensure again = %v, with %d requests", err, asked)
	}
	logins["theirs"] = registry.Login{Proof: "2@b", Username: "ann", Password: "pw"}
	if got, err := ensure(ref, theirs); err != nil || got.Digest != img.Digest || asked == 0 {
		t.Errorf("Ensure with the right password = %+v, %v, with %d requests", got, err, asked)
	}
	gone = sandbox.Errorf(sandbox.Forbidden, "the credential was deleted")
	_, err = ensure(ref, ours)
	wantCode(t, "Ensure after the credential was deleted", err, sandbox.Forbidden)
	if _, err := ensure(img.Digest, registry.Puller{}); err != nil {
		t.Errorf("the server itself: %v", err)
	}
	gone = nil
	logins["ours"] = registry.Login{Proof: "1@b", Username: "ann", Password: "wrong"}
	_, err = ensure(ref, ours)
	wantCode(t, "Ensure after the password was changed", err, sandbox.Forbidden)
	reg.On(nil)
	delete(logins, "theirs")
	if _, err := ensure(ref, registry.Puller{Workspace: "third"}); err != nil {
		t.Errorf("Ensure when the registry lets everybody: %v", err)
	}
	if got, err := ensure(ref, theirs); err != nil || got.Readers != nil {
		t.Errorf("it is not public then: %+v, %v", got, err)
	}
}

// TestPrivateLayersByTheirDigest: who knows the digest of a layer that only others may
// have does not get it by a repository of their own, which names but does not have it.
func TestPrivateLayersByTheirDigest(t *testing.T) {
	closed := registrytest.New(t)
	img := imageOf(t, v1.Config{}, gzipped(t, file("secret", "s3cret", 0o644)))
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	lacking := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/v2/mine/") || !strings.HasSuffix(r.URL.Path, digestOf(t, layers[0]).String()) {
			return false
		}
		http.NotFound(w, r)
		return true
	}
	own := registrytest.New(t)
	refs := map[string]string{
		"another registry":                own.Push(t, "mine/app:v1", img),
		"another repository, same server": closed.Push(t, "mine/app:v1", img),
	}
	ref, auth := closed.Push(t, "team/app:v1", img), registrytest.BasicAuth("ann", "pw")
	own.On(lacking)
	closed.On(func(w http.ResponseWriter, r *http.Request) bool { return auth(w, r) || lacking(w, r) })
	s, err := image.Open(t.TempDir(), recipeFS(), image.Options{
		Remote: remote.Options{InsecureRegistries: loopback, Login: func(_ context.Context, who registry.Puller, host string) (registry.Login, error) {
			if host != closed.Host {
				return registry.Login{}, nil
			}
			return registry.Login{Proof: string(who.Workspace), Username: "ann", Password: "pw"}, nil
		}}, Bootstrapper: &fake{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pull(t.Context(), ref, image.PullOptions{Puller: registry.Puller{Workspace: "a"}}); err != nil {
		t.Fatal(err)
	}
	for name, copied := range refs {
		_, err = s.Pull(t.Context(), copied, image.PullOptions{Puller: registry.Puller{Workspace: "b"}})
		wantCode(t, "a pull of another's layer from "+name, err, sandbox.NotFound)
	}
}

// TestPullBesideAStalledRegistry: who has a registry of their own, which names layers of
// others and does not send them, keeps nobody from pulling these from elsewhere.
func TestPullBesideAStalledRegistry(t *testing.T) {
	good, stalled := registrytest.New(t), registrytest.New(t)
	img := imageOf(t, v1.Config{}, gzipped(t, file("a", "x", 0o644)))
	ref, bad := good.Push(t, "app:v1", img), stalled.Push(t, "mine:v1", img)
	var once sync.Once
	asked := make(chan struct{})
	stalled.On(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		once.Do(func() { close(asked) })
		<-r.Context().Done()
		return true
	})
	s := stallStore(t, t.TempDir(), time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Pull(ctx, bad, image.PullOptions{})
		ended <- err
	}()
	<-asked
	patient, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	if _, err := s.Pull(patient, ref, image.PullOptions{}); err != nil {
		t.Errorf("the same layer from the registry that sends it: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the pull from the registry that sends nothing: %v, want it cancelled", err)
	}
}
