package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/test/testserver"
)

// TestImagesInS3 kills a server while it stores snapshots in a real S3 server. The next stores all of them, and makes sandboxes of them without
// the image directory.
func TestImagesInS3(t *testing.T) {
	bucket := objecttest.Start(t)
	s := testserver.StartSmall(t, "--archive-url", bucket.URL("archive"), "--archive-images", "true")
	stored := func(digest string) []string { // parts of a root filesystem
		found, err := filepath.Glob(bucket.Path("archive/images/*/*/" + strings.TrimPrefix(digest, "sha256:") + ".*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	const sums = "sha256sum /big* 2>&1"
	sum := func(id string) string {
		t.Helper()
		res := s.Bash(id, sums, time.Minute)
		if res.ExitCode != 0 {
			t.Fatalf("%s: %s", sums, res.Stdout)
		}
		return string(res.Stdout)
	}
	sb := s.MustCreate(client.CreateOptions{Image: image})
	want := map[string]string{} // sums by snapshot
	var last *client.Snapshot
	for round := range 3 {
		if res := s.Bash(sb.ID, fmt.Sprintf("head -c 20000000 /dev/urandom >/big%d", round), time.Minute); res.ExitCode != 0 {
			t.Fatalf("write: %s", res.Stderr)
		}
		sn, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		last, want[sn.ID] = sn, sum(sb.ID)
		until(t, "a part is stored", func() bool { return len(stored(sn.Digest)) > 0 })
		s.Kill()
		s.Launch()
	}
	until(t, "all is stored", func() bool { return len(stored(last.Digest)) > 4 && s.Metric("modbox_stored_images_waiting") == 0 })
	if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}

	s.Kill()
	images := filepath.Join(s.StateDir, "images")
	if err := os.Rename(images, images+".lost"); err != nil {
		t.Fatal(err)
	}
	part := stored(last.Digest)[0]
	if err := os.Rename(part, part+".away"); err != nil {
		t.Fatal(err)
	}
	s.Launch()
	if n := s.Metric(`modbox_stored_images_moved_bytes_total{direction="fetched"}`); n != 0 {
		t.Errorf("%v bytes are fetched before a sandbox needs them", n)
	}
	failed, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Snapshot: last.ID, WaitUpTo: 5 * time.Minute})
	if err != nil || failed.Cause == nil || failed.Cause.Code != "image" || !strings.Contains(failed.Cause.Message, "damaged in the object store") {
		t.Errorf("create from a snapshot without a part = %+v, %v, want the cause image", failed, err)
	}
	if err := os.Rename(part+".away", part); err != nil {
		t.Fatal(err)
	}
	for id, text := range want {
		child := s.MustCreate(client.CreateOptions{Snapshot: id})
		if got := sum(child.ID); got != text {
			t.Errorf("the files of a snapshot are\n%swant\n%s", got, text)
		}
		if _, err := s.Sandboxes.Delete(t.Context(), child.ID); err != nil {
			t.Error(err)
		}
	}
	if n := s.Metric(`modbox_stored_images_moved_bytes_total{direction="sent"}`); n != 0 {
		t.Errorf("%v bytes are sent again", n)
	}
}
