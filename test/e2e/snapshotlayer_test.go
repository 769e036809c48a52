package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// imported gives a server an image of its operator: the files of modbox/base with another name.
func imported(t *testing.T, s *testserver.Server) *client.Image {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	for _, args := range [][]string{
		{"images", "export", "modbox/base", file, "--state-dir", s.StateDir}, {"images", "import", file, "--name", "mine:v1", "--state-dir", s.StateDir},
	} {
		if _, errOut, code := run(t, s, "", args...); code != 0 {
			t.Fatalf("modbox %v = %d %q", args, code, errOut)
		}
	}
	img, err := s.Images.Get(t.Context(), "mine:v1")
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestSnapshotOverAnImportedImage checks that a snapshot over an imported image takes the space of what changed, that the image
// counts once for the quota, and that its files stay for as long as a snapshot needs them.
func TestSnapshotOverAnImportedImage(t *testing.T) {
	s := testserver.StartSmall(t)
	img := imported(t, s)
	workspaces, err := s.Workspaces.List().Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ws := workspaces[0].ID
	used := func() client.DiskUse {
		t.Helper()
		q, err := s.Workspaces.Quota(t.Context(), ws)
		if err != nil {
			t.Fatal(err)
		}
		return q.Used.DiskBy
	}
	sb := s.MustCreate(client.CreateOptions{Image: "mine:v1"})
	asRoot(t, s, sb.ID, "echo 1 > /srv/one; rm -rf /usr/share/doc /etc/motd; mkdir /usr/share/doc; touch -d @1234567890 /srv/one /srv /usr /usr/share /usr/share/doc")
	want := asRoot(t, s, sb.ID, everything)
	before := used()
	limit := func(bytes int64) {
		t.Helper()
		if _, err := s.Workspaces.SetQuota(t.Context(), ws, client.Quota{Disk: fmt.Sprint(bytes)}); err != nil {
			t.Fatal(err)
		}
	}
	limit(before.SandboxBytes + before.SnapshotBytes + before.StreamBytes + before.ImageBytes + before.BuildCacheBytes + img.SizeBytes)
	if _, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "n"}); !client.IsCode(err, client.QuotaExceeded) || !strings.Contains(err.Error(), "quota of disk") {
		t.Errorf("a snapshot that does not fit with the image below: %v, want quota_exceeded and the name of the quota", err)
	}
	if got := used().SnapshotBytes; got != before.SnapshotBytes {
		t.Errorf("after a refusal the snapshots take %d bytes, want %d", got, before.SnapshotBytes)
	}
	limit(0)
	began := time.Now()
	first, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "first"})
	if err != nil || first.SizeBytes > 1<<20 {
		t.Fatalf("snapshot of %d bytes, %v, want at most 1 MiB", first.SizeBytes, err)
	}
	t.Logf("a snapshot over an image of %d bytes took %v and %d bytes", img.SizeBytes, time.Since(began), first.SizeBytes)
	asRoot(t, s, sb.ID, "echo 2 > /srv/one")
	second, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "second"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := used().SnapshotBytes, img.SizeBytes+first.SizeBytes+second.SizeBytes; got != want {
		t.Errorf("two snapshots over the image count with %d bytes, want %d", got, want)
	}
	if _, errOut, code := run(t, s, "", "images", "rm", "mine:v1", "--state-dir", s.StateDir); code != 0 {
		t.Fatal(errOut)
	}
	if _, err := s.Images.Prune(t.Context(), client.ImagePruneOptions{All: true}); err != nil {
		t.Fatal(err)
	}
	killedInTheMiddle(t, s, sb.ID)
	child := s.MustCreate(client.CreateOptions{Snapshot: "first"})
	if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(asRoot(t, s, child.ID, everything), "\n")); d != "" {
		t.Errorf("files of the snapshot (-want +got):\n%s", d)
	}
	for _, ref := range []string{child.ID, sb.ID} {
		if _, err := s.Sandboxes.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	snapshots, err := s.Snapshots.List(client.SnapshotFilter{}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sn := range snapshots {
		if err := s.Snapshots.Delete(t.Context(), sn.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got := used().SnapshotBytes; got != 0 {
		t.Errorf("without snapshots they take %d bytes", got)
	}
	afterAnHour(t, s)
	file := rootFile(s, img.Digest)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := os.Stat(file); os.IsNotExist(err) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the files of the removed image are there without a snapshot")
		}
	}
}

// killedInTheMiddle kills a server while it makes snapshots of a sandbox, and starts the next. Each snapshot is there and
// works, or nothing of it counts.
func killedInTheMiddle(t *testing.T, s *testserver.Server, id string) {
	t.Helper()
	before, err := s.Snapshots.List(client.SnapshotFilter{}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		asRoot(t, s, id, "head -c 20M /dev/urandom > /srv/large")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := s.Snapshots.Create(ctx, id, client.SnapshotOptions{Name: "killed"})
			done <- err
		}()
		select {
		case <-done:
		case <-time.After(time.Duration(n+1) * 100 * time.Millisecond): // another point of the work each time
		}
		s.Kill()
		cancel()
		s.Launch()
	}
	after, err := s.Snapshots.List(client.SnapshotFilter{}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of 3 snapshots were complete before the kill", len(after)-len(before))
	if _, err := s.Snapshots.Create(t.Context(), id, client.SnapshotOptions{Name: "last"}); err != nil {
		t.Errorf("after the kill: %v", err)
	}
	for _, sn := range after[:min(1, len(after)-len(before))] {
		sb := s.MustCreate(client.CreateOptions{Snapshot: sn.ID})
		asRoot(t, s, sb.ID, "test $(stat -c %s /srv/large) = 20971520")
		if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil { // it needs the image below
			t.Fatal(err)
		}
	}
}

// afterAnHour restarts a server as if all images had been made and used long before.
func afterAnHour(t *testing.T, s *testserver.Server) {
	t.Helper()
	s.Stop()
	database(t, s, "UPDATE images SET updated_at = 1000000000")
	uses, err := filepath.Glob(filepath.Join(s.StateDir, "images", "used", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range uses {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	s.Launch()
}
