package image_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

func pull(t *testing.T, s *image.Store, ref string) (spec.Image, fs.FS) {
	t.Helper()
	img, err := s.Pull(t.Context(), ref, image.PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found, path, err := s.Resolve(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if found.Digest != img.Digest || img.Digest == "" {
		t.Errorf("Resolve(%s) = %s, Pull made %s", ref, found.Digest, img.Digest)
	}
	return found, readEROFS(t, path)
}

func TestPull(t *testing.T) {
	reg, s := registrytest.New(t), pullStore(t, t.TempDir())
	su := file("bin/su", "#!su", 0o4755)
	su.Uid, su.Gid = 12, 34
	su.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02"}
	big := strings.Repeat("0123456789abcdef", 200_000)
	zeros := string(make([]byte, 30<<20))
	lower := gzipped(t, dir("bin", 0o755), su, link(tarLink, "bin/sudo", "bin/su"), file("etc/a", "a", 0o644), file("etc/b", "b", 0o644),
		dir("opt", 0o700), file("opt/gone", "x", 0o644), file("big", big, 0o644), file("zeros", zeros, 0o600))
	upperTar := tarball(t, file("etc/.wh.a", "", 0), dir("opt", 0o755), file("opt/.wh..wh..opq", "", 0), file("opt/new", "n", 0o644))
	middleTar := tarball(t, file("etc/c", "c", 0o644), file("etc/c", "the last counts", 0o644))
	img := imageOf(t, v1.Config{
		Entrypoint: []string{"/entry"}, Cmd: []string{"serve"}, Env: []string{"A=1", "broken", "B="}, WorkingDir: "srv", User: "app:app",
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "53/udp": {}, "80": {}, "x": {}},
	}, lower, plainLayer(t, middleTar), zstdLayer(t, upperTar))
	ref := reg.Push(t, "team/app:v1", img)

	got, files := pull(t, s, ref)
	wantConfig := spec.Config{
		Entrypoint: []string{"/entry"}, Cmd: []string{"serve"}, Env: []string{"A=1", "B="}, WorkingDir: "/srv", User: "app:app", ExposedPorts: []uint16{80, 8080},
	}
	if d := cmp.Diff(wantConfig, got.Config); d != "" {
		t.Errorf("configuration (-want +got):\n%s", d)
	}
	if got.Ref() != ref || got.Builtin {
		t.Errorf("the image is %+v, want %s", got, ref)
	}
	want := map[string]string{
		"bin": "/", "bin/su": "#!su", "bin/sudo": "#!su", "etc": "/", "etc/b": "b", "etc/c": "the last counts",
		"opt": "/", "opt/new": "n", "big": big, "zeros": zeros,
	}
	if d := cmp.Diff(want, contents(t, files)); d != "" {
		t.Errorf("files (-want +got):\n%.2000s", d)
	}
	if st := stat(t, files, "bin/su"); st.Mode != fs.ModeSetuid|0o755 || st.UID != 12 || st.GID != 34 || st.Ino != stat(t, files, "bin/sudo").Ino {
		t.Errorf("bin/su = %+v, want setuid, 12:34 and the inode of bin/sudo", st)
	}
	if got := stat(t, files, "opt").Mode; got != fs.ModeDir|0o755 {
		t.Errorf("opt = %v, want what the last layer says", got)
	}
	if images, err := s.List(t.Context()); err != nil || !slices.ContainsFunc(images, func(i spec.Image) bool { return i.Ref() == ref }) {
		t.Errorf("List = %v, %v, which lacks %s", images, err, ref)
	}
}

const tarLink = '1'

func plainLayer(t *testing.T, tar []byte) v1.Layer {
	return static.NewLayer(tar, types.OCIUncompressedLayer)
}

func zstdLayer(t *testing.T, tar []byte) v1.Layer {
	t.Helper()
	zw, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	diffID, _, err := v1.SHA256(bytes.NewReader(tar))
	if err != nil {
		t.Fatal(err)
	}
	return compressedLayer{static.NewLayer(zw.EncodeAll(tar, nil), types.OCILayerZStd), diffID}
}

// noise is data that does not compress.
func noise(size int) string {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(data)
	return string(data)
}

func TestPullByDigestAndIndex(t *testing.T) {
	reg, s := registrytest.New(t), pullStore(t, t.TempDir())
	ours := imageOf(t, v1.Config{User: "ours"}, gzipped(t, file("arch", runtime.GOARCH, 0o644)))
	other := imageOf(t, v1.Config{User: "other"}, gzipped(t, file("arch", "other", 0o644)))
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "windows", Architecture: runtime.GOARCH}}},
		mutate.IndexAddendum{Add: ours, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	tagged := reg.Push(t, "team/multi:v1", index)
	for _, ref := range []string{tagged, reg.Host + "/team/multi@" + digestOf(t, index).String(), reg.Host + "/team/multi@" + digestOf(t, ours).String()} {
		img, files := pull(t, s, ref)
		if got := contents(t, files)["arch"]; got != runtime.GOARCH || img.Config.User != "ours" {
			t.Errorf("%s is for %s with %+v, want this platform", ref, got, img.Config)
		}
		if again, _, err := s.Resolve(t.Context(), img.Ref()); err != nil || again.Digest != img.Digest {
			t.Errorf("Resolve(%s) = %+v, %v, want the image", img.Ref(), again, err)
		}
	}
	foreign := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}})
	_, err := s.Pull(t.Context(), reg.Push(t, "team/foreign", foreign), image.PullOptions{})
	wantCode(t, "Pull of another platform", err, sandbox.Unsupported)
	if !strings.Contains(err.Error(), "s390x") {
		t.Errorf("the error %q does not say what there is", err)
	}
}

