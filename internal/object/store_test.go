package object_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gocloud.dev/blob"

	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/internal/sandbox"
)

// bucket is a bucket of a test.
type bucket struct {
	url string
	raw objects
	// path returns the file of an object; nil for a service without files.
	path func(key string) string
}

// objects changes objects without a store.
type objects interface {
	ReadAll(ctx context.Context, key string) ([]byte, error)
	WriteAll(ctx context.Context, key string, data []byte, o *blob.WriterOptions) error
	Delete(ctx context.Context, key string) error
}

// inFiles are objects that are files.
type inFiles func(key string) string

func (f inFiles) ReadAll(_ context.Context, key string) ([]byte, error) { return os.ReadFile(f(key)) }

func (f inFiles) WriteAll(_ context.Context, key string, data []byte, _ *blob.WriterOptions) error {
	return os.WriteFile(f(key), data, 0o600)
}

func (f inFiles) Delete(_ context.Context, key string) error { return os.Remove(f(key)) }

// files returns a bucket whose objects are files.
func files(url string, path func(key string) string) bucket { return bucket{url, inFiles(path), path} }

func directory(t *testing.T) bucket {
	dir := t.TempDir()
	return files("file://"+dir, func(key string) string { return filepath.Join(dir, key) })
}

func newKey() *object.Key {
	var k object.Key
	_, _ = rand.Read(k[:]) // never fails
	return &k
}

func open(t *testing.T, url string, key *object.Key) *object.Store {
	t.Helper()
	s, err := object.Open(t.Context(), url, object.Options{Key: key, Create: true, Patience: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// random returns a file's content that cannot be compressed.
func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data) // never fails
	return data
}

// upload sends files, and returns the names of their blobs.
func upload(t *testing.T, s *object.Store, files ...[]byte) ([][]object.Name, object.Counts) {
	t.Helper()
	u, err := s.NewUpload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	var all [][]object.Name
	for _, data := range files {
		names, err := u.File(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, names)
	}
	counts, err := u.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return all, counts
}

// download returns the content of a file.
func download(t *testing.T, s *object.Store, names []object.Name, size int) ([]byte, error) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Download(t.Context(), names, int64(size), f); err != nil {
		return nil, err
	}
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	return io.ReadAll(io.NewSectionReader(f, 0, int64(size)))
}

// each runs a test on a directory, with and without encryption.
func each(t *testing.T, f func(t *testing.T, b bucket, key *object.Key)) {
	t.Run("plain", func(t *testing.T) { f(t, directory(t), nil) })
	t.Run("encrypted", func(t *testing.T) { f(t, directory(t), newKey()) })
}

func TestFilesComeBack(t *testing.T) { each(t, testFilesComeBack) }

func testFilesComeBack(t *testing.T, b bucket, key *object.Key) {
	s := open(t, b.url, key)
	big := random(2*object.ChunkBytes + 100)
	holed := make([]byte, 3*object.ChunkBytes)
	holed[len(holed)/2] = 1
	files := [][]byte{nil, []byte("small"), big, holed, make([]byte, object.ChunkBytes)}
	names, counts := upload(t, s, files...)
	// small, three of big, and of the rest one of zeros and one with a byte
	if want := 1 + 3 + 2; counts.Sent != want || counts.Blobs != 1+3+3+1 {
		t.Errorf("sent %+v, want %d blobs", counts, want)
	}
	for i, want := range files {
		got, err := download(t, s, names[i], len(want))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("file %d of %d bytes: %d bytes, %v", i, len(want), len(got), err)
		}
	}
	changed := bytes.Clone(big)
	changed[object.ChunkBytes+5]++
	if _, counts := upload(t, s, changed, big, []byte("small")); counts.Sent != 1 {
		t.Errorf("after a change of a byte: sent %+v, want one blob", counts)
	}
	if err := s.Download(t.Context(), names[2][:2], int64(len(big)), nil); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a file with too few blobs: %v, want code invalid", err)
	}
}

func TestDamageIsFound(t *testing.T) { each(t, testDamageIsFound) }

