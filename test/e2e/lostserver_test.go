package e2e_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/internal/store/storetest"
)

// TestLostControlServerS3 loses a control server with its disk. Another server, with the same database, bucket and keys, resumes
// the archived sandbox, and a sandbox that was only paused, with their processes, makes a sandbox of its snapshot, and returns the output of a command.
func TestLostControlServerS3(t *testing.T) {
	bucket, cluster := objecttest.Start(t), storetest.StartCluster(t)
	if err := os.Chmod(cluster.Dir, 0o755); err != nil { // for the socket
		t.Fatal(err)
	}
	lost, next := newStateDir(t), newStateDir(t)
	args := []string{"--database-url", cluster.URL("postgres"), "--archive-url", bucket.URL("archive"), "--archive-output", "true", "--archive-images", "true", "--archive-copies", "true"}
	a, b := newControlServer(t, lost, args...), newControlServer(t, next, args...)
	a.launch()
	joinWorker(t, "worker-1", lost, a.workers, b.workers)
	a.active()
	a.buildBusybox()
	sb, err := a.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "app:v1", WaitUpTo: 5 * time.Minute})
	if err != nil || sb.State != client.Running {
		t.Fatalf("create: %+v, %v", sb, err)
	}
	e, err := a.Executions.Start(t.Context(), sb.ID, client.Command{Argv: []string{"/bin/sh", "-c", "echo out; echo err >&2"}}, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the output is in the bucket", func() bool {
		found, _ := filepath.Glob(bucket.Path("archive/output/*/*/*.00000"))
		return len(found) == 2
	})
	a.run(sb.ID, "echo kept >/root-file", time.Minute)
	snapshot, err := a.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the snapshot is in the bucket", func() bool {
		found, _ := filepath.Glob(bucket.Path("archive/images/*/*/" + strings.TrimPrefix(snapshot.Digest, "sha256:") + ".*"))
		return len(found) > 0 && a.metric("modbox_stored_images_waiting") == 0
	})
	paused, err := a.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "app:v1", WaitUpTo: 5 * time.Minute})
	if err != nil || paused.State != client.Running {
		t.Fatalf("create: %+v, %v", paused, err)
	}
	other := a.counting(paused.ID)
	otherBefore := other(a)
	if _, err := a.Sandboxes.Pause(t.Context(), paused.ID); err != nil {
		t.Fatal(err)
	}
	number := a.counting(sb.ID)
	before := number(a)
	if _, err := a.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Sandboxes.Archive(t.Context(), sb.ID); err != nil || got.ArchivedAt == nil {
		t.Fatalf("archive: %+v, %v", got, err)
	}
	if left, _ := filepath.Glob(filepath.Join(lost, "checkpoints", sb.ID, "*")); len(left) > 0 {
		t.Errorf("local files of an archived sandbox: %v", left)
	}

	until(t, "the state of the other sandbox is copied, and its image", func() bool {
		return a.metric("modbox_archive_uncopied_sandboxes") == 0 && a.metric("modbox_stored_images_waiting") == 0
	})
	if kept, _ := filepath.Glob(filepath.Join(lost, "checkpoints", paused.ID, "*")); len(kept) != 1 {
		t.Errorf("local files of a copied state: %v", kept)
	}

	a.end(os.Kill)
	for _, name := range []string{"worker", "token", "secret.key"} { // an operator has copies of them
		if out, err := exec.Command("cp", "-a", filepath.Join(lost, name), next).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.RemoveAll(lost); err != nil {
		t.Fatal(err)
	}
	b.launch()
	b.active()
	got, err := b.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: client.MemoryRequire})
	if err != nil || got.State != client.Running {
		t.Fatalf("resume: %+v, %v", got, err)
	}
	until(t, fmt.Sprintf("the number goes on from %d", before), func() bool { return number(b) > before })
	got, err = b.Sandboxes.Resume(t.Context(), paused.ID, client.ResumeOptions{Memory: client.MemoryRequire})
	if err != nil || got.State != client.Running {
		t.Fatalf("resume of the sandbox that was only paused: %+v, %v", got, err)
	}
	until(t, fmt.Sprintf("the number of the other goes on from %d", otherBefore), func() bool { return other(b) > otherBefore })
	child, err := b.Sandboxes.Create(t.Context(), client.CreateOptions{Snapshot: snapshot.ID, WaitUpTo: 5 * time.Minute})
	if err != nil || child.State != client.Running {
		t.Fatalf("create from the snapshot: %+v, %v", child, err)
	}
	if out := b.run(child.ID, "cat /root-file", time.Minute); string(out.Stdout) != "kept\n" {
		t.Errorf("the file of the snapshot is %q", out.Stdout)
	}
	if again, err := b.Snapshots.Create(t.Context(), child.ID, client.SnapshotOptions{}); err != nil || again.Digest == "" {
		t.Errorf("a snapshot over the fetched one: %+v, %v", again, err)
	}
	if _, err := b.Sandboxes.Delete(t.Context(), child.ID); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]string{e.Stdout.StreamID: "out\n", e.Stderr.StreamID: "err\n"} {
		r, err := b.Streams.Read(t.Context(), id, client.StreamOptions{Follow: true})
		if err != nil {
			t.Fatalf("read the output: %v", err)
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || string(got) != want {
			t.Errorf("output %q, %v, want %q", got, err, want)
		}
	}
	for _, id := range []string{sb.ID, paused.ID} {
		if _, err := b.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}