func TestPullFetchesBlobsOnce(t *testing.T) {
	reg, dir := registrytest.New(t), t.TempDir()
	shared := gzipped(t, file("shared", noise(1<<20), 0o644))
	one := reg.Push(t, "app:one", imageOf(t, v1.Config{User: "1"}, shared, gzipped(t, file("one", "1", 0o644))))
	two := reg.Push(t, "app:two", imageOf(t, v1.Config{User: "2"}, shared, gzipped(t, file("two", "2", 0o644))))
	var wg sync.WaitGroup
	for i := range 8 {
		s := pullStore(t, dir) // as another process would have it
		ref := []string{one, two}[i%2]
		wg.Go(func() {
			if _, err := s.Pull(t.Context(), ref, image.PullOptions{}); err != nil {
				t.Errorf("Pull(%s): %v", ref, err)
			}
		})
	}
	wg.Wait()
	for blob, n := range reg.Fetched() {
		if n != 1 {
			t.Errorf("blob %s was fetched %d times", blob, n)
		}
	}
	s := pullStore(t, dir)
	pull(t, s, one)
	three := reg.Push(t, "other", imageOf(t, v1.Config{User: "3"}, shared))
	pull(t, s, three)
	if got := reg.Fetched(); got[digestOf(t, shared).String()] != 0 {
		t.Errorf("what another image has was fetched again: %v", got)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "pulls")); err != nil || len(left) != 0 {
		t.Errorf("pulls/ has %v, %v after all is done", left, err)
	}
}

