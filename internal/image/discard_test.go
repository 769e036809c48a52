package image_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// discarding is a store of images that workspaces remove, over a registry.
type discarding struct {
	*image.Store
	dir    string
	reg    *registrytest.Registry
	logins map[sandbox.WorkspaceID]registry.Login
	// inUse and catalogued are the lists that the store gets.
	inUse, catalogued []string
}

func newDiscarding(t *testing.T) *discarding {
	t.Helper()
	d := &discarding{dir: t.TempDir(), reg: registrytest.New(t), logins: map[sandbox.WorkspaceID]registry.Login{}}
	d.open(t)
	return d
}

// open opens the store, again as after a crash.
func (d *discarding) open(t *testing.T) {
	t.Helper()
	var err error
	d.Store, err = image.Open(d.dir, recipeFS(), image.Options{
		Bootstrapper: &fake{tar: small(t, "one")}, Remote: remote.Options{InsecureRegistries: loopback, Login: func(_ context.Context, who registry.Puller, _ string) (registry.Login, error) {
			return d.logins[who.Workspace], nil
		}}, RecheckInterval: time.Hour,

		InUse:      func(context.Context) ([]string, error) { return d.inUse, nil },
		Catalogued: func(context.Context) ([]string, error) { return d.catalogued, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
}

// built is an image of a workspace with a file of its own.
func (d *discarding) built(t *testing.T, owner sandbox.WorkspaceID, tag string) spec.Image {
	t.Helper()
	base, err := d.Commit(t.Context(), image.CommitRequest{Owner: owner, Layer: bytes.NewReader(tarball(t, file(tag, noise(1<<18+len(owner+sandbox.WorkspaceID(tag))), 0o644)))})
	if err != nil {
		t.Fatal(err)
	}
	img, err := d.Finish(t.Context(), image.FinishRequest{Base: base.Digest, Owner: owner, Name: "app", Tag: tag})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// pulled is an image of the registry, as a workspace has it.
func (d *discarding) pulled(t *testing.T, ref string, who sandbox.WorkspaceID) spec.Image {
	t.Helper()
	img, _, err := d.Ensure(t.Context(), ref, registry.Puller{Workspace: who}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// refs are the names that the store shows a workspace, of other than built-in images.
func (d *discarding) refs(t *testing.T, ws sandbox.WorkspaceID) []string {
	t.Helper()
	list, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refs := []string{}
	for _, img := range list {
		if img.VisibleTo(ws) && !img.Builtin {
			refs = append(refs, img.Ref())
		}
	}
	return refs
}

// TestDiscardOwn: a workspace removes what it has built, and nobody else does.
func TestDiscardOwn(t *testing.T) {
	d := newDiscarding(t)
	mine, theirs := d.built(t, "me", "v1"), d.built(t, "they", "v1")
	d.built(t, "me", "v2")
	for _, who := range []image.Remover{{Workspace: "others"}, {Workspace: "others", Administrator: true}, {Administrator: true}} {
		for _, ref := range []string{"app:v1", string(mine.ID), mine.Digest, "app@" + mine.Digest} {
			_, err := d.Discard(t.Context(), who, ref)
			wantCode(t, "Discard("+ref+") by others", err, sandbox.NotFound)
			none := "app:v9"
			_, missing := d.Discard(t.Context(), who, none)
			if got, want := strings.ReplaceAll(err.Error(), ref, ""), strings.ReplaceAll(missing.Error(), none, ""); got != want {
				t.Errorf("others are told %q of what is there, and %q of what is not", got, want)
			}
		}
	}
	for i, ref := range []string{"app:v1", string(d.built(t, "me", "v3").ID), d.built(t, "me", "v4").Digest, "app@" + d.built(t, "me", "v5").Digest} {
		if _, err := d.Discard(t.Context(), image.Remover{Workspace: "me"}, ref); err != nil {
			t.Errorf("%d: Discard(%s) = %v", i, ref, err)
		}
	}
	if got, err := d.Discard(t.Context(), image.Remover{Workspace: "they"}, string(theirs.ID)); err != nil || got.Ref() != "app:v1" || got.Digest != theirs.Digest {
		t.Errorf("Discard of theirs by them = %+v, %v", got, err)
	}
	if d := cmp.Diff([]string{"app:v2"}, d.refs(t, "me")); d != "" {
		t.Errorf("what is left of mine (-want +got):\n%s", d)
	}
	_, err := d.Discard(t.Context(), image.Remover{Workspace: "me"}, "app:v1")
	wantCode(t, "Discard again", err, sandbox.NotFound)
	_, err = d.Discard(t.Context(), image.Remover{Workspace: "me"}, "No Name")
	wantCode(t, "Discard of what is no reference", err, sandbox.Invalid)
}

// TestDiscardShared: what is for all workspaces is the administrators' to remove, and what
// several have by signing in each of them gives up for itself alone.
func TestDiscardShared(t *testing.T) {
	d := newDiscarding(t)
	public := d.reg.Push(t, "public:v1", imageOf(t, v1.Config{}, gzipped(t, file("public", noise(1<<18), 0o644))))
	private := d.reg.Push(t, "private:v1", imageOf(t, v1.Config{}, gzipped(t, file("private", noise(1<<17), 0o644))))
	d.pulled(t, public, "me")
	d.reg.On(registrytest.BasicAuth("ann", "pw"))
	for i, ws := range []sandbox.WorkspaceID{"me", "they"} {
		d.logins[ws] = registry.Login{Proof: string(rune('1'+i)) + "@a", Username: "ann", Password: "pw"}
		d.pulled(t, private, ws)
	}
	build(t, d.Store, "test/main")
	for _, ref := range []string{public, "test/main", "modbox/other"} { // built, and not built
		_, err := d.Discard(t.Context(), image.Remover{Workspace: "me"}, ref)
		wantCode(t, "Discard("+ref+") by a workspace", err, sandbox.Forbidden)
	}
	_, err := d.Discard(t.Context(), image.Remover{Workspace: "others", Administrator: true}, private)
	wantCode(t, "Discard of what others have by signing in", err, sandbox.NotFound)
	_, err = d.Discard(t.Context(), image.Remover{Workspace: "me", Administrator: true}, "modbox/other")
	wantCode(t, "Discard of what is not built", err, sandbox.NotFound)

	if _, err := d.Discard(t.Context(), image.Remover{Workspace: "me"}, private); err != nil {
		t.Fatal(err)
	}
	if got := d.refs(t, "me"); slices.Contains(got, private) {
		t.Errorf("who gave it up still has it: %v", got)
	}
	if got := d.refs(t, "they"); !slices.Contains(got, private) {
		t.Errorf("the others lost it: %v", got)
	}
	if _, err := d.Discard(t.Context(), image.Remover{Workspace: "they"}, private); err != nil {
		t.Fatal(err)
	}
	if got := d.refs(t, "they"); slices.Contains(got, private) {
		t.Errorf("the last one still has it: %v", got)
	}
	if img := d.pulled(t, private, "me"); !img.VisibleTo("me") || img.VisibleTo("they") {
		t.Errorf("pulled again it is readable by %v", img.Readers)
	}
	for _, ref := range []string{public, "test/main"} {
		if _, err := d.Discard(t.Context(), image.Remover{Workspace: "me", Administrator: true}, ref); err != nil {
			t.Errorf("Discard(%s) by an administrator: %v", ref, err)
		}
	}
	if got := d.refs(t, "they"); len(got) != 0 {
		t.Errorf("what is left for them is %v", got)
	}
}

// TestDiscardByDigest: a digest that several names have says which they are.
func TestDiscardByDigest(t *testing.T) {
	d := newDiscarding(t)
	base := d.built(t, "me", "v1")
	for _, tag := range []string{"a", "b"} {
		if _, err := d.Finish(t.Context(), image.FinishRequest{Base: base.Digest, Owner: "me", Name: "same", Tag: tag}); err != nil {
			t.Fatal(err)
		}
	}
	img, err := d.Built(t.Context(), "me", "same:a")
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Discard(t.Context(), image.Remover{Workspace: "me"}, img.Digest)
	wantCode(t, "Discard by a digest of several", err, sandbox.Conflict)
	if !strings.Contains(err.Error(), "same:a, same:b") {
		t.Errorf("the error %q does not say which", err)
	}
}

// prune is PruneFor, and what it says has gone.
func (d *discarding) prune(t *testing.T, req image.PruneRequest) ([]string, int64) {
	t.Helper()
	done, err := d.Removal().PruneFor(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	digests := []string{}
	for _, img := range done.Images {
		digests = append(digests, img.Digest)
	}
	slices.Sort(digests)
	return digests, done.FreedBytes
}

// TestPruneFor: of what a workspace has built goes what has no name and is not used, and
// nothing of others.
func TestPruneFor(t *testing.T) {
	d := newDiscarding(t)
	gone, used, held := d.built(t, "me", "v1"), d.built(t, "me", "v2"), d.built(t, "me", "v3")
	d.built(t, "me", "named")
	theirs := d.built(t, "they", "v1")
	for _, ref := range []string{"app:v1", "app:v2", "app:v3"} {
		if _, err := d.Discard(t.Context(), image.Remover{Workspace: "me"}, ref); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Discard(t.Context(), image.Remover{Workspace: "they"}, "app:v1"); err != nil {
		t.Fatal(err)
	}
	release, err := d.Hold(t.Context(), held.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	d.inUse = []string{used.Digest}
	before := tree(t, filepath.Join(d.dir, "images"))
	digests, bytes := d.prune(t, image.PruneRequest{Workspace: "me", DryRun: true})
	if want := []string{gone.Digest}; !slices.Equal(digests, want) || bytes <= 0 || bytes >= gone.SizeBytes {
		t.Errorf("a dry run = %v, %d, want %v without the %d bytes of its file, which the layer shares", digests, bytes, want, gone.SizeBytes)
	}
	if diff := cmp.Diff(before, tree(t, filepath.Join(d.dir, "images"))); diff != "" {
		t.Errorf("a dry run did (-before +after):\n%s", diff)
	}
	if again, same := d.prune(t, image.PruneRequest{Workspace: "me"}); !slices.Equal(again, digests) || same != bytes {
		t.Errorf("PruneFor = %v, %d, and the dry run %v, %d", again, same, digests, bytes)
	}
	after := tree(t, filepath.Join(d.dir, "images"))
	if len(after) != len(before)-1 {
		t.Errorf("before:\n%s\nafter:\n%s\nwant one file less", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	if again, freed := d.prune(t, image.PruneRequest{Workspace: "me"}); len(again) != 0 || freed != 0 {
		t.Errorf("once more = %v, %d", again, freed)
	}
	if nobody, _ := d.prune(t, image.PruneRequest{}); len(nobody) != 0 {
		t.Errorf("of nobody %v was pruned", nobody)
	}
	done, err := d.Removal().PruneFor(t.Context(), image.PruneRequest{Workspace: "me", All: true})
	if err != nil || len(done.Images) != 1 || done.Images[0].Digest != theirs.Digest || done.Images[0].Ref != "" || done.Images[0].Workspace != "they" {
		t.Errorf("PruneFor of all = %+v, %v, want theirs without its name", done, err)
	}
	d.open(t)
	if err := d.Verifier().All(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPruneForLayers: cached layers go when they were not used for a while, and what was made
// without a name when it is not new.
func TestPruneForLayers(t *testing.T) {
	d := newDiscarding(t)
	layer := func(key string) image.Committed {
		c, err := d.Commit(t.Context(), image.CommitRequest{Owner: "me", CacheKey: key, Layer: bytes.NewReader(tarball(t, file("f"+key, noise(1<<18+len(key)), 0o644)))})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	layer("")
	recent, old := layer("b"), layer("aaa")
	if _, _, err := d.Cached(t.Context(), "b", 0); err != nil {
		t.Fatal(err)
	}
	if got, _ := d.prune(t, image.PruneRequest{Workspace: "me"}); len(got) != 0 {
		t.Errorf("of new ones %v was pruned", got)
	}
	ageEntry(t, d.dir, old.Image, time.Hour)
	d.open(t)
	if got, _ := d.prune(t, image.PruneRequest{Workspace: "me"}); !slices.Equal(got, []string{old.Digest}) {
		t.Errorf("%v was pruned, want %s and not %s", got, old.Digest, recent.Digest)
	}
}

// ageEntry makes the creation and the last use of an image earlier.
func ageEntry(t *testing.T, dir string, img spec.Image, by time.Duration) {
	t.Helper()
	before := img.UpdatedAt.Add(-by).Format(time.RFC3339Nano)
	if !editIndex(t, dir, func(index []byte) []byte {
		return bytes.ReplaceAll(index, []byte(`"updated_at": "`+img.UpdatedAt.Format(time.RFC3339Nano)), []byte(`"updated_at": "`+before))
	}) {
		t.Fatalf("the index does not have %s", img.Digest)
	}
	used := filepath.Join(dir, "used", strings.TrimPrefix(img.Digest, "sha256:"))
	if err := os.Remove(used); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// TestPruneForPulled: an administrator's prune removes pulled images that nothing uses and no
// catalogue has; imported, built-in and recently used images stay.
func TestPruneForPulled(t *testing.T) {
	d := newDiscarding(t)
	var refs []string
	var images []spec.Image
	for i, name := range []string{"unused", "used", "catalogued", "recent", "pinned"} {
		ref := d.reg.Push(t, name+":v1", imageOf(t, v1.Config{}, gzipped(t, file(name, noise(1<<18+i), 0o644))))
		refs, images = append(refs, ref), append(images, d.pulled(t, ref, "me"))
		if name != "recent" {
			ageEntry(t, d.dir, images[i], time.Hour)
			d.open(t)
		}
	}
	builtin := build(t, d.Store, "test/main")
	ageEntry(t, d.dir, builtin, time.Hour)
	d.open(t)
	d.inUse = []string{images[1].Digest}
	d.catalogued = []string{refs[2], strings.TrimSuffix(refs[4], ":v1") + "@" + images[4].Digest}
	if got, _ := d.prune(t, image.PruneRequest{Workspace: "me"}); len(got) != 0 {
		t.Errorf("for a workspace %v was pruned", got)
	}
	dry, bytes := d.prune(t, image.PruneRequest{Workspace: "me", All: true, DryRun: true})
	got, freed := d.prune(t, image.PruneRequest{Workspace: "me", All: true})
	if want := []string{images[0].Digest}; !slices.Equal(got, want) || !slices.Equal(dry, want) || freed < images[0].SizeBytes || bytes < images[0].SizeBytes {
		t.Errorf("PruneFor = %v, %d, dry %v, %d, want %v", got, freed, dry, bytes, want)
	}
	left := slices.Clone(refs[1:])
	slices.Sort(left)
	if diff := cmp.Diff(left, d.refs(t, "me")); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	if again := d.pulled(t, refs[0], "me"); again.Digest != images[0].Digest {
		t.Errorf("pulled again it is %s, was %s", again.Digest, images[0].Digest)
	}
}

// TestPruneForUnknownUse: when it is not known what is in use, nothing goes.
func TestPruneForUnknownUse(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, &fake{tar: small(t, "one")})
	build(t, s, "test/main")
	if _, err := s.Discard(t.Context(), image.Remover{Administrator: true}, "test/main"); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	if _, err := s.Removal().PruneFor(t.Context(), image.PruneRequest{All: true}); err == nil {
		t.Error("PruneFor succeeded")
	}
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Errorf("it did (-before +after):\n%s", diff)
	}
}

// TestPruneForAfterACrash: files that a killed server had not deleted yet are nothing to the
// next one, which prunes them, and keeps what it makes of the same again.
func TestPruneForAfterACrash(t *testing.T) {
	d := newDiscarding(t)
	gone := d.built(t, "me", "v1")
	d.built(t, "me", "kept")
	if _, err := d.Discard(t.Context(), image.Remover{Workspace: "me"}, "app:v1"); err != nil {
		t.Fatal(err)
	}
	before := t.TempDir()
	if err := os.CopyFS(filepath.Join(before, "images"), os.DirFS(filepath.Join(d.dir, "images"))); err != nil {
		t.Fatal(err)
	}
	if got, _ := d.prune(t, image.PruneRequest{Workspace: "me"}); !slices.Equal(got, []string{gone.Digest}) {
		t.Fatalf("pruned is %v", got)
	}
	pruned := tree(t, filepath.Join(d.dir, "images"))
	// The index is written first; a crash then is as if nothing had been deleted.
	name := filepath.Join("images", strings.TrimPrefix(gone.Digest, "sha256:")+".erofs")
	if err := os.Rename(filepath.Join(before, name), filepath.Join(d.dir, name)); err != nil {
		t.Fatal(err)
	}
	d.open(t)
	if err := d.Verifier().All(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"app:kept"}, d.refs(t, "me")); diff != "" {
		t.Errorf("after the crash (-want +got):\n%s", diff)
	}
	if got, freed := d.prune(t, image.PruneRequest{Workspace: "me", All: true}); len(got) != 0 || freed != gone.SizeBytes {
		t.Errorf("pruned after the crash is %v, %d bytes, want %d", got, freed, gone.SizeBytes)
	}
	if diff := cmp.Diff(pruned, tree(t, filepath.Join(d.dir, "images"))); diff != "" {
		t.Errorf("what is on the disk then (-want +got):\n%s", diff)
	}
	if again := d.built(t, "me", "v1"); again.Digest != gone.Digest {
		t.Errorf("built again it is %s, was %s", again.Digest, gone.Digest)
	}
	if _, _, err := d.Resolve(t.Context(), gone.Digest); err != nil {
		t.Error(err)
	}
}

// TestDeletedWorkspaceHasNoImages: the access of a deleted workspace to private images ends, and an
// image is removed with the last workspace that has access.
func TestDeletedWorkspaceHasNoImages(t *testing.T) {
	d := newDiscarding(t)
	ref := d.reg.Push(t, "team/app:v1", imageOf(t, v1.Config{}, gzipped(t, file("f", "x", 0o644))))
	d.reg.On(registrytest.BasicAuth("ann", "pw"))
	for _, ws := range []sandbox.WorkspaceID{"one", "two"} {
		d.logins[ws] = registry.Login{Proof: "1", Username: "ann", Password: "pw"}
		d.pulled(t, ref, ws)
	}
	if err := d.ForgetBuilt(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if one, two := d.refs(t, "one"), d.refs(t, "two"); len(one) != 0 || len(two) != 1 {
		t.Errorf("the deleted workspace has %v, the other one %v", one, two)
	}
	if err := d.ForgetBuilt(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	if done, err := d.Removal().PruneFor(t.Context(), image.PruneRequest{All: true}); err != nil || len(done.Images) != 1 {
		t.Errorf("PruneFor = %+v, %v, want the image gone", done, err)
	}
}
