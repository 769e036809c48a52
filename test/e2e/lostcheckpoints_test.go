package e2e_test

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/internal/store/storetest"
)

// killProcessesNaming kills the processes that name a word on their command line, and reports how many there were.
func killProcessesNaming(t *testing.T, word string) (n int) {
	t.Helper()
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), word) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if p, err := os.FindProcess(pid); err == nil && p.Kill() == nil {
			n++
		}
	}
	return n
}

// TestLostCheckpointsS3 kills a control server while it has sent a checkpoint and not recorded that, and then loses it with its disk, and with a running sandbox. Another server, which is killed while it
// fetches, has the lost sandbox go on from its automatic checkpoint, and takes the other sandbox back to its named checkpoint.
func TestLostCheckpointsS3(t *testing.T) {
	bucket, cluster := objecttest.Start(t), storetest.StartCluster(t)
	proxy := bucket.Proxy(t)
	if err := os.Chmod(cluster.Dir, 0o755); err != nil { // for the socket
		t.Fatal(err)
	}
	lost, next := newStateDir(t), newStateDir(t)
	args := []string{"--database-url", cluster.URL("postgres"), "--archive-url", proxy.URL("archive"), "--archive-images", "true", "--archive-copies", "true"}
	a, b := newControlServer(t, lost, args...), newControlServer(t, next, args...)
	a.launch()
	joinWorker(t, "worker-1", lost, a.workers, b.workers)
	a.active()
	a.buildBusybox()
	create := func(interval time.Duration) string {
		t.Helper()
		sb, err := a.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "app:v1", CheckpointInterval: interval, WaitUpTo: 5 * time.Minute})
		if err != nil || sb.State != client.Running {
			t.Fatalf("create: %+v, %v", sb, err)
		}
		return sb.ID
	}
	automatic, named := create(time.Minute), create(0)
	number, other := a.counting(automatic), a.counting(named)
	a.run(automatic, "echo kept >/state", time.Minute)
	a.run(named, "echo kept >/state", time.Minute)
	if n := other(a); n == 0 {
		t.Errorf("the number is %d", n)
	}

	db, err := sql.Open("pgx", cluster.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "LOCK TABLE archives IN EXCLUSIVE MODE"); err != nil { // reads go on
		t.Fatal(err)
	}
	cp, err := a.Sandboxes.Checkpoints.Create(t.Context(), named, "c")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the description of the checkpoint is in the bucket", func() bool {
		_, err := os.Stat(bucket.Path("archive/archives/" + cp.ID))
		return err == nil
	})
	a.end(os.Kill)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	a.launch()
	a.active()
	until(t, "the automatic checkpoint is made, and both are copied", func() bool {
		sb, err := a.Sandboxes.Get(t.Context(), automatic)
		return err == nil && sb.LastCheckpointAt != nil && a.metric("modbox_archive_uncopied_checkpoints") == 0 && a.metric("modbox_stored_images_waiting") == 0
	})
	before := number(a)
	a.run(named, "echo later >/state", time.Minute)

	a.end(os.Kill)
	for _, name := range []string{"worker", "token", "secret.key"} { // an operator has copies of them
		if out, err := exec.Command("cp", "-a", filepath.Join(lost, name), next).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.RemoveAll(lost); err != nil {
		t.Fatal(err)
	}
	if n := killProcessesNaming(t, automatic); n == 0 {
		t.Fatal("the sandbox has no processes")
	}
	proxy.Block("/blobs/")
	b.launch()
	b.active()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		if _, err := b.Sandboxes.Checkpoints.Restore(ctx, named, "c"); err == nil {
			t.Error("a restore of what cannot be fetched succeeds")
		}
	}()
	parts := func(id string) []string {
		found, _ := filepath.Glob(filepath.Join(next, "checkpoints", id, ".new-*"))
		return found
	}
	until(t, "both fetches wait for the bucket", func() bool { return len(parts(named)) == 1 && len(parts(automatic)) == 1 })
	b.end(os.Kill)
	leave()
	<-left
	proxy.Block()
	b.launch()
	b.active()
	until(t, "the lost sandbox goes on from its checkpoint", func() bool {
		events, err := b.Sandboxes.Events(automatic, client.EventsOptions{}).Collect(t.Context())
		return err == nil && slices.ContainsFunc(events, func(e client.Event) bool { return e.Type == "rolled_back" })
	})
	if out := b.run(automatic, "cat /state", time.Minute); string(out.Stdout) != "kept\n" {
		t.Errorf("the file of the lost sandbox is %q", out.Stdout)
	}
	until(t, "its number goes on", func() bool { return number(b) > before })
	sb, err := b.Sandboxes.Checkpoints.Restore(t.Context(), named, "c")
	if err != nil || sb.State != client.Running {
		t.Fatalf("restore: %+v, %v", sb, err)
	}
	if out := b.run(named, "cat /state", time.Minute); string(out.Stdout) != "kept\n" {
		t.Errorf("the file of the named checkpoint is %q", out.Stdout)
	}
	for _, id := range []string{named, automatic} {
		until(t, "nothing of the interrupted fetch remains", func() bool { return len(parts(id)) == 0 })
		if _, err := b.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// TestFetchedCheckpointS3 takes a sandbox of a server without workers back to a checkpoint whose files were lost, with memory.
func TestFetchedCheckpointS3(t *testing.T) {
	bucket := objecttest.Start(t)
	a := startArchivingAt(t, bucket.URL("archive"), "--archive-copies", "true")
	cp, err := a.Sandboxes.Checkpoints.Create(t.Context(), a.id, "c")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the checkpoint is copied", func() bool { return a.Metric("modbox_archive_uncopied_checkpoints") == 0 })
	if list, err := a.Sandboxes.Checkpoints.List(a.id).Collect(t.Context()); err != nil || len(list) != 1 || list[0].CopiedAt == nil {
		t.Errorf("checkpoints %+v, %v, want one with a copy", list, err)
	}
	a.Bash(a.id, "rm ~/big; pkill sleep", time.Minute)
	a.Kill()
	if err := os.RemoveAll(filepath.Join(a.StateDir, "checkpoints", a.id)); err != nil {
		t.Fatal(err)
	}
	a.Launch()
	description := bucket.Path("archive/archives/" + cp.ID)
	if err := os.Rename(description, description+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Sandboxes.Checkpoints.Restore(t.Context(), a.id, "c"); !client.IsCode(err, client.Unavailable) {
		t.Errorf("restore without the copy = %v, want unavailable", err)
	}
	if res := a.Bash(a.id, "echo runs", time.Minute); string(res.Stdout) != "runs\n" {
		t.Errorf("after a restore that failed the sandbox answers %q", res.Stdout)
	}
	if err := os.Rename(description+".away", description); err != nil {
		t.Fatal(err)
	}
	if sb, err := a.Sandboxes.Checkpoints.Restore(t.Context(), a.id, "c"); err != nil || sb.State != client.Running {
		t.Fatalf("restore: %+v, %v", sb, err)
	}
	a.goesOn(t, a.id)
}