func TestPullAuthentication(t *testing.T) {
	reg := registrytest.New(t)
	ref := reg.Push(t, "private:v1", imageOf(t, v1.Config{}, gzipped(t, file("secret", "s", 0o644))))
	login := registry.Login{}
	who := registry.Puller{Workspace: "ours", Registry: "1"}
	open := func(t *testing.T) *image.Store {
		s, err := image.Open(t.TempDir(), recipeFS(), image.Options{Remote: remote.Options{InsecureRegistries: loopback, Login: func(_ context.Context, asked registry.Puller, registry string) (registry.Login, error) {
			if registry != reg.Host || asked != who {
				return login, fmt.Errorf("%v asked for the credentials of %s", asked, registry)
			}
			return login, nil
		}}, Bootstrapper: &fake{}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ann := func(password string) registry.Login {
		return registry.Login{Proof: "1@" + password, Username: "ann", Password: password}
	}
	for name, intercept := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"basic": registrytest.BasicAuth("ann", "pw"), "token": registrytest.TokenAuth(reg.Host, "ann", "pw"),
	} {
		t.Run(name, func(t *testing.T) {
			reg.On(intercept)
			s := open(t)
			for _, login = range []registry.Login{{}, ann("wrong")} {
				_, err := s.Pull(t.Context(), ref, image.PullOptions{Puller: who})
				wantCode(t, "Pull", err, sandbox.Forbidden)
				if strings.Contains(err.Error(), "pw") {
					t.Errorf("the error tells the password: %v", err)
				}
			}
			login = ann("pw")
			if _, err := s.Pull(t.Context(), ref, image.PullOptions{Puller: who}); err != nil {
				t.Errorf("Pull with the right password: %v", err)
			}
		})
	}
	t.Run("no_credentials_any_more", func(t *testing.T) {
		gone := sandbox.Errorf(sandbox.Forbidden, "the registry credential was deleted")
		s, err := image.Open(t.TempDir(), recipeFS(), image.Options{Remote: remote.Options{InsecureRegistries: loopback, Login: func(context.Context, registry.Puller, string) (registry.Login, error) {
			return registry.Login{}, gone
		}}, Bootstrapper: &fake{}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Pull(t.Context(), ref, image.PullOptions{Puller: who})
		wantCode(t, "Pull", err, sandbox.Forbidden)
	})
}

func TestPullErrors(t *testing.T) {
	reg := registrytest.New(t)
	good := imageOf(t, v1.Config{}, gzipped(t, file("a", noise(100_000), 0o644)))
	ref := reg.Push(t, "app:v1", good)
	answer := func(status int, words string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v2/" {
				return false
			}
			http.Error(w, `{"errors":[{"code":"X","message":"`+words+`"}]}`, status)
			return true
		}
	}
	onBlobs := func(do func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			do(w, r)
			return true
		}
	}
	for name, c := range map[string]struct {
		ref       string
		intercept func(http.ResponseWriter, *http.Request) bool
		code      sandbox.Code
		words     string
	}{
		"no_tag":        {reg.Host + "/app:v9", nil, sandbox.NotFound, "app"},
		"no_repository": {reg.Host + "/none/such", nil, sandbox.NotFound, "none/such"},
		"no_registry":   {"unknown/name", nil, sandbox.NotFound, "images.default_registry"},
		"no_reference":  {"Not A Reference", nil, sandbox.Invalid, ""},
		"unreachable":   {"127.0.0.1:1/x", nil, sandbox.Unavailable, "127.0.0.1:1"},
		"link_local":    {"169.254.169.254/x", nil, sandbox.Unavailable, "169.254.169.254"},
		"limited": {ref, func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Retry-After", "7200")
			return answer(http.StatusTooManyRequests, "come back")(w, r)
		}, sandbox.Unavailable, "come back"},
		"broken":        {ref, answer(http.StatusTeapot, "short and stout"), sandbox.Unavailable, "short and stout"},
		"other_content": {ref, onBlobs(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "something else") }), sandbox.Unavailable, "ended after 14 of"},
		"endless": {ref, onBlobs(func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}), sandbox.Unavailable, "something else than"},
	} {
		t.Run(name, func(t *testing.T) {
			reg.On(c.intercept)
			dir := t.TempDir()
			s := pullStore(t, dir)
			_, err := s.Pull(t.Context(), c.ref, image.PullOptions{})
			wantCode(t, "Pull", err, c.code)
			if !strings.Contains(err.Error(), c.words) {
				t.Errorf("the error %q does not say %q", err, c.words)
			}
			if left := tree(t, dir+"/images"); len(left) != 0 {
				t.Errorf("the failed pull left %v", left)
			}
		})
	}
}

func TestPullRefusesImages(t *testing.T) {
	reg := registrytest.New(t)
	wrong := layerOf(t, tarball(t, file("a", "a", 0o644))).(compressedLayer)
	wrong.diffID = v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}
	for name, c := range map[string]struct {
		layer v1.Layer
		code  sandbox.Code
		words string
	}{
		"diff_id": {wrong, sandbox.Invalid, "promises"},
		"escape":  {gzipped(t, file("../escape", "x", 0o644)), sandbox.Invalid, "../escape"},
		"through": {gzipped(t, file("/a/../../etc/passwd", "x", 0o644)), sandbox.Invalid, "etc/passwd"},
		"no_tar":  {layerOf(t, []byte(strings.Repeat("no tar", 1000))), sandbox.Invalid, "tar"},
		"no_gzip": {static.NewLayer([]byte("\x1f\x8bnonsense"), types.DockerLayer), sandbox.Invalid, ""},
		"kind":    {static.NewLayer([]byte("x"), "application/vnd.other"), sandbox.Unsupported, "application/vnd.other"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := pullStore(t, dir)
			ref := reg.Push(t, strings.ToLower(name), imageOf(t, v1.Config{}, c.layer))
			_, err := s.Pull(t.Context(), ref, image.PullOptions{})
			wantCode(t, "Pull", err, c.code)
			if !strings.Contains(err.Error(), c.words) {
				t.Errorf("the error %q does not say %q", err, c.words)
			}
			if left := tree(t, dir+"/images"); len(left) != 0 {
				t.Errorf("the failed pull left %v", left)
			}
		})
	}
}