func testDamageIsFound(t *testing.T, b bucket, key *object.Key) {
	s := open(t, b.url, key)
	data, other := bytes.Repeat([]byte("some content "), 1000), []byte("other")
	names, _ := upload(t, s, data, other)
	n, m := names[0][0], names[1][0]
	whole, err := b.raw.ReadAll(t.Context(), keyOf(n))
	if err != nil {
		t.Fatal(err)
	}
	otherWhole, err := b.raw.ReadAll(t.Context(), keyOf(m))
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for what, body := range map[string][]byte{
		"empty": {}, "truncated": whole[:len(whole)/2], "without its last byte": whole[:len(whole)-1], "changed": flipped, "another object": otherWhole,
		"too large": random(2 * object.MaxBlob),
	} {
		if err := b.raw.WriteAll(t.Context(), keyOf(n), body, nil); err != nil {
			t.Fatal(err)
		}
		_, err := download(t, s, names[0], len(data))
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), keyOf(n)) {
			t.Errorf("%s: %v, want code invalid and the name of the object", what, err)
		}
		bad := map[object.Name]error{}
		if err := s.Verify(t.Context(), []object.Name{n, m}, func(n object.Name, err error) { bad[n] = err }); err != nil || len(bad) != 1 || bad[n] == nil {
			t.Errorf("%s: Verify = %v, %v, want %s", what, err, bad, n)
		}
	}
	if err := b.raw.Delete(t.Context(), keyOf(n)); err != nil {
		t.Fatal(err)
	}
	if _, err := download(t, s, names[0], len(data)); sandbox.CodeOf(err) != sandbox.NotFound || !strings.Contains(err.Error(), keyOf(n)) {
		t.Errorf("missing: %v, want code not_found and the name of the object", err)
	}
	upload(t, s, data)
	if _, err := download(t, s, names[0], len(data)); err != nil {
		t.Errorf("sent again: %v", err)
	}
}

func keyOf(n object.Name) string { return "blobs/" + n.String()[:2] + "/" + n.String() }

func TestNamedObjects(t *testing.T) { each(t, testNamedObjects) }

