package imagearchive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/imagearchive"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/imagerows"
	"github.com/modbox/modbox/internal/store/storetest"
)

// fixture is a service with its database, bucket and image directory.
type fixture struct {
	*imagearchive.Service
	t       *testing.T
	url     string
	keyFile string
	grace   time.Duration
	home    string
	store   *store.Store
	dir     string
	images  *image.Store
	needed  []string
	taken   error // of Confirm
	space   *ballast.Budget
	owner   *sandbox.Ownership
}

func newFixture(t *testing.T, url string) *fixture {
	t.Helper()
	f := &fixture{t: t, url: url, grace: time.Hour, home: "home", store: storetest.Open(t, filepath.Join(t.TempDir(), "m.db"))}
	f.next()
	return f
}

// next makes the service of another server with the database and the bucket, and with an empty image directory.
func (f *fixture) next() {
	f.dir = f.t.TempDir()
	f.restart(imagerows.NewStored(f.store.DB))
}

// restart makes another service with the same image directory.
func (f *fixture) restart(records imagearchive.Records) {
	f.t.Helper()
	archives := f.store.Sandboxes.Archives()
	var err error
	f.Service, err = imagearchive.Open(f.t.Context(), imagearchive.Config{URL: f.url, KeyFile: f.keyFile, Store: true, Grace: f.grace, Installation: f.home, Space: f.space}, imagearchive.Deps{
		Records: records, Used: archives.Any, Needed: func(context.Context) ([]string, error) { return f.needed, nil }, Confirm: func(context.Context) error { return f.taken }, Owner: f.owner, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	s := f.Service
	f.t.Cleanup(func() { _ = s.Close() })
	f.images, err = image.Open(f.dir, recipes, image.Options{Bootstrapper: bootstrapper{f.t}, Rows: imagerows.New(f.store.DB), Away: s})
	if err != nil {
		f.t.Fatal(err)
	}
}

var recipes = fstest.MapFS{"main/recipe.yaml": {Data: []byte("name: test/main\ndate: 2025-01-02\ndebian: {suite: trixie}\nmemory: 64Mi\n")}}

// bootstrapper makes the files of the built-in image.
type bootstrapper struct{ t *testing.T }

func (b bootstrapper) Bootstrap(_ context.Context, _ recipe.Job, w io.Writer) error {
	_, err := w.Write(tarball(b.t, map[string]string{"base": "base"}))
	return err
}

func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, data := range files {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(1, 0)})
		if err == nil {
			_, err = io.WriteString(w, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// noise returns bytes that cannot be compressed.
func noise(n int) string {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	return string(data)
}

// base builds the built-in image.
func (f *fixture) base() string {
	f.t.Helper()
	r, err := f.images.Recipe("test/main")
	if err != nil {
		f.t.Fatal(err)
	}
	img, err := f.images.Build(f.t.Context(), r, image.BuildOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return img.Digest
}

func (f *fixture) commit(req image.CommitRequest, files map[string]string) image.Committed {
	f.t.Helper()
	req.Layer = bytes.NewReader(tarball(f.t, files))
	done, err := f.images.Commit(f.t.Context(), req)
	if err != nil {
		f.t.Fatal(err)
	}
	return done
}

// snapshot makes the snapshot of a sandbox over a base.
func (f *fixture) snapshot(base, name, content string) image.Committed {
	f.t.Helper()
	return f.commit(image.CommitRequest{Base: base, User: "ws", Alone: true}, map[string]string{name: content})
}

// commitAlone makes an image of one file, and returns its digest.
func (f *fixture) commitAlone(name, content string) string {
	f.t.Helper()
	return f.commit(image.CommitRequest{User: "ws", Alone: true}, map[string]string{name: content}).Digest
}

// finish makes a built image of a layer.
func (f *fixture) finish(layer, tag string) image.Committed {
	f.t.Helper()
	staged, err := f.images.StageBuilt(f.t.Context(), image.FinishRequest{Base: layer, Config: v1.Config{User: tag}, Owner: "ws", Name: "app", Tag: tag})
	if err != nil {
		f.t.Fatal(err)
	}
	defer staged.Discard()
	done, err := staged.Publish(f.t.Context(), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return done
}

// run runs the service until ok is true.
func (f *fixture) run(what string, ok func() bool) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, f.images.Verifier().Files, f.images.Verifier().Check)
	}()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) { // polling a goroutine
		if time.Now().After(deadline) {
			f.t.Errorf("not within a minute: %s", what)
			break
		}
	}
	cancel()
	<-ended
}

// save runs the service until images are stored.
func (f *fixture) save(digests ...string) {
	f.t.Helper()
	f.run("the images are stored", func() bool {
		return !slices.ContainsFunc(digests, func(d string) bool { return !f.Has(d) })
	})
}

// objects returns the keys of the objects of images.
func (f *fixture) objects() (keys []string) {
	f.t.Helper()
	o, err := object.OpenWithKeyFile(f.t.Context(), f.url, f.keyFile, object.Options{})
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	defer o.Close()
	if err := o.List(f.t.Context(), "images/", func(o object.Object) error {
		keys = append(keys, o.Key)
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
	return keys
}

// path returns the file of an object in a local bucket.
func (f *fixture) path(key string) string {
	u, err := url.Parse(f.url)
	if err != nil {
		f.t.Fatal(err)
	}
	return filepath.Join(u.Path, filepath.FromSlash(key))
}

// sent returns the bytes that the service has sent.
func (f *fixture) sent() (n float64) {
	f.t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(f.Collectors()...)
	families, err := r.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "modbox_stored_images_moved_bytes_total" && m.GetLabel()[0].GetValue() == "sent" {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (f *fixture) export(digest string) []byte {
	f.t.Helper()
	var b bytes.Buffer
	if err := f.images.Export(f.t.Context(), digest, &b); err != nil {
		f.t.Fatal(err)
	}
	return b.Bytes()
}

// resolve returns the file of an image.
func (f *fixture) resolve(digest string) string {
	f.t.Helper()
	_, path, err := f.images.Resolve(f.t.Context(), digest)
	if err != nil {
		f.t.Fatal(err)
	}
	return path
}

// local returns the names of the root filesystems on the disk, and of the work in progress.
func (f *fixture) local() (names []string) {
	f.t.Helper()
	for _, dir := range []string{"images", "tmp"} {
		entries, err := os.ReadDir(filepath.Join(f.dir, dir))
		if err != nil {
			f.t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestLostDirectory opens an empty image directory with the database of another.
func TestLostDirectory(t *testing.T) { testLostDirectory(t, "file://"+t.TempDir(), "") }

func TestLostDirectoryS3(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), 0o600); err != nil {
		t.Fatal(err)
	}
	testLostDirectory(t, objecttest.Start(t).URL("p"), key)
}

func testLostDirectory(t *testing.T, url, keyFile string) {
	f := newFixture(t, url)
	f.keyFile = keyFile
	f.restart(imagerows.NewStored(f.store.DB))
	base := f.base()
	lower := f.snapshot(base, "lower", noise(9<<20))
	upper := f.snapshot(lower.Digest, "upper", "upper")
	layer := f.commit(image.CommitRequest{Owner: "ws", CacheKey: "step"}, map[string]string{"built": noise(5 << 20)})
	cached := f.commit(image.CommitRequest{User: "ws", CacheKey: "other"}, map[string]string{"cached": "cached"})
	one, two := f.finish(layer.Digest, "one"), f.finish(layer.Digest, "two")
	files := map[string][]byte{}
	for _, img := range []image.Committed{lower, upper, one, two} {
		files[img.Digest] = read(t, img.Path)
	}
	archived := f.export(upper.Digest)
	f.save(base, lower.Digest, upper.Digest, one.Digest, two.Digest)
	if f.Has(layer.Digest) || f.Has(cached.Digest) {
		t.Error("the build cache is stored")
	}

	f.next()
	if err := f.images.Verifier().All(t.Context()); err != nil {
		t.Errorf("a check of all images = %v", err)
	}
	if names := f.local(); len(names) > 0 {
		t.Errorf("on the disk before an image is used: %v", names)
	}
	for digest, want := range files {
		if got := read(t, f.resolve(digest)); !bytes.Equal(got, want) {
			t.Errorf("the root filesystem %s has %d bytes and differs from the lost %d", digest, len(got), len(want))
		}
	}
	var infos []fs.FileInfo
	for _, digest := range []string{one.Digest, two.Digest} {
		info, err := os.Stat(f.resolve(digest))
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	if !os.SameFile(infos[0], infos[1]) {
		t.Error("two images that had one file have two")
	}
	if names := f.local(); len(names) != 5 {
		t.Errorf("on the disk: %v, want five root filesystems", names)
	}
	if next := f.snapshot(lower.Digest, "next", "next"); !next.Alone {
		t.Errorf("a snapshot over a fetched image is %+v", next)
	}
	if got := f.export(upper.Digest); !bytes.Equal(got, archived) {
		t.Errorf("the exported image has %d bytes, and differs from the earlier %d", len(got), len(archived))
	}
	if _, err := f.images.Lookup(t.Context(), cached.Digest); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Lookup of an image that was not stored = %v, want not_found", err)
	}
	if _, left, err := f.images.Owned("ws"); err != nil {
		t.Errorf("Owned = %d, %v", left, err)
	}
}

// ending are records of a server that ends before it records an image.
type ending struct{ imagearchive.Records }

func (ending) Add(context.Context, []index.StoredFile, map[string][]byte) error {
	return errors.New("the server ends")
}

// TestUploadGoesOn ends servers during an upload. The next send only what the bucket does not have.
func TestUploadGoesOn(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	done := f.commit(image.CommitRequest{User: "ws", Alone: true}, map[string]string{"a": noise(9 << 20)})
	f.restart(ending{imagerows.NewStored(f.store.DB)})
	f.run("all parts are there", func() bool { return f.sent() >= 18<<20 }) // of the root filesystem and of the layer
	all := f.objects()
	if f.Has(done.Digest) || len(all) != 6 {
		t.Errorf("an image without a record is stored, with the objects %v", all)
	}
	if err := os.Remove(f.path(all[1])); err != nil {
		t.Fatal(err)
	}
	f.next() // which drops the image, because it was not recorded
	again := f.commit(image.CommitRequest{User: "ws", Alone: true}, map[string]string{"a": noise(9 << 20)})
	if again.Digest != done.Digest {
		t.Fatalf("the same files have the digests %s and %s", done.Digest, again.Digest)
	}
	f.save(done.Digest)
	if n := f.sent(); n != object.ChunkBytes || !slices.Equal(f.objects(), all) {
		t.Errorf("%v bytes sent, want the bytes of the missing part; objects %v, want %v", n, f.objects(), all)
	}
	f.next()
	f.resolve(done.Digest)
}

// TestUnusableBucket fetches an image that is damaged, missing, or in a bucket that is not there.
func TestUnusableBucket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bucket")
	f := newFixture(t, "file://"+dir)
	done := f.snapshot(f.base(), "a", noise(9<<20))
	f.save(done.Digest)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	f.next() // a server starts without the bucket
	fetch := func(what, word string) {
		t.Helper()
		_, _, err := f.images.Resolve(t.Context(), done.Digest)
		if sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: Resolve = %v, want unavailable", what, err)
		}
		if names := f.local(); len(names) > 0 {
			t.Errorf("%s: left on the disk: %v", what, names)
		}
	}
	fetch("away", "object store")
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a bucket was made: %v", err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	for _, key := range f.objects() {
		if !strings.Contains(key, strings.TrimPrefix(done.Digest, "sha256:")) || !strings.HasSuffix(key, ".00000") {
			continue
		}
		right := read(t, f.path(key))
		if err := os.WriteFile(f.path(key), bytes.Repeat([]byte("x"), 100), 0o600); err != nil {
			t.Fatal(err)
		}
		fetch("damaged", "damaged")
		other := strings.TrimSuffix(key, "0") + "1"
		if err := os.WriteFile(f.path(key), read(t, f.path(other)), 0o600); err != nil {
			t.Fatal(err)
		}
		fetch("another part", "damaged")
		if err := os.Remove(f.path(key)); err != nil {
			t.Fatal(err)
		}
		fetch("missing", "damaged")
		if err := os.WriteFile(f.path(key), right, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.resolve(done.Digest)
}

// TestServersOfParts: of two servers with a directory the primary stores images, and the other fetches them, also what was stored after its start. It
// neither stores nor removes anything.
func TestServersOfParts(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	f.owner = sandbox.Own(sandbox.Parts(2)[1])
	f.restart(imagerows.NewStored(f.store.DB))
	other, others := f.Service, f.images
	f.owner = sandbox.Own(sandbox.Parts(2)[0])
	f.restart(imagerows.NewStored(f.store.DB))
	digest := f.commitAlone("a", noise(5<<20))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		other.Run(ctx, others.Verifier().Files, others.Verifier().Check)
	}()
	f.save(digest)
	before := f.objects()
	if err := os.Remove(f.resolve(digest)); err != nil {
		t.Fatal(err)
	}
	if _, path, err := others.Resolve(t.Context(), digest); err != nil {
		t.Errorf("an image that the primary has stored: %v", err)
	} else if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	cancel()
	<-ended
	both := *f
	if both.Service = other; both.sent() != 0 {
		t.Errorf("the other server has sent %v bytes", both.sent())
	}
	if got := f.objects(); !slices.Equal(got, before) {
		t.Errorf("objects %v after the other server, want %v", got, before)
	}
}

// forget removes records from the index of the images.
func (f *fixture) forget(digests ...string) {
	f.t.Helper()
	table := f.images.Verifier().Index
	ix, unlock, err := table.Lock(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	defer unlock()
	if err := table.Write(ix.Keep(func(r *index.Record) bool { return !slices.Contains(digests, r.Digest) })); err != nil {
		f.t.Fatal(err)
	}
}

// TestRemoval removes images, whose files stay for a time.
func TestRemoval(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	base := f.base()
	snap := f.snapshot(base, "a", "a")
	layer := f.commit(image.CommitRequest{Owner: "ws", CacheKey: "step"}, map[string]string{"built": "built"})
	one, two := f.finish(layer.Digest, "one"), f.finish(layer.Digest, "two")
	f.save(snap.Digest, one.Digest, two.Digest)
	all := f.objects()
	of := func(digest string) int {
		n := 0
		for _, key := range f.objects() {
			if strings.Contains(key, strings.TrimPrefix(digest, "sha256:")) {
				n++
			}
		}
		return n
	}
	f.forget(one.Digest)
	released := func(digest string) bool {
		list, err := imagerows.NewStored(f.store.DB).All(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(list, func(f index.StoredFile) bool { return f.Digest == digest && !f.ReleasedAt.IsZero() })
	}
	f.run("the file is released", func() bool { return released(one.Digest) })
	if released(two.Digest) || !slices.Equal(f.objects(), all) {
		t.Errorf("in the grace period the objects are %v, want %v", f.objects(), all)
	}
	again := f.finish(layer.Digest, "one") // needs the file again
	f.run("the file is needed", func() bool { return !released(again.Digest) })

	f.grace = 0
	f.restart(imagerows.NewStored(f.store.DB))
	drop := func(digest string) {
		f.forget(digest)
		f.run("the file is released", func() bool { return released(digest) })
		if !f.Has(digest) {
			t.Error("a file is removed at once")
		}
	}
	drop(one.Digest)
	f.run("the first image is removed", func() bool { return !f.Has(one.Digest) })
	if !slices.Equal(f.objects(), all) { // its configuration is in the database
		t.Errorf("objects %v, want %v, which the other image needs", f.objects(), all)
	}
	drop(two.Digest)
	f.run("both images are removed", func() bool { return !f.Has(two.Digest) && of(layer.Digest) == 0 })
	if of(snap.Digest) == 0 || of(base) == 0 {
		t.Errorf("objects %v, want the objects of the snapshot and of its base", f.objects())
	}
	f.home = "other" // a restored copy of the server
	f.restart(imagerows.NewStored(f.store.DB))
	left := f.objects()
	drop(snap.Digest)
	f.run("the snapshot is removed", func() bool { return !f.Has(snap.Digest) && !f.Has(base) })
	if !slices.Equal(f.objects(), left) {
		t.Errorf("a copy of the server has removed objects of the server: %v, want %v", f.objects(), left)
	}
}

// TestNeededAgain has a file that is due for its removal and that the root filesystem of an archived sandbox needs again, while the index is the same.
func TestNeededAgain(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	f.grace = 0
	f.restart(imagerows.NewStored(f.store.DB))
	base := f.base()
	f.needed = []string{base}
	f.save(base)
	care := f.Care(f.images.Verifier().Files)
	f.needed = nil
	care(t.Context()) // releases
	f.needed = []string{base}
	care(t.Context())
	if !f.Has(base) {
		t.Fatal("the root filesystem of an archived sandbox is removed")
	}
	f.needed = nil
	care = f.Care(f.images.Verifier().Files) // which looks again, as after an hour
	care(t.Context())
	care(t.Context())
	if f.Has(base) || len(f.objects()) > 0 {
		t.Errorf("a root filesystem that no sandbox needs stays: %v", f.objects())
	}
}

// TestOnlyCopyStays loses the image directory, after which no archived sandbox needs a built-in image whose files are in the object store alone.
func TestOnlyCopyStays(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	f.grace = 0
	f.needed = []string{f.base()}
	base := f.needed[0]
	f.save(base)
	f.next()
	f.needed = nil
	care := f.Care(f.images.Verifier().Files)
	twice := func() {
		care(t.Context())
		care(t.Context())
	}
	twice()
	if !f.Has(base) {
		t.Fatal("the only copy of an image is removed")
	}
	f.resolve(base)
	twice()
	if !f.Has(base) {
		t.Fatal("the only copy of a layer is removed")
	}
	f.export(base)
	care = f.Care(f.images.Verifier().Files) // which looks again, as after an hour
	twice()
	if f.Has(base) {
		t.Error("an image stays that is on the disk, and that no sandbox needs")
	}
}

// TestSweep removes objects that a killed server has left.
func TestSweep(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	if err := f.Sweep(t.Context(), time.Now()); err != nil {
		t.Errorf("Sweep() of a bucket that was never used = %v", err)
	}
	done := f.snapshot(f.base(), "a", "a")
	f.save(done.Digest)
	want := f.objects()
	o, err := object.Open(t.Context(), f.url, object.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	other := "images/other/abc/abc0.00000"
	for _, key := range []string{"images/home/abc/abc0.00000", "images/home/abc/abc0.00001", other} {
		if err := o.Put(t.Context(), key, []byte("left")); err != nil {
			t.Fatal(err)
		}
	}
	all := f.objects()
	if err := f.Sweep(t.Context(), time.Now().Add(-time.Hour)); err != nil || !slices.Equal(f.objects(), all) {
		t.Errorf("a sweep removes young objects: %v, %v", f.objects(), err)
	}
	f.taken = errors.New("another server has taken over")
	if err := f.Sweep(t.Context(), time.Now().Add(time.Hour)); !errors.Is(err, f.taken) || !slices.Equal(f.objects(), all) {
		t.Errorf("a sweep of a server that was replaced = %v, and leaves %v", err, f.objects())
	}
	f.taken = nil
	if err := f.Sweep(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := f.objects(); !slices.Equal(got, slices.Sorted(slices.Values(append(want, other)))) {
		t.Errorf("objects %v, want the objects of the images and of the other installation", got)
	}
}
