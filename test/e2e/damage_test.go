package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// overwrite damages up to 1 MiB of a file of what a paused sandbox was saved as.
func overwrite(t *testing.T, s *testserver.Server, id, file string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.StateDir, "checkpoints", id, "*", file))
	if err != nil || len(names) != 1 {
		t.Fatalf("files %s of sandbox %s: %v, %v", file, id, names, err)
	}
	f, err := os.OpenFile(names[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, min(1<<20, info.Size()/2))
	if _, err := f.ReadAt(data, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = ^data[i]
	}
	if _, err := f.WriteAt(data, info.Size()/2); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedMemoryFallsBackToFiles damages 1 MiB of each file of a paused sandbox: it comes back
// with its files, and with the reason why its memory is lost.
func TestDamagedMemoryFallsBackToFiles(t *testing.T) {
	s := testserver.StartSmall(t)
	for _, file := range []string{"pages.img", "pages.meta", "state.img"} {
		sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
		if res := s.Bash(sb.ID, `cd ~ && head -c 3000000 /dev/urandom > big && sha256sum big > sum && echo kept > file`, time.Minute); res.ExitCode != 0 {
			t.Fatalf("write files: %+v", res)
		}
		if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		overwrite(t, s, sb.ID, file)
		if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: client.MemoryRequire}); !client.IsCode(err, client.Unsupported) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: resume that requires the memory = %v, want unsupported, naming the file", file, err)
		}
		res := s.Bash(sb.ID, `cd ~ && sha256sum -c sum && cat file`, time.Minute) // resumes it
		if got, want := string(res.Stdout), "big: OK\nkept\n"; got != want {
			t.Errorf("%s: after the resume: %q (%s), want %q", file, got, res.Stderr, want)
		}
		now, err := s.Sandboxes.Get(t.Context(), sb.ID)
		if err != nil || !strings.Contains(now.MemoryLostReason, "damaged: "+file) {
			t.Errorf("%s: after the resume: %+v, %v", file, now, err)
		}
		events, err := s.Sandboxes.Events(sb.ID, client.EventsOptions{}).Collect(t.Context())
		if err != nil || !slices.ContainsFunc(events, func(e client.Event) bool {
			return e.Type == "resumed_from_files" && strings.Contains(e.Message, "damaged: "+file)
		}) {
			t.Errorf("%s: events: %+v, %v, want one that gives the reason", file, events, err)
		}
		if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedFilesAreAnErrorThatSaysSo damages memory and files: nothing comes back
// silently wrong, and the sandbox can be taken back to a checkpoint, or be destroyed.
func TestDamagedFilesAreAnErrorThatSaysSo(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	if res := s.Bash(sb.ID, `echo kept > ~/file`, time.Minute); res.ExitCode != 0 {
		t.Fatalf("write a file: %+v", res)
	}
	cp, err := s.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, "before")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(t.TempDir(), "held") // so that overwrite finds only what it was paused with
	dir := filepath.Join(s.StateDir, "checkpoints", sb.ID, cp.ID)
	if err := os.Rename(dir, held); err != nil {
		t.Fatal(err)
	}
	overwrite(t, s, sb.ID, "pages.img")
	overwrite(t, s, sb.ID, "layer.tar")
	if err := os.Rename(held, dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{})
		if !client.IsCode(err, client.Unsupported) || !strings.Contains(err.Error(), "pages.img") || !strings.Contains(err.Error(), "layer.tar") {
			t.Errorf("resume of what is damaged = %v, want unsupported, naming both files", err)
		}
	}
	if now, err := s.Sandboxes.Get(t.Context(), sb.ID); err != nil || now.State != client.Paused {
		t.Errorf("after that: %+v, %v, want it paused", now, err)
	}
	if _, err := s.Sandboxes.Checkpoints.Restore(t.Context(), sb.ID, "before"); err != nil {
		t.Fatal(err)
	}
	if res := s.Bash(sb.ID, `cat ~/file`, time.Minute); string(res.Stdout) != "kept\n" {
		t.Errorf("after going back: %+v", res)
	}
}
