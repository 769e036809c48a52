package e2e_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/test/testserver"
)

// archiving is a server with an object store, in a directory if bucket is set, and a sandbox with a process and a file of random bytes.
type archiving struct {
	*testserver.Server
	bucket, id, sum string
}

func startArchiving(t *testing.T, settings ...string) *archiving {
	t.Helper()
	bucket := filepath.Join(t.TempDir(), "bucket")
	a := startArchivingAt(t, "file://"+bucket, settings...)
	a.bucket = bucket
	return a
}

func startArchivingAt(t *testing.T, url string, settings ...string) *archiving {
	t.Helper()
	a := &archiving{Server: testserver.StartSmall(t, append(settings, "--archive-url", url)...)}
	a.id = a.MustCreate(client.CreateOptions{Image: image}).ID
	res := a.Bash(a.id, "head -c 30000000 /dev/urandom > ~/big; sha256sum < ~/big; (sleep 1000 >/dev/null 2>&1 &)", time.Minute)
	if a.sum = string(res.Stdout); res.ExitCode != 0 || a.sum == "" {
		t.Fatalf("prepare the sandbox: %+v", res)
	}
	return a
}

func (a *archiving) pause(t *testing.T) {
	t.Helper()
	if sb, err := a.Sandboxes.Pause(t.Context(), a.id); err != nil || sb.State != client.Paused || sb.ArchivedAt != nil {
		t.Fatalf("pause = %+v, %v", sb, err)
	}
}

func (a *archiving) archive(t *testing.T) {
	t.Helper()
	if sb, err := a.Sandboxes.Archive(t.Context(), a.id); err != nil || sb.State != client.Paused || sb.ArchivedAt == nil {
		t.Fatalf("archive = %+v, %v", sb, err)
	}
	if left := a.local(t); len(left) > 0 {
		t.Errorf("local files of an archived sandbox: %v", left)
	}
}

// local returns what is on the disk of the server of the paused sandbox.
func (a *archiving) local(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(a.StateDir, "checkpoints", a.id, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// goesOn checks that the sandbox has its file and its process.
func (a *archiving) goesOn(t *testing.T, id string) {
	t.Helper()
	res := a.Bash(id, "sha256sum < ~/big; pgrep -x sleep >/dev/null && echo running", time.Minute)
	if got, want := string(res.Stdout), a.sum+"running\n"; got != want {
		t.Errorf("the sandbox has %q %q, want %q", got, res.Stderr, want)
	}
}

// until waits until ok is true.
func (a *archiving) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s; log:\n%s", what, a.Log())
		}
	}
}

func (a *archiving) events(t *testing.T) (types []string) {
	t.Helper()
	list, err := a.Sandboxes.Events(a.id, client.EventsOptions{}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		types = append(types, string(e.Type))
	}
	return types
}

// TestArchive archives a sandbox, and brings it back by everything that needs its state.
func TestArchive(t *testing.T) {
	a := startArchiving(t)
	if _, err := a.Sandboxes.Archive(t.Context(), a.id); !client.IsCode(err, client.Conflict) {
		t.Errorf("archive of a running sandbox = %v, want code conflict", err)
	}
	a.pause(t)
	a.archive(t)
	a.archive(t) // does nothing
	a.goesOn(t, a.id)
	if got := strings.Join(a.events(t), " "); !strings.Contains(got, "paused archived fetched resuming resumed") {
		t.Errorf("events %s", got)
	}
	for what, use := range map[string]func() error{
		"fork": func() error {
			forks, err := a.Sandboxes.Fork(t.Context(), a.id, client.ForkOptions{})
			if err == nil && forks[0].Err == nil {
				a.goesOn(t, forks[0].Sandbox.ID)
			}
			return err
		},
		"diff": func() error {
			_, err := a.Sandboxes.Files.Diff(a.id, "/root").Collect(t.Context())
			return err
		},
		"checkpoint": func() error {
			if _, err := a.Sandboxes.Checkpoints.Create(t.Context(), a.id, "c"); err != nil {
				return err
			}
			return a.Sandboxes.Checkpoints.Delete(t.Context(), a.id, "c") // its files are not archived
		},
		"snapshot": func() error {
			_, err := a.Snapshots.Create(t.Context(), a.id, client.SnapshotOptions{Name: "archived"})
			return err
		},
		"resume": func() error {
			_, err := a.Sandboxes.Resume(t.Context(), a.id, client.ResumeOptions{Memory: client.MemoryRequire})
			return err
		},
		"restart": func() error {
			a.Stop()
			a.Launch()
			return nil
		},
	} {
		if sb, err := a.Sandboxes.Get(t.Context(), a.id); err != nil {
			t.Fatal(err)
		} else if sb.State == client.Running {
			a.pause(t)
		}
		if sb, err := a.Sandboxes.Archive(t.Context(), a.id); err != nil || sb.ArchivedAt == nil {
			t.Fatalf("archive before %s = %+v, %v", what, sb, err)
		}
		if err := use(); err != nil {
			t.Errorf("%s of an archived sandbox: %v", what, err)
		}
		if sb, err := a.Sandboxes.Get(t.Context(), a.id); err != nil || (sb.ArchivedAt != nil) != (what == "restart") {
			t.Errorf("after %s: %+v, %v", what, sb, err)
		}
		a.goesOn(t, a.id)
	}
	// The state of a sandbox that ended stays, for a database from a backup of before.
	a.pause(t)
	a.archive(t)
	if _, err := a.Sandboxes.Delete(t.Context(), a.id); err != nil {
		t.Fatal(err)
	}
}

