package imagearchive_test

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/imagerows"
)

// record returns the record of the stored file with a digest.
func (f *fixture) record(digest string) index.StoredFile {
	f.t.Helper()
	list, err := imagerows.NewStored(f.store.DB).All(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(f index.StoredFile) bool { return f.Digest == digest })
	if i < 0 {
		f.t.Fatalf("no record of %s", digest)
	}
	return list[i]
}

// drop removes the objects of an installation.
func (f *fixture) drop(installation string) {
	f.t.Helper()
	if err := os.RemoveAll(f.path(path.Join("images", installation))); err != nil {
		f.t.Fatal(err)
	}
}

// TestRestoredServerHasItsOwnCopy starts copies of a server with another installation: with the files on the disk, and without. Each stores what the earlier
// installation has stored, which may remove its objects then.
func TestRestoredServerHasItsOwnCopy(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	base := f.base()
	snap := f.snapshot(base, "a", noise(9<<20))
	want := read(t, snap.Path)
	f.save(base, snap.Digest)
	objects := len(f.objects())
	isOf := func(installation string) func() bool {
		return func() bool {
			return f.record(snap.Digest).By == installation && f.record(base).By == installation && len(f.objects()) == 2*objects
		}
	}
	f.home = "second"
	f.restart(imagerows.NewStored(f.store.DB))
	f.run("the files are sent from the disk", isOf("second"))
	f.drop("home")

	f.home = "third"
	f.next()
	f.run("the files are copied in the bucket", isOf("third"))
	if names := f.local(); len(names) > 0 {
		t.Errorf("on the disk: %v, want nothing for a copy in the bucket", names)
	}
	f.drop("second")
	f.next()
	if got := read(t, f.resolve(snap.Digest)); !bytes.Equal(got, want) {
		t.Errorf("the snapshot has %d bytes, and differs from the earlier %d", len(got), len(want))
	}
}

// TestDamagedCopyOfAnotherInstallation stores a file again from a copy in which a part was replaced: the service must not store that part under the digest of the file.
func TestDamagedCopyOfAnotherInstallation(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	snap := f.commitAlone("a", noise(9<<20))
	f.save(snap)
	key := "images/home/" + strings.TrimPrefix(snap, "sha256:")[:3] + "/" + strings.TrimPrefix(snap, "sha256:")
	if err := os.WriteFile(f.path(key+".00000"), read(t, f.path(key+".00001")), 0o600); err != nil {
		t.Fatal(err)
	}
	f.home = "other"
	f.next()
	f.run("the damage is found", func() bool { return !f.record(snap).DamagedAt.IsZero() })
	for _, o := range f.objects() {
		if strings.HasPrefix(o, "images/other/") && strings.Contains(o, strings.TrimPrefix(snap, "sha256:")) {
			t.Errorf("the object %s is of a damaged file", o)
		}
	}
	if by := f.record(snap).By; by != "home" {
		t.Errorf("the damaged file is recorded as stored by %s", by)
	}
}

// TestDamagedCopyIsSentAgain damages a stored file, which a server without the file finds. A server that has the file mends it.
func TestDamagedCopyIsSentAgain(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	snap := f.commitAlone("a", noise(9<<20))
	f.save(snap)
	file := f.resolve(snap)
	f.next()
	all := f.objects()
	for _, key := range all {
		if strings.HasSuffix(key, ".00001") {
			if err := os.WriteFile(f.path(key), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, _, err := f.images.Resolve(t.Context(), snap); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Fatalf("Resolve of a damaged image = %v, want unavailable", err)
	}
	if err := os.WriteFile(filepath.Join(f.dir, "images", filepath.Base(file)), read(t, file), 0o444); err != nil { // as an operator does
		t.Fatal(err)
	}
	f.restart(imagerows.NewStored(f.store.DB))
	f.run("the file is sent again", func() bool { return f.record(snap).DamagedAt.IsZero() })
	if got := f.objects(); !slices.Equal(got, all) {
		t.Errorf("objects %v, want %v", got, all)
	}
	f.next()
	f.resolve(snap)
}
