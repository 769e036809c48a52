package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/object/objecttest"
)

// TestInterruptedFetchesS3 fetches the state of an archived sandbox and the files of a snapshot for a client who leaves, for a sandbox that is deleted,
// in a server that is killed meanwhile, and to a disk that is too full. No file remains of these fetches, and the next fetches succeed.
func TestInterruptedFetchesS3(t *testing.T) {
	bucket := objecttest.Start(t)
	proxy := bucket.Proxy(t)
	settings := []string{"--archive-images", "true", "--archive-url", proxy.URL("archive")}
	a := startArchivingAt(t, proxy.URL("archive"), settings...)
	snapshot, err := a.Snapshots.Create(t.Context(), a.id, client.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the snapshot is stored", func() bool {
		found, _ := filepath.Glob(bucket.Path("archive/images/*/*/" + strings.TrimPrefix(snapshot.Digest, "sha256:") + ".*"))
		return len(found) > 0 && a.Metric("modbox_stored_images_waiting") == 0
	})
	a.pause(t)
	a.archive(t)
	a.Kill()
	images := filepath.Join(a.StateDir, "images")
	if err := os.Rename(images, images+".lost"); err != nil {
		t.Fatal(err)
	}
	a.Launch()
	under := func(pattern string) []string {
		found, err := filepath.Glob(filepath.Join(a.StateDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	parts := func() (state, image []string) {
		return under("checkpoints/" + a.id + "/.new-*"), under("images/tmp/*/fetched")
	}
	ended := func(what string) {
		t.Helper()
		until(t, what, func() bool {
			state, image := parts()
			return len(state)+len(image)+proxy.Waiting() == 0
		})
	}
	begin := func(fetch func(ctx context.Context) error) (leave func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := fetch(ctx); err == nil {
				t.Error("a fetch of what cannot be read succeeds")
			}
		}()
		return func() { cancel(); <-done }
	}
	diff := func(ctx context.Context) error { _, err := a.Sandboxes.Files.Diff(a.id, "/").Collect(ctx); return err }
	create := func(wait time.Duration) *client.Sandbox {
		t.Helper()
		sb, err := a.Sandboxes.Create(t.Context(), client.CreateOptions{Snapshot: snapshot.ID, WaitUpTo: wait})
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	proxy.Block("/blobs/")
	leave := begin(diff)
	until(t, "the fetch of the state waits for the bucket", func() bool { state, _ := parts(); return proxy.Waiting() > 0 && len(state) > 0 })
	leave()
	ended("the fetch of the state ends when its client has left, and leaves nothing")
	if sb, err := a.Sandboxes.Get(t.Context(), a.id); err != nil || sb.ArchivedAt == nil || sb.State != client.Paused {
		t.Errorf("after an abandoned fetch the sandbox is %+v, %v", sb, err)
	}
	proxy.Block("/images/")
	sb := create(0) // does not wait for the bucket
	until(t, "the fetch of the snapshot waits for the bucket", func() bool { _, image := parts(); return proxy.Waiting() > 0 && len(image) > 0 })
	if _, err := a.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	ended("the fetch of the snapshot ends with its sandbox, and leaves nothing")

	proxy.Block("/blobs/", "/images/")
	leave = begin(diff)
	create(0)
	until(t, "both fetches wait for the bucket", func() bool { state, image := parts(); return len(state) > 0 && len(image) > 0 })
	a.Kill()
	leave()
	proxy.Block()
	a.SetArgs(append(settings, "--min-free-disk", "1000Ti", "--disk-evict-below", "64Mi")...)
	a.Launch()
	ended("a server that was killed leaves nothing")
	if err := diff(t.Context()); !client.IsCode(err, client.Unavailable) || !strings.Contains(err.Error(), "disk") {
		t.Errorf("the fetch of a state to a disk with less than min_free_disk = %v, want unavailable", err)
	}
	if sb := create(5 * time.Minute); sb.Cause == nil || sb.Cause.Code != "image" || !strings.Contains(sb.Cause.Message, "disk") {
		t.Errorf("a sandbox of a snapshot that does not fit is %+v, want the cause image", sb)
	}
	ended("a fetch that does not fit leaves nothing")

	a.Kill()
	a.SetArgs(settings...)
	a.Launch()
	a.goesOn(t, a.id)
	child := a.MustCreate(client.CreateOptions{Snapshot: snapshot.ID})
	if res := a.Bash(child.ID, "sha256sum < ~/big", time.Minute); string(res.Stdout) != a.sum {
		t.Errorf("the snapshot has %q, want %q", res.Stdout, a.sum)
	}
}
