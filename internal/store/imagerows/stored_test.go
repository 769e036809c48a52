package imagerows_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/imagerows"
	"github.com/modbox/modbox/internal/store/storetest"
)

func TestStoredFiles(t *testing.T) {
	stored := imagerows.NewStored(storetest.Open(t, filepath.Join(t.TempDir(), "m.db")).DB)
	want := []index.StoredFile{
		{Digest: "sha256:a", Content: "aa", SizeBytes: 5 << 30, Workspace: "ws", By: "home"},
		{Digest: "sha256:b", SizeBytes: 2, By: "home"},
	}
	check := func(when string) {
		t.Helper()
		got, err := stored.All(t.Context())
		slices.SortFunc(got, func(a, b index.StoredFile) int { return strings.Compare(a.Digest, b.Digest) })
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s (-want +got):\n%s%v", when, diff, err)
		}
	}
	blobs := map[string][]byte{"sha256:b": {0, 255}}
	if err := stored.Add(t.Context(), want, blobs); err != nil {
		t.Fatal(err)
	}
	check("after Add")
	if data, err := stored.Blob(t.Context(), "sha256:b"); err != nil || !bytes.Equal(data, []byte{0, 255}) {
		t.Errorf("Blob = %v, %v", data, err)
	}
	if _, err := stored.Blob(t.Context(), "sha256:a"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Blob of a file in the object store = %v, want not_found", err)
	}
	want[0].ReleasedAt = time.Unix(7, 0).UTC()
	if err := stored.Release(t.Context(), []string{"sha256:a"}, want[0].ReleasedAt); err != nil {
		t.Fatal(err)
	}
	check("after Release")
	want[0].DamagedAt = time.Unix(8, 0).UTC()
	if err := stored.Damaged(t.Context(), "sha256:a", want[0].DamagedAt); err != nil {
		t.Fatal(err)
	}
	check("after Damaged")
	want[0].ReleasedAt, want[0].DamagedAt = time.Time{}, time.Time{}
	if err := stored.Add(t.Context(), want[:1], nil); err != nil {
		t.Fatal(err)
	}
	check("after Add again")
	if err := stored.Forget(t.Context(), "sha256:a"); err != nil {
		t.Fatal(err)
	}
	want = want[1:]
	check("after Forget")
}

// TestIndexKeepsStoredImages opens an empty directory with rows of which one image is in the object store, one lacks its root filesystem there, and one is
// nowhere.
func TestIndexKeepsStoredImages(t *testing.T) {
	d := newDirectory(t)
	stored, half, lost := d.image("stored", 1), d.image("half", 2), d.image("lost", 3)
	config := []byte("{}")
	manifest := []byte(`{"schemaVersion":2,"config":{"digest":"` + hash(t, "config").String() + `","size":2},"layers":[]}`)
	of := func(r *index.Record, n string) {
		r.Manifest = archive.Ref{Digest: hash(t, n), Size: int64(len(manifest))}
	}
	of(&stored, "a")
	of(&half, "b")
	rows := d.rows()
	if err := rows.ChangeImages(t.Context(), []index.Record{stored, half, lost}, nil); err != nil {
		t.Fatal(err)
	}
	db := storetest.Open(t, d.database()).DB
	files, blobs := []index.StoredFile{{Digest: stored.Digest, Content: "aa"}}, map[string][]byte{}
	for digest, data := range map[v1.Hash][]byte{stored.Manifest.Digest: manifest, half.Manifest.Digest: manifest, hash(t, "config"): config} {
		files = append(files, index.StoredFile{Digest: digest.String()})
		blobs[digest.String()] = data
	}
	if err := imagerows.NewStored(db).Add(t.Context(), files, blobs); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start finds its descriptor
		ix, err := d.open(rows).Load()
		if err != nil || len(ix.Images) != 1 || ix.Images[0].Name != "stored" {
			t.Fatalf("the index is %+v, %v, want the stored image", ix.Images, err)
		}
		for digest, want := range map[v1.Hash][]byte{stored.Manifest.Digest: manifest, hash(t, "config"): config} {
			if got, err := os.ReadFile(d.path("layout/blobs/sha256/" + digest.Hex)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the blob %s is %q, %v, want %q", digest, got, err, want)
			}
		}
	}
}
