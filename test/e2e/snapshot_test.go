package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// listing shows every name below the directories of the test with type, mode,
// owner, size, links, target and content.
const listing = `cd / && trees="srv/tree etc/passwd etc/motd usr/share/doc home"
find $trees -printf '%p %M %m %U:%G %l\n' -type f -printf '%p %s bytes\n' 2>/dev/null | LC_ALL=C sort
find $trees -type f -print0 2>/dev/null | LC_ALL=C sort -z | xargs -0 md5sum -- && stat -c 'modified %Y' srv/tree/file # times are kept to the second, rounded`

// changes makes everything that a layer must carry.
const changes = `set -e
mkdir -p /srv/tree/dir /srv/tree/empty "/srv/tree/ü ñ 日本"
echo content > /srv/tree/file; ln /srv/tree/file /srv/tree/hard; ln -s file /srv/tree/soft; ln -s /nowhere /srv/tree/dangling
echo x > "/srv/tree/ü ñ 日本/a	b"
cp /bin/true /srv/tree/setuid; chmod 4755 /srv/tree/setuid; chmod 1777 /srv/tree/empty; chown -R 1234:5678 /srv/tree/dir
dd if=/dev/urandom of=/srv/tree/big bs=1M count=20 2>/dev/null
truncate -s 30M /srv/tree/sparse; printf end | dd of=/srv/tree/sparse bs=1 seek=20M conv=notrunc 2>/dev/null
rm -rf /usr/share/doc/a*; rm -f /etc/motd
mkdir -p /srv/tree/old/deep; echo 1 > /srv/tree/old/deep/f; mv /srv/tree/old /srv/tree/renamed
mv /usr/share/doc /usr/share/doc.old; mkdir /usr/share/doc; echo new > /usr/share/doc/new
touch -d @1234567890 /srv/tree/file`

func asRoot(t *testing.T, s *testserver.Server, ref, line string) string {
	t.Helper()
	res, err := s.Sandboxes.Exec(t.Context(), ref, client.Command{Shell: line, User: "root", Timeout: 10 * time.Minute, MaxOutput: 4 << 20})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("in %s: code %d, %s, %v", ref, res.ExitCode, res.Stderr, err)
	}
	return string(res.Stdout)
}

func TestSnapshotHasAllFiles(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	asRoot(t, s, sb.ID, changes)
	want := asRoot(t, s, sb.ID, listing)
	if !strings.Contains(want, "setuid -rwsr-xr-x 4755") || !strings.Contains(want, "日本") {
		t.Fatalf("the listing lacks what was made:\n%s", want)
	}
	compare := func(name, ref string) {
		t.Helper()
		if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(asRoot(t, s, ref, listing), "\n")); d != "" {
			t.Errorf("%s: the files differ (-want +got):\n%s", name, d)
		}
		if links := asRoot(t, s, ref, "stat -c %h /srv/tree/hard"); links != "2\n" {
			t.Errorf("%s: the hard link has %s links", name, links)
		}
	}
	first, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "all"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("snapshot of a running sandbox: %d bytes, added %d, %d names", first.SizeBytes, first.LayerBytes, first.FileCount)
	if first.LayerBytes < 20<<20 || first.FileCount == 0 || first.SizeBytes <= first.LayerBytes {
		t.Errorf("figures of %+v", first)
	}
	child := s.MustCreate(client.CreateOptions{Snapshot: "all"})
	compare("child", child.ID)

	// Layers upon layers: the child's own snapshot, taken while it is paused.
	asRoot(t, s, child.ID, "rm -rf /srv/tree/renamed /srv/tree/hard; ln /srv/tree/file /srv/tree/hard; echo changed > /srv/tree/dir/new; rm -rf /usr/share/doc.old")
	want = asRoot(t, s, child.ID, listing)
	if _, err := s.Sandboxes.Pause(t.Context(), child.ID); err != nil {
		t.Fatal(err)
	}
	second, err := s.Snapshots.Create(t.Context(), child.ID, client.SnapshotOptions{Name: "all"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Sandboxes.Get(t.Context(), child.ID); err != nil || got.State != client.Paused {
		t.Errorf("the sandbox is %+v, %v, want it paused as before", got, err)
	}
	if second.ParentID != first.ID || second.BaseDigest != first.Digest {
		t.Errorf("second snapshot %+v", second)
	}
	grandchild := s.MustCreate(client.CreateOptions{Snapshot: "all"}) // latest has moved
	compare("grandchild", grandchild.ID)

	// A deleted snapshot that is in use keeps working for its sandboxes.
	for _, ref := range []string{first.ID, second.ID} {
		if err := s.Snapshots.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	s.Kill()
	s.Launch()
	compare("grandchild after a restart", grandchild.ID)
	if _, err := s.Sandboxes.Resume(t.Context(), child.ID, client.ResumeOptions{}); err != nil {
		t.Error(err)
	}
	if lineage, err := s.Snapshots.Lineage(second.ID).Collect(t.Context()); !client.IsCode(err, client.NotFound) {
		t.Errorf("lineage of a deleted snapshot: %v, %v", lineage, err)
	}
}

func TestDamagedSnapshotIsRefused(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	asRoot(t, s, sb.ID, "echo x > /marker")
	sn, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	f, err := os.OpenFile(filepath.Join(s.StateDir, "images", "images", strings.TrimPrefix(sn.Digest, "sha256:")+".erofs"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), sn.SizeBytes/2); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s.Launch()
	if _, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Snapshot: "n", WaitUpTo: 5 * time.Minute}); !client.IsCode(err, client.Unavailable) {
		t.Errorf("a sandbox of a damaged snapshot: %v, want unavailable", err)
	}
}

// TestSnapshotIsALayer checks that a snapshot takes the space of what changed, and keeps a deleted
// snapshot that it lies over.
func TestSnapshotIsALayer(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	asRoot(t, s, sb.ID, "echo 1 > /srv/one; rm -rf /usr/share/doc")
	first, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	again, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "again"})
	t.Logf("a snapshot took %v and %d bytes", time.Since(began), again.SizeBytes)
	if err != nil || again.Digest != first.Digest || first.SizeBytes > 1<<20 {
		t.Errorf("the same snapshot again: %+v, %v, want the digest %s and at most 1 MiB", again, err, first.Digest)
	}
	child := s.MustCreate(client.CreateOptions{Snapshot: "first"})
	asRoot(t, s, child.ID, "test ! -e /usr/share/doc; echo 2 > /srv/two; mkdir /usr/share/doc")
	second, err := s.Snapshots.Create(t.Context(), child.ID, client.SnapshotOptions{Name: "second"})
	if err != nil || second.SizeBytes > 1<<20 || second.FileCount <= first.FileCount {
		t.Errorf("second snapshot: %+v, %v", second, err)
	}
	for _, ref := range []string{"first", "again"} {
		if err := s.Snapshots.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	s.Kill()
	s.Launch()
	if got := asRoot(t, s, s.MustCreate(client.CreateOptions{Snapshot: "second"}).ID, "cat /srv/one /srv/two; ls -A /usr/share/doc"); got != "1\n2\n" {
		t.Errorf("the second snapshot has %q", got)
	}
	files, err := s.Snapshots.Files("second", client.SnapshotFileFilter{Path: "/srv"}).Collect(t.Context())
	if err != nil || len(files) != 2 {
		t.Errorf("files of the second snapshot: %+v, %v", files, err)
	}
}