func testNamedObjects(t *testing.T, b bucket, key *object.Key) {
	s := open(t, b.url, key)
	for _, name := range []string{"backups/1", "backups/2", "other/1"} {
		if err := s.Put(t.Context(), name, []byte("content of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Get(t.Context(), "backups/1"); err != nil || string(got) != "content of backups/1" {
		t.Errorf("Get = %q, %v", got, err)
	}
	if _, err := s.Get(t.Context(), "backups/3"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Get of nothing = %v, want code not_found", err)
	}
	if diff := cmp.Diff([]string{"backups/1", "backups/2"}, list(t, s, "backups/")); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	for range 2 {
		if err := s.Delete(t.Context(), "backups/1"); err != nil {
			t.Errorf("Delete = %v", err)
		}
	}
	if key == nil {
		return
	}
	swapped, err := b.raw.ReadAll(t.Context(), "backups/2")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(swapped, []byte("content")) {
		t.Error("the object is not encrypted")
	}
	if err := b.raw.WriteAll(t.Context(), "backups/3", swapped, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "backups/3"); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("an object under the name of another: %v, want code invalid", err)
	}
}

func list(t *testing.T, s *object.Store, prefix string) (keys []string) {
	t.Helper()
	err := s.List(t.Context(), prefix, func(o object.Object) error {
		keys = append(keys, o.Key)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestNamesDoNotTellTheContent compares the names of the same content with different keys.
func TestNamesDoNotTellTheContent(t *testing.T) {
	seen := map[object.Name]bool{}
	for _, key := range []*object.Key{nil, newKey(), newKey()} {
		names, _ := upload(t, open(t, directory(t).url, key), []byte("known content"))
		seen[names[0][0]] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d names with three keys", len(seen))
	}
}

func TestBucketsHaveOneKey(t *testing.T) {
	one, two := newKey(), newKey()
	for made, use := range map[*object.Key][]*object.Key{nil: {one}, one: {nil, two}} {
		b := directory(t)
		open(t, b.url, made)
		for _, key := range use {
			if _, err := object.Open(t.Context(), b.url, object.Options{Key: key, Create: true}); sandbox.CodeOf(err) != sandbox.Forbidden {
				t.Errorf("Open with another key = %v, want code forbidden", err)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	empty := t.TempDir()
	newer := directory(t)
	if err := os.WriteFile(newer.path("store.json"), []byte(`{"format":3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]sandbox.Code{
		"":                       sandbox.Invalid,
		"/directory":             sandbox.Invalid,
		"file://host/directory":  sandbox.Invalid,
		"file:///":               sandbox.Invalid,
		"file:///dir?create=1":   sandbox.Invalid,
		"s3://":                  sandbox.Invalid,
		"s3://key:secret@bucket": sandbox.Invalid,
		"s3://bucket?unknown=1":  sandbox.Invalid,
		"s3://bucket?endpoint=https://key:secret@host": sandbox.Invalid,
		"gs://bucket":             sandbox.Invalid,
		"azblob://":               sandbox.Invalid,
		"azblob://c?sas_token=x":  sandbox.Invalid,
		"azblob://c?domain=a@b":   sandbox.Invalid,
		"azblob://c?endpoint=x":   sandbox.Invalid,
		"file://" + empty:         sandbox.NotFound,
		"file://" + empty + "/no": sandbox.Invalid,
		newer.url:                 sandbox.Unsupported,
	} {
		if _, err := object.Open(t.Context(), url, object.Options{}); sandbox.CodeOf(err) != want {
			t.Errorf("Open(%q) = %v, want code %s", url, err, want)
		}
	}
}

func TestReadKey(t *testing.T) {
	dir := t.TempDir()
	good := base64.StdEncoding.EncodeToString(random(32)) + "\n"
	for name, c := range map[string]struct {
		text string
		mode fs.FileMode
		ok   bool
	}{
		"good": {good, 0o600, true}, "readable": {good, 0o644, false}, "short": {good[:20], 0o600, false}, "empty": {"", 0o600, false}, "text": {strings.Repeat("?", 44), 0o600, false},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := object.ReadKey(path); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		} else if err != nil && c.text != "" && strings.Contains(err.Error(), strings.TrimSpace(c.text)) {
			t.Errorf("%s: the error has the key: %v", name, err)
		}
	}
	if _, err := object.ReadKey(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// age makes the objects in a directory older.
func age(t *testing.T, b bucket, by time.Duration) {
	t.Helper()
	err := filepath.WalkDir(b.path(""), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		at := info.ModTime().Add(-by)
		return os.Chtimes(name, at, at)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCollectRemovesWhatIsOldAndUnused(t *testing.T) {
	b := directory(t)
	s := open(t, b.url, nil)
	names, _ := upload(t, s, []byte("used"), []byte("unused"))
	if err := s.Put(t.Context(), "backups/1", []byte("x")); err != nil {
		t.Fatal(err)
	}
	stray := b.path("blobs/aa/" + strings.Repeat("a", 64) + ".1.tmp") // of a write that was killed
	if err := os.MkdirAll(filepath.Dir(stray), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{stray, b.path("leases/upload-killed")} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("{}"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	age(t, b, 25*time.Hour)
	young, _ := upload(t, s, []byte("young"))
	reachable := func(context.Context) (map[object.Name]bool, error) {
		return map[object.Name]bool{names[0][0]: true}, nil
	}
	broken := errors.New("broken")
	if _, err := s.Collect(t.Context(), 24*time.Hour, func(context.Context) (map[object.Name]bool, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("Collect without knowledge = %v", err)
	}
	c, err := s.Collect(t.Context(), 24*time.Hour, reachable)
	if err != nil || c.Removed != 1 || c.Kept != 1 || c.Young != 1 || c.RemovedBytes == 0 {
		t.Errorf("Collect = %+v, %v", c, err)
	}
	want := []string{"backups/1", keyOf(names[0][0]), keyOf(young[0][0]), "store.json"}
	slices.Sort(want)
	if diff := cmp.Diff(want, list(t, s, "")); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestUploadsAndCollectionsExcludeEachOther(t *testing.T) {
	s := open(t, directory(t).url, nil)
	u, err := s.NewUpload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.NewUpload(t.Context())
	if err != nil {
		t.Fatalf("a second upload: %v", err)
	}
	none := func(context.Context) (map[object.Name]bool, error) { return nil, nil }
	if _, err := s.Collect(t.Context(), 0, none); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Collect during an upload = %v, want code unavailable", err)
	}
	u.Close()
	other.Close()
	_, err = s.Collect(t.Context(), 0, func(ctx context.Context) (map[object.Name]bool, error) {
		if _, err := s.NewUpload(ctx); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("an upload during Collect: %v, want code unavailable", err)
		}
		if _, err := s.Collect(ctx, 0, none); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("Collect during Collect: %v, want code unavailable", err)
		}
		return nil, nil
	})
	if err != nil {
		t.Errorf("Collect = %v", err)
	}
	if left := list(t, s, "leases/"); len(left) > 0 {
		t.Errorf("leases left: %v", left)
	}
}

// TestCollectionsAndUploadsAtTheSameTime loses no blob that an upload has reported.
func TestCollectionsAndUploadsAtTheSameTime(t *testing.T) {
	s := open(t, directory(t).url, nil)
	var mu sync.Mutex
	used := map[object.Name]bool{}
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for round := range 25 {
				u, err := s.NewUpload(t.Context())
				if sandbox.CodeOf(err) == sandbox.Unavailable {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				data := fmt.Appendf(nil, "content %d", (i+round)%5) // others send the same
				names, err := u.File(bytes.NewReader(data), int64(len(data)))
				if _, werr := u.Wait(); err != nil || werr != nil {
					t.Error(err, werr)
				}
				mu.Lock()
				for _, n := range names {
					used[n] = true
				}
				mu.Unlock()
				u.Close()
			}
		})
	}
	for range 2 {
		group.Go(func() {
			for range 25 {
				_, err := s.Collect(t.Context(), 0, func(context.Context) (map[object.Name]bool, error) {
					mu.Lock()
					defer mu.Unlock()
					return maps.Clone(used), nil
				})
				if err != nil && sandbox.CodeOf(err) != sandbox.Unavailable {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	err := s.Verify(t.Context(), slices.Collect(maps.Keys(used)), func(n object.Name, err error) { t.Errorf("%s: %v", n, err) })
	if err != nil {
		t.Error(err)
	}
}

func TestUploadThatIsInterrupted(t *testing.T) {
	s := open(t, directory(t).url, nil)
	data := random(3 * object.ChunkBytes)
	u, err := s.NewUpload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cut := errors.New("cut")
	if _, err := u.File(io.MultiReader(bytes.NewReader(data[:2*object.ChunkBytes]), failing{cut}), int64(len(data))); !errors.Is(err, cut) {
		t.Errorf("File = %v", err)
	}
	if _, err := u.Wait(); err != nil {
		t.Errorf("Wait = %v", err)
	}
	u.Close()
	if _, counts := upload(t, s, data); counts.Sent != 1 {
		t.Errorf("the next upload: %+v, want one blob", counts)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if u, err = s.NewUpload(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	more := random(8 * object.ChunkBytes)
	_, err = u.File(bytes.NewReader(more), int64(len(more)))
	if _, werr := u.Wait(); !errors.Is(errors.Join(err, werr), context.Canceled) {
		t.Errorf("after its context ended: %v, %v", err, werr)
	}
	u.Close()
	if left := list(t, s, "leases/"); len(left) > 0 {
		t.Errorf("leases left: %v", left)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// all runs the tests above on a real server, below a prefix each.
func all(t *testing.T, at func(prefix string) bucket) {
	for name, f := range map[string]func(*testing.T, bucket, *object.Key){"filesComeBack": testFilesComeBack, "damageIsFound": testDamageIsFound, "namedObjects": testNamedObjects} {
		for kind, key := range map[string]*object.Key{"plain": nil, "encrypted": newKey()} {
			t.Run(name+"/"+kind, func(t *testing.T) { f(t, at(name+"/"+kind), key) })
		}
	}
}

func TestS3(t *testing.T) {
	server := objecttest.Start(t)
	all(t, func(prefix string) bucket {
		return files(server.URL(prefix), func(key string) string { return server.Path(prefix + "/" + key) })
	})
}