// TestPullNeedsSpace: an image that does not fit is refused before its download, and while it is
// unpacked if it turns out to be too large.
func TestPullNeedsSpace(t *testing.T) {
	reg := registrytest.New(t)
	inUse := func(context.Context) ([]string, error) { return nil, nil }
	big := reg.Push(t, "big", imageOf(t, v1.Config{}, gzipped(t, file("a", noise(1<<20), 0o644)), gzipped(t, file("b", noise(1<<20), 0o644))))
	bomb := reg.Push(t, "bomb", imageOf(t, v1.Config{}, gzipped(t, file("a", strings.Repeat("x", 1<<20), 0o644)), gzipped(t, file("b", strings.Repeat("y", 1<<20), 0o644))))
	for name, c := range map[string]struct {
		ref     string
		opts    image.Options
		code    sandbox.Code
		words   string
		fetched bool
	}{
		"budget":   {big, image.Options{MaxDisk: 3 << 19, InUse: inUse}, sandbox.TooLarge, "images.max_disk", false},
		"free":     {big, image.Options{MinFree: 1 << 60}, sandbox.Unavailable, "not enough space", false},
		"unpacked": {bomb, image.Options{MaxDisk: 3 << 19, InUse: inUse}, sandbox.TooLarge, "its layers have more than", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.opts.Bootstrapper, c.opts.Remote.InsecureRegistries = &fake{}, loopback
			s, err := image.Open(dir, recipeFS(), c.opts)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Pull(t.Context(), c.ref, image.PullOptions{})
			wantCode(t, "Pull", err, c.code)
			if !strings.Contains(err.Error(), c.words) {
				t.Errorf("the error %q does not say %q", err, c.words)
			}
			if got := len(tree(t, dir+"/pulls")) > 0; got != c.fetched {
				t.Errorf("fetched: %v, want %v", tree(t, dir+"/pulls"), c.fetched)
			}
			if left := tree(t, dir+"/images"); len(left) != 0 {
				t.Errorf("the failed pull left %v", left)
			}
		})
	}
}

