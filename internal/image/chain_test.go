package image_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// chainStore is a store in which small layers of pulled images become chains.
type chainStore struct {
	*testing.T
	*image.Store
	dir             string
	needed, dropped []string // of the database
}

func newChainStore(t *testing.T, dir string) *chainStore {
	t.Helper()
	c := &chainStore{T: t, dir: dir}
	var err error
	c.Store, err = image.Open(dir, recipeFS(), image.Options{
		Remote: remote.Options{InsecureRegistries: loopback, StallTimeout: time.Minute}, Bootstrapper: &fake{}, ChainBytes: 1,
		InUse:    func(context.Context) ([]string, error) { return c.needed, nil },
		Released: func(context.Context) ([]string, error) { return c.dropped, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pull pulls an image, and returns how often a root filesystem was written for it.
func (c *chainStore) pull(ref string) (img spec.Image, written int) {
	c.Helper()
	var mu sync.Mutex
	img, err := c.Pull(c.Context(), ref, image.PullOptions{Progress: func(e phase.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Phase == phase.Writing {
			written++
		}
	}})
	if err != nil {
		c.Fatal(err)
	}
	if found, _, err := c.Resolve(c.Context(), ref); err != nil || found.Digest != img.Digest {
		c.Errorf("Resolve(%s) = %s, %v, want %s", ref, found.Digest, err, img.Digest)
	}
	return img, written
}

// prune removes what nothing needs.
func (c *chainStore) prune() {
	c.Helper()
	if _, err := c.Removal().Prune(c.Context(), func(context.Context) ([]string, error) { return c.needed, nil }); err != nil {
		c.Fatal(err)
	}
}

// below returns the digests below an image.
func (c *chainStore) below(digest string) []string {
	c.Helper()
	below, err := stack.ReadFile(filepath.Join(c.dir, "images", stack.FileName(digest)))
	if err != nil {
		c.Fatal(err)
	}
	return below
}

// want compares the content of files of an image; "" is a file that is missing.
func (c *chainStore) want(img spec.Image, files map[string]string) {
	c.Helper()
	r, err := c.OpenFiles(c.Context(), "", img.Digest)
	if err != nil {
		c.Fatal(err)
	}
	defer r.Close()
	for name, content := range files {
		got, err := r.ReadFile(name, 8<<20)
		if string(got) != content || (err == nil) != (content != "") {
			c.Errorf("%s: %s has %.100q, %v, want %.100q", img.Ref(), name, got, err, content)
		}
	}
}

// wantEmpty checks that the store has no root filesystem, blob, record or use.
func (c *chainStore) wantEmpty(when string) {
	c.Helper()
	for _, pattern := range []string{"images/*", "layout/blobs/sha256/*", "records/*.json", "used/*", "tmp/*", "locks/pull-*"} {
		if left, err := filepath.Glob(filepath.Join(c.dir, pattern)); err != nil || len(left) > 0 {
			c.Errorf("%s there is %v, %v", when, left, err)
		}
	}
}

// erofs returns the number of distinct files of root filesystems and their bytes.
func (c *chainStore) erofs() (files int, bytes int64) {
	c.Helper()
	entries, err := os.ReadDir(filepath.Join(c.dir, "images"))
	if err != nil {
		c.Fatal(err)
	}
	var seen []os.FileInfo
next:
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			c.Fatal(err)
		}
		for _, other := range seen {
			if os.SameFile(info, other) {
				continue next
			}
		}
		seen = append(seen, info)
		bytes += info.Size()
	}
	return len(seen), bytes
}

// TestPulledImagesShareLayers: images with the same lowest layers have one root filesystem below them, until the last is
// removed.
func TestPulledImagesShareLayers(t *testing.T) {
	reg, c := registrytest.New(t), newChainStore(t, t.TempDir())
	system := gzipped(t, file("lib", noise(100_000), 0o644), file("etc/a", "a", 0o644), file("etc/b", "b", 0o644))
	runtime := gzipped(t, file("runtime", noise(140_000), 0o644), file("etc/.wh.a", "", 0))
	base := reg.Push(t, "base:v1", imageOf(t, v1.Config{User: "base"}, system, runtime))
	one := reg.Push(t, "one:v1", imageOf(t, v1.Config{}, system, runtime, gzipped(t, file("app", "one", 0o644), link(tarLink, "same", "etc/b"))))
	two := reg.Push(t, "two:v1", imageOf(t, v1.Config{}, system, runtime, gzipped(t, file("app", "two", 0o644), file("etc/.wh..wh..opq", "", 0))))

	first, written := c.pull(one)
	if n := len(c.below(first.Digest)); n != 2 || written != 3 {
		t.Errorf("the first image lies over %d root filesystems and %d were written, want 2 and 3", n, written)
	}
	second, written := c.pull(two)
	files, bytes := c.erofs()
	if written != 1 || files != 4 || bytes > 330_000 {
		t.Errorf("the second pull wrote %d root filesystems, and the store has %d with %d bytes; want 1, 4, and less than twice the bytes of the layers", written, files, bytes)
	}
	whole, written := c.pull(base)
	if files, more := c.erofs(); written != 0 || files != 4 || more != bytes {
		t.Errorf("for the image of the shared layers %d root filesystems were written; there are %d with %d bytes, want 0, 4 and %d", written, files, more, bytes)
	}
	c.want(first, map[string]string{"app": "one", "same": "b", "etc/a": "", "etc/b": "b", "lib": noise(100_000)})
	c.want(second, map[string]string{"app": "two", "etc/a": "", "etc/b": "", "runtime": noise(140_000)})
	c.want(whole, map[string]string{"app": "", "etc/a": "", "etc/b": "b", "lib": noise(100_000)})
	if first.SizeBytes < 240_000 || first.OwnBytes > 50_000 || whole.Config.User != "base" {
		t.Errorf("the images are %+v and %+v, want the size with everything, and the own configuration", first, whole)
	}
	for _, digest := range append(c.below(first.Digest), c.below(whole.Digest)...) {
		_, _, err := c.Resolve(t.Context(), digest)
		wantCode(t, "Resolve of a chain", err, sandbox.NotFound)
	}
	for _, remove := range []struct {
		ref   string
		files int
	}{{two, 3}, {base, 3}, {one, 0}} {
		if err := c.Removal().Remove(t.Context(), remove.ref); err != nil {
			t.Fatal(err)
		}
		c.prune()
		if files, _ := c.erofs(); files != remove.files {
			t.Errorf("after the removal of %s there are %d root filesystems, want %d", remove.ref, files, remove.files)
		}
		if remove.ref == two {
			c.want(first, map[string]string{"app": "one", "lib": noise(100_000)})
		}
	}
	c.wantEmpty("after the removal of all images")
}

// TestChainStaysWithItsLink: an image of shared layers alone keeps them for other images, and for a sandbox.
func TestChainStaysWithItsLink(t *testing.T) {
	reg, c := registrytest.New(t), newChainStore(t, t.TempDir())
	system := gzipped(t, file("lib", noise(100_000), 0o644))
	img, _ := c.pull(reg.Push(t, "base:v1", imageOf(t, v1.Config{}, system)))
	c.needed = []string{img.Digest}
	if err := c.Removal().Remove(t.Context(), reg.Host+"/base:v1"); err != nil {
		t.Fatal(err)
	}
	c.prune()
	if _, written := c.pull(reg.Push(t, "app:v1", imageOf(t, v1.Config{}, system, gzipped(t, file("a", "a", 0o644))))); written != 1 {
		t.Errorf("the pull wrote %d root filesystems, want only the root filesystem of the second layer", written)
	}
	if files, _ := c.erofs(); files != 2 {
		t.Errorf("there are %d root filesystems, want 2", files)
	}
}

// TestConcurrentPullsShareLayers: of pulls at once, one makes the common layers.
func TestConcurrentPullsShareLayers(t *testing.T) {
	reg, c := registrytest.New(t), newChainStore(t, t.TempDir())
	system, runtime := gzipped(t, file("lib", noise(100_000), 0o644)), gzipped(t, file("runtime", noise(140_000), 0o644))
	const images = 6
	var wg sync.WaitGroup
	written := make([]int, images)
	for i := range images {
		ref := reg.Push(t, fmt.Sprintf("app%d:v1", i), imageOf(t, v1.Config{}, system, runtime, gzipped(t, file("app", fmt.Sprint(i), 0o644))))
		wg.Go(func() {
			var img spec.Image
			img, written[i] = c.pull(ref)
			c.want(img, map[string]string{"app": fmt.Sprint(i), "lib": noise(100_000), "runtime": noise(140_000)})
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range written {
		sum += n
	}
	if files, _ := c.erofs(); sum != images+2 || files != images+2 {
		t.Errorf("%d root filesystems were written, and there are %d; want %d", sum, files, images+2)
	}
}

// TestFailedPullLeavesNoChain: layers of a pull that fails go, and layers of other images stay.
func TestFailedPullLeavesNoChain(t *testing.T) {
	reg, c := registrytest.New(t), newChainStore(t, t.TempDir())
	system := gzipped(t, file("lib", noise(100_000), 0o644))
	broken := compressedLayer{gzipped(t, file("runtime", noise(140_000), 0o644)), digestOf(t, system)} // another diff id
	_, err := c.Pull(t.Context(), reg.Push(t, "broken:v1", imageOf(t, v1.Config{}, system, broken)), image.PullOptions{})
	wantCode(t, "a pull with a wrong diff id", err, sandbox.Invalid)
	c.wantEmpty("after a pull that failed")

	img, _ := c.pull(reg.Push(t, "good:v1", imageOf(t, v1.Config{}, system, gzipped(t, file("a", "a", 0o644)))))
	_, err = c.Pull(t.Context(), reg.Host+"/broken:v1", image.PullOptions{})
	wantCode(t, "a pull with a wrong diff id over known layers", err, sandbox.Invalid)
	if files, _ := c.erofs(); files != 2 {
		t.Errorf("there are %d root filesystems, want the 2 of the good image", files)
	}
	c.want(img, map[string]string{"a": "a", "lib": noise(100_000)})
}

// TestPromisedLayers: a configuration that promises the layers of another image does not get them, and the same layers in
// another compression do.
func TestPromisedLayers(t *testing.T) {
	reg, c := registrytest.New(t), newChainStore(t, t.TempDir())
	secret := file("secret", noise(100_000), 0o644)
	system := gzipped(t, secret)
	diffID, err := system.DiffID()
	if err != nil {
		t.Fatal(err)
	}
	c.pull(reg.Push(t, "private:v1", imageOf(t, v1.Config{}, system, gzipped(t, file("a", "a", 0o644)))))
	lie := compressedLayer{gzipped(t, file("lie", noise(90_000), 0o644)), diffID}
	_, err = c.Pull(t.Context(), reg.Push(t, "lie:v1", imageOf(t, v1.Config{}, lie, gzipped(t, file("a", "a", 0o644)))), image.PullOptions{Puller: registry.Puller{Workspace: "w"}})
	wantCode(t, "a pull that promises another's layers", err, sandbox.Invalid)
	img, written := c.pull(reg.Push(t, "plain:v1", imageOf(t, v1.Config{}, plainLayer(t, tarball(t, secret)), gzipped(t, file("b", "b", 0o644)))))
	if c.want(img, map[string]string{"secret": noise(100_000), "b": "b"}); written != 1 {
		t.Errorf("%d root filesystems were written, want 1: the files are known", written)
	}
}

// TestDamagedChain: a pull makes a damaged root filesystem again.
func TestDamagedChain(t *testing.T) {
	reg, dir := registrytest.New(t), t.TempDir()
	system := gzipped(t, file("lib", noise(100_000), 0o644))
	ref := reg.Push(t, "app:v1", imageOf(t, v1.Config{}, system, gzipped(t, file("a", "a", 0o644))))
	c := newChainStore(t, dir)
	img, _ := c.pull(ref)
	lower := filepath.Join(dir, "images", stack.FileName(c.below(img.Digest)[0]))
	if err := os.Remove(lower); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lower, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	c = newChainStore(t, dir)
	_, _, err := c.Resolve(t.Context(), ref)
	wantCode(t, "Resolve over a damaged chain", err, sandbox.Unavailable)
	if err := c.Removal().Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	img, _ = c.pull(ref)
	c.want(img, map[string]string{"a": "a", "lib": noise(100_000)})
}

// TestKilledPullLeavesNoChain: the next start removes the layers of a pull whose process was killed.
func TestKilledPullLeavesNoChain(t *testing.T) {
	if dir := os.Getenv("MODBOX_TEST_CHAIN_DIR"); dir != "" { // this is the process to kill
		_, err := newChainStore(t, dir).Pull(t.Context(), os.Getenv("MODBOX_TEST_CHAIN_REF"), image.PullOptions{})
		t.Fatalf("the pull ended: %v", err)
	}
	reg, dir := registrytest.New(t), t.TempDir()
	second := gzipped(t, file("runtime", noise(140_000), 0o644))
	ref := reg.Push(t, "app:v1", imageOf(t, v1.Config{}, gzipped(t, file("lib", noise(100_000), 0o644)), second))
	reg.On(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, digestOf(t, second).String()) {
			return false
		}
		<-r.Context().Done()
		return true
	})
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledPullLeavesNoChain$")
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "MODBOX_TEST_CHAIN_DIR="+dir, "MODBOX_TEST_CHAIN_REF="+ref)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if records, _ := filepath.Glob(filepath.Join(dir, "records", "*.json")); len(records) == 1 { // the pattern is right
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the puller does not come to its second layer")
		}
		<-tick.C
	}
	other := newChainStore(t, dir) // a start beside the pull removes nothing that it needs
	if files, _ := other.erofs(); files != 1 {
		t.Errorf("there are %d root filesystems during the pull, want 1", files)
	}
	other.prune()
	if files, _ := other.erofs(); files != 1 {
		t.Errorf("there are %d root filesystems after a removal during the pull, want 1", files)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	newChainStore(t, dir).wantEmpty("after the next start")
}

// TestStepsOverPulledImage: steps of builds are layers over a pulled image, which counts once for the workspace, also
// beyond the bound of layers, and stays for them.
func TestStepsOverPulledImage(t *testing.T) {
	reg, c := registrytest.New(t), newChainStore(t, t.TempDir())
	ref := reg.Push(t, "base:v1", imageOf(t, v1.Config{}, gzipped(t, file("lib", noise(2_000_001), 0o644)), gzipped(t, file("runtime", noise(3_000_000), 0o644)), gzipped(t, file("a", "a", 0o644))))
	base, _ := c.pull(ref)
	under := append([]string{base.Digest}, c.below(base.Digest)...)
	if len(under) != 3 {
		t.Fatalf("the base has the root filesystems %v, want 3", under)
	}
	at := base.Digest
	const steps = 2*stack.Max + 1
	for n := range steps {
		made := step(t, c.Store, at, "me", n)
		below := c.below(made.Digest)
		if want := 3 + n%(stack.Max-2); !made.Alone || len(below) != want || !slices.Equal(below[len(below)-3:], under) {
			t.Errorf("step %d lies over %v, want %d with the base", n, below, want)
		}
		at = made.Digest
	}
	first := finished(t, c.Store, at, "me", "v1")
	one, left, err := c.Owned("me")
	if files := int64(5_000_000 + 4*steps<<16); err != nil || one < 5_000_000 || one+left > 2*files {
		t.Errorf("the image has %d bytes, and the cache %d, %v; want the base once", one, left, err)
	}
	finished(t, c.Store, step(t, c.Store, base.Digest, "me", 0).Digest, "me", "v2")
	if two, _, err := c.Owned("me"); err != nil || two < one || two > one+1<<20 {
		t.Errorf("with another image of the base they have %d bytes, %v, and one had %d; want the base once", two, err, one)
	}
	finished(t, c.Store, step(t, c.Store, base.Digest, "you", 0).Digest, "you", "v1")
	if other, _, err := c.Owned("you"); err != nil || other < 5_000_000 {
		t.Errorf("an image of another workspace over the base has %d bytes, %v, want the base in it", other, err)
	}
	if err := c.Removal().Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	c.prune()
	c.want(first, map[string]string{"a": "a", "lib": noise(2_000_001), "step0": noise(1 << 16), fmt.Sprint("step", steps-1): noise(1<<16 + steps - 1)})
	for _, ws := range []sandbox.WorkspaceID{"me", "you"} {
		if err := c.ForgetBuilt(t.Context(), ws); err != nil {
			t.Fatal(err)
		}
	}
	c.prune()
	c.wantEmpty("after the removal of all images")
}

// TestFailedPullEvictsNothing: layers of a pull that fails take the space of no other image.
func TestFailedPullEvictsNothing(t *testing.T) {
	reg, dir := registrytest.New(t), t.TempDir()
	open := func() *image.Store {
		s, err := image.Open(dir, recipeFS(), image.Options{
			Remote: remote.Options{InsecureRegistries: loopback}, Bootstrapper: &fake{}, ChainBytes: 1, MaxDisk: 1_500_000,
			InUse: func(context.Context) ([]string, error) { return nil, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ref := reg.Push(t, "old:v1", imageOf(t, v1.Config{}, gzipped(t, file("old", noise(400_000), 0o644))))
	if _, err := open().Pull(t.Context(), ref, image.PullOptions{}); err != nil {
		t.Fatal(err)
	}
	times := regexp.MustCompile(`"updated_at": "\d{4}`)
	editIndex(t, dir, func(index []byte) []byte { return times.ReplaceAll(index, []byte(`"updated_at": "2001`)) })
	if err := os.RemoveAll(filepath.Join(dir, "used")); err != nil { // the times of the last uses
		t.Fatal(err)
	}
	large := gzipped(t, file("large", noise(600_000), 0o644))
	broken := compressedLayer{gzipped(t, file("runtime", noise(140_000), 0o644)), digestOf(t, large)} // another diff id
	s := open()
	_, err := s.Pull(t.Context(), reg.Push(t, "broken:v1", imageOf(t, v1.Config{}, large, broken)), image.PullOptions{})
	wantCode(t, "a pull with a wrong diff id", err, sandbox.Invalid)
	if _, err := s.Lookup(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Resolve(t.Context(), ref); err != nil {
		t.Errorf("after a pull that failed, another image is gone: %v", err)
	}
	if _, err := s.Pull(t.Context(), reg.Push(t, "good:v1", imageOf(t, v1.Config{}, large)), image.PullOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestSharedLayersCountOnce: an image of shared layers and images over them count these once for a workspace that has built over
// all of them.
func TestSharedLayersCountOnce(t *testing.T) {
	reg, c := registrytest.New(t), newChainStore(t, t.TempDir())
	system := gzipped(t, file("lib", noise(2_000_000), 0o644))
	base, _ := c.pull(reg.Push(t, "base:v1", imageOf(t, v1.Config{}, system)))
	other, _ := c.pull(reg.Push(t, "other:v1", imageOf(t, v1.Config{User: "other"}, system)))
	app, _ := c.pull(reg.Push(t, "app:v1", imageOf(t, v1.Config{}, system, gzipped(t, file("a", "a", 0o644)))))
	finished(t, c.Store, step(t, c.Store, app.Digest, "me", 0).Digest, "me", "v0")
	one, _, err := c.Owned("me")
	if err != nil || one < 2_000_000 {
		t.Errorf("the first image has %d bytes, %v", one, err)
	}
	finished(t, c.Store, step(t, c.Store, base.Digest, "me", 1).Digest, "me", "v1")
	finished(t, c.Store, step(t, c.Store, other.Digest, "me", 2).Digest, "me", "v2")
	finished(t, c.Store, base.Digest, "me", "v3")
	if all, _, err := c.Owned("me"); err != nil || all < one || all > one+500_000 {
		t.Errorf("four images of the same layers have %d bytes, %v, and one had %d", all, err, one)
	}
	staged, err := c.StageBuilt(t.Context(), image.FinishRequest{Base: other.Digest, Name: "app", Tag: "v4", Owner: "me", Config: v1.Config{Cmd: []string{"/c"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer staged.Discard()
	if _, err := staged.Publish(t.Context(), func(_ context.Context, add int64) error {
		if add > 10_000 {
			t.Errorf("another image of these layers would add %d bytes", add)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestStepsOverManySnapshots: steps over a snapshot with as many below as possible do not have the files of all steps before.
func TestStepsOverManySnapshots(t *testing.T) {
	c := newChainStore(t, t.TempDir())
	at := commit(t, c.Store, "", file("a", "a", 0o644)).Digest
	for n := range stack.Max {
		at = commitAlone(t, c.Store, at, file(fmt.Sprint("s", n), "s", 0o644)).Digest
	}
	if n := len(c.below(at)); n != stack.Max {
		t.Fatalf("the snapshot lies over %d, want %d", n, stack.Max)
	}
	const steps = stack.Max
	large := 0
	for n := range steps {
		made := step(t, c.Store, at, "me", n)
		if at = made.Digest; made.OwnBytes > 2<<16 {
			large++
		}
	}
	if large > 1 {
		t.Errorf("%d of %d steps have the files of the steps before, want one at most", large, steps)
	}
	img := finished(t, c.Store, at, "me", "v1")
	c.want(img, map[string]string{"a": "a", "s0": "s", "s7": "s", "step0": noise(1 << 16), "step7": noise(1<<16 + 7)})
}