// TestArchiveWithoutObjectStore names the setting.
func TestArchiveWithoutObjectStore(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Archive(t.Context(), sb.ID); !client.IsCode(err, client.Unsupported) || !strings.Contains(err.Error(), "archive.url") {
		t.Errorf("archive = %v, want unsupported, naming archive.url", err)
	}
}

// TestDamagedArchive damages a blob of the random file: the sandbox stays paused and archived, and comes back when the blob does.
func TestDamagedArchive(t *testing.T) {
	a := startArchiving(t)
	a.pause(t)
	a.archive(t)
	blobs, err := filepath.Glob(filepath.Join(a.bucket, "blobs", "*", "*"))
	if err != nil || len(blobs) == 0 {
		t.Fatalf("blobs %v, %v", blobs, err)
	}
	// Programs, which the server has, and memory are compressed.
	size := func(name string) int64 {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	blob := slices.MaxFunc(blobs, func(a, b string) int { return cmp.Compare(size(a), size(b)) })
	right, err := os.ReadFile(blob)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(blob, right[:len(right)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Sandboxes.Resume(t.Context(), a.id, client.ResumeOptions{}); !client.IsCode(err, client.Unsupported) {
		t.Errorf("resume from a damaged object = %v, want unsupported", err)
	}
	if sb, err := a.Sandboxes.Get(t.Context(), a.id); err != nil || sb.State != client.Paused || sb.ArchivedAt == nil || len(a.local(t)) > 0 {
		t.Errorf("after that: %+v, %v, local %v", sb, err, a.local(t))
	}
	if err := os.WriteFile(blob, right, 0o600); err != nil {
		t.Fatal(err)
	}
	a.goesOn(t, a.id)
}

// TestArchiveOfAKilledServer kills the server in each step, and finds the sandbox with its data and nothing left over.
func TestArchiveOfAKilledServer(t *testing.T) {
	a := startArchiving(t)
	begin := func(call func()) (ended chan struct{}) {
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			call()
		}()
		return ended
	}
	relaunch := func(ended chan struct{}) {
		t.Helper()
		a.Kill()
		<-ended
		a.Launch()
	}
	archive := func() { _, _ = a.Sandboxes.Archive(t.Context(), a.id) } // ends with the server
	glob := func(pattern string) bool {
		found, _ := filepath.Glob(pattern)
		return len(found) > 0
	}
	a.pause(t)
	// During the upload, and about when the description appears.
	for _, pattern := range []string{filepath.Join(a.bucket, "blobs", "*", "*"), filepath.Join(a.bucket, "archives", "*")} {
		ended := begin(archive)
		a.until(t, pattern, func() bool { return glob(pattern) })
		relaunch(ended)
	}
	if sb, err := a.Sandboxes.Get(t.Context(), a.id); err != nil || sb.State != client.Paused {
		t.Fatalf("after the uploads: %+v, %v", sb, err)
	}
	a.until(t, "its files are in one place", func() bool {
		sb, err := a.Sandboxes.Get(t.Context(), a.id)
		return err == nil && (sb.ArchivedAt == nil) == (len(a.local(t)) == 1)
	})
	// After the row and before the removal.
	kept := filepath.Join(t.TempDir(), "kept")
	a.goesOn(t, a.id)
	a.pause(t)
	dir := a.local(t)[0]
	if err := durable.CopyDir(dir, kept); err != nil {
		t.Fatal(err)
	}
	a.archive(t)
	a.Kill()
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.CopyDir(kept, dir); err != nil {
		t.Fatal(err)
	}
	a.Launch()
	a.until(t, "local files are removed", func() bool { return len(a.local(t)) == 0 })
	// During the fetch.
	ended := begin(func() { _, _ = a.Sandboxes.Resume(t.Context(), a.id, client.ResumeOptions{}) })
	a.until(t, "a fetch began", func() bool { return len(a.local(t)) > 0 })
	relaunch(ended)
	a.until(t, "the rest of the fetch is removed", func() bool {
		for _, name := range a.local(t) {
			if strings.HasPrefix(filepath.Base(name), ".") {
				return false
			}
		}
		return true
	})
	a.goesOn(t, a.id)
	if left := a.local(t); len(left) > 0 {
		t.Errorf("files of a running sandbox: %v", left)
	}
}