func TestPullWaitsAndContinues(t *testing.T) {
	reg := registrytest.New(t)
	layer := gzipped(t, file("a", noise(3<<20), 0o644))
	ref := reg.Push(t, "app:v1", imageOf(t, v1.Config{}, layer))
	blob := "/blobs/" + digestOf(t, layer).String()
	data := read(t, layer.Compressed)
	const abort, hang = 1 << 20, 2 << 20
	var mu sync.Mutex
	refusals := 2
	var asked []int // The first answers are refusals, then an answer breaks off, another hangs, and the rest continues from there. A machine that stalls may make it ask more often.
	// The first answers are refusals, then an answer breaks off, another hangs, and the rest continues
	// from there. A machine that stalls may make it ask more often.
	reg.On(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, blob) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if refusals--; refusals == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		} else if refusals == 0 {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		from := 0
		if r.Header.Get("Range") != "" {
			if _, err := fmt.Sscanf(r.Header.Get("Range"), fmt.Sprintf("bytes=%%d-%d", len(data)-1), &from); err != nil || from >= len(data) {
				t.Errorf("the range %q is asked for: %v", r.Header.Get("Range"), err)
				return false
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
		}
		asked = append(asked, from)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)-from))
		if from > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		switch {
		case from < abort:
			_, _ = w.Write(data[from:abort])
			panic(http.ErrAbortHandler)
		case from < hang:
			_, _ = w.Write(data[from:hang])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // until the puller has had enough
		default:
			_, _ = w.Write(data[from:])
		}
		return true
	})
	s := stallStore(t, t.TempDir(), 5*time.Second)
	var last phase.Event
	_, err := s.Pull(t.Context(), ref, image.PullOptions{Progress: func(e phase.Event) {
		if e.Phase == phase.Pulling {
			last = e
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(asked) || asked[0] != 0 || !slices.Contains(asked, abort) || !slices.Contains(asked, hang) {
		t.Errorf("the blob was asked for from %v on, want 0, %d and %d among them, and never less than before", asked, abort, hang)
	}
	if last.Done != int64(len(data)) || last.Total != int64(len(data)) {
		t.Errorf("the last progress = %d of %d, want all of %d", last.Done, last.Total, len(data))
	}
}

func TestPullStalls(t *testing.T) {
	reg := registrytest.New(t)
	ref := reg.Push(t, "app:v1", imageOf(t, v1.Config{}, gzipped(t, file("a", "a", 0o644))))
	reg.On(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/") {
			<-r.Context().Done()
			return true
		}
		return false
	})
	_, err := stallStore(t, t.TempDir(), 50*time.Millisecond).Pull(t.Context(), ref, image.PullOptions{})
	wantCode(t, "Pull", err, sandbox.Unavailable)
	stalled := message(err)
	_, err = stallStore(t, t.TempDir(), 50*time.Millisecond).Pull(t.Context(), "127.0.0.1:1/app:v1", image.PullOptions{})
	if got, want := strings.ReplaceAll(message(err), "127.0.0.1:1 ", "HOST "), strings.ReplaceAll(stalled, strings.TrimSuffix(ref, "/app:v1")+" ", "HOST "); got != want {
		t.Errorf("of a closed port the error says %q, of one that does not answer %q", got, want)
	}
}

// message returns the public message of an error.
func message(err error) string {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Message
}

func TestPullMovedTag(t *testing.T) {
	reg, s := registrytest.New(t), pullStore(t, t.TempDir())
	ref := reg.Push(t, "app:v1", imageOf(t, v1.Config{}, gzipped(t, file("a", "old", 0o644))))
	old, _ := pull(t, s, ref)
	reg.Push(t, "app:v1", imageOf(t, v1.Config{}, gzipped(t, file("a", "new", 0o644))))
	moved, files := pull(t, s, ref)
	if moved.Digest == old.Digest || contents(t, files)["a"] != "new" {
		t.Errorf("the moved tag still means %+v", moved)
	}
	if moved.ID != old.ID {
		t.Errorf("the reference's id changed from %s to %s", old.ID, moved.ID)
	}
	if img, _, err := s.Resolve(t.Context(), old.Digest); err != nil || img.Digest != old.Digest {
		t.Errorf("what the tag meant before is gone: %v", err)
	}
}

// TestConfigOfWhatWasResolved: a tag that moves does not change the configuration of
// what it meant, though both have the same files, and who has the digest of one gets
// its own.
func TestConfigOfWhatWasResolved(t *testing.T) {
	reg, s := registrytest.New(t), pullStore(t, t.TempDir())
	layer := gzipped(t, file("a", "a", 0o644))
	ref := reg.Push(t, "app:v1", imageOf(t, v1.Config{User: "old"}, layer))
	old, _ := pull(t, s, ref)
	reg.Push(t, "app:v1", imageOf(t, v1.Config{User: "new"}, layer))
	moved, _ := pull(t, s, ref)
	if moved.Digest == old.Digest {
		t.Fatalf("what is run in another way has the same digest, %s", old.Digest)
	}
	for user, img := range map[string]spec.Image{"old": old, "new": moved} {
		if found, _, err := s.Resolve(t.Context(), img.Digest); err != nil || found.Config.User != user {
			t.Errorf("Resolve of the digest of the %s image = %+v, %v", user, found, err)
		}
	}
	for user, img := range map[string]spec.Image{"old": old, "new": moved} {
		if config, err := s.OCIConfig(img); err != nil || config.Config.User != user {
			t.Errorf("OCIConfig of the %s image = %+v, %v", user, config, err)
		}
	}
	removed := old
	removed.Digest = "sha256:" + strings.Repeat("0", 64)
	_, err := s.OCIConfig(removed)
	wantCode(t, "OCIConfig of what is not here", err, sandbox.NotFound)
}

func read(t *testing.T, open func() (io.ReadCloser, error)) []byte {
	t.Helper()
	r, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
