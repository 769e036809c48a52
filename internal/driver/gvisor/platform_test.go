package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestPlatformAuto: the automatic choice leaves nothing of its try, whether KVM works here or not, and boxes run, are saved
// and are restored on the platform that it chose. The next server knows it without a try.
func TestPlatformAuto(t *testing.T) {
	r := newRig(t)
	choice, err := r.ChoosePlatform(t.Context(), platform.Auto)
	if err != nil {
		t.Fatalf("ChoosePlatform: %v", err)
	}
	t.Logf("%+v", choice)
	if left := leftovers(t, r.cfg); len(left) > 0 {
		t.Errorf("left by the try:\n%s", strings.Join(left, "\n"))
	}
	if got := r.Capabilities().Platform; got != string(choice.Platform) {
		t.Errorf("Capabilities().Platform = %s, want %s", got, choice.Platform)
	}
	spec := newSpec(onDisk)
	g := r.start(t, spec)
	g.must(fill)
	line, err := os.ReadFile("/proc/" + firstProcess(t, r, g.id) + "/cmdline")
	if err != nil || !strings.Contains(string(line), "\x00--platform="+string(choice.Platform)+"\x00") {
		t.Errorf("the box runs as %q, %v; want it on %s", line, err, choice.Platform)
	}
	dir := r.checkpoint(t, g, driver.CheckpointOptions{Stop: true})
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(r.cfg.StateDir, platform.RecordName)
	before, _ := os.ReadFile(record)
	r.reopen(t)
	again, err := r.ChoosePlatform(t.Context(), platform.Auto)
	if err != nil || again != choice {
		t.Errorf("the next server: %+v, %v; want %+v", again, err, choice)
	}
	if after, _ := os.ReadFile(record); string(after) != string(before) {
		t.Errorf("the record was %s, is %s", before, after)
	}
	g = r.restore(t, spec, dir)
	g.wantFilled()
	_, err = r.ChoosePlatform(t.Context(), string(platform.KVM))
	if works := choice.Platform == platform.KVM; (err == nil) != works {
		t.Errorf("kvm works: %v; with the setting kvm ChoosePlatform = %v", works, err)
	}
}

// TestTryOfPlatform: the try that shows whether KVM works succeeds on a platform that does.
func TestTryOfPlatform(t *testing.T) {
	r := newRig(t)
	if err := r.TryPlatform(t.Context(), platform.Systrap, "/.modbox/agent", "-h"); err != nil {
		t.Errorf("TryPlatform = %v", err)
	}
	if left := leftovers(t, r.cfg); len(left) > 0 {
		t.Errorf("left by the try:\n%s", strings.Join(left, "\n"))
	}
	if err := r.TryPlatform(t.Context(), platform.Systrap, "/.modbox/agent", "-no-such-flag"); err == nil {
		t.Error("TryPlatform succeeds with a program that fails")
	}
	if err := r.TryPlatform(t.Context(), "none", "/.modbox/agent", "-h"); err == nil {
		t.Error("TryPlatform succeeds on a platform that does not exist")
	}
	if left := leftovers(t, r.cfg); len(left) > 0 {
		t.Errorf("left by the try that failed:\n%s", strings.Join(left, "\n"))
	}
}

// TestChoiceIsRemembered: the choice follows from a real try, with systrap in place of KVM, and the next server makes none.
func TestChoiceIsRemembered(t *testing.T) {
	device := filepath.Join(t.TempDir(), "kvm")
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for on, want := range map[platform.Name]platform.Name{platform.Systrap: platform.KVM, "none": platform.Systrap} {
		t.Run(string(on), func(t *testing.T) {
			r := newRig(t)
			first, err := r.ChooseAs(t.Context(), device, on)
			if err != nil || first.Platform != want || r.Capabilities().Platform != string(want) {
				t.Errorf("first choice: %+v, %v; want %s", first, err, want)
			}
			if left := leftovers(t, r.cfg); len(left) > 0 {
				t.Errorf("left by the try:\n%s", strings.Join(left, "\n"))
			}
			if _, err := os.Stat(filepath.Join(r.cfg.StateDir, platform.RecordName)); err != nil {
				t.Errorf("no record: %v", err)
			}
			r.reopen(t)
			for _, other := range []platform.Name{"none", platform.Systrap} {
				if again, err := r.ChooseAs(t.Context(), device, other); err != nil || again != first {
					t.Errorf("the next server: %+v, %v; want %+v", again, err, first)
				}
			}
		})
	}
}

// TestUnsureChoiceKeepsMemory: what was saved on KVM cannot be restored, but is not useless, while a start could not try KVM; it can
// after a start that chose KVM.
func TestUnsureChoiceKeepsMemory(t *testing.T) {
	device := filepath.Join(t.TempDir(), "kvm")
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	g := r.start(t, newSpec(onDisk))
	dir := r.checkpoint(t, g, driver.CheckpointOptions{})
	m, err := saved.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.Platform, m.Format = platform.KVM, saved.FormatPlatform
	if err := saved.WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(r.cfg.StateDir, platform.RecordName)
	if err := os.Mkdir(record, 0o700); err != nil { // it can be neither read nor written
		t.Fatal(err)
	}
	if choice, err := r.ChooseAs(t.Context(), device, platform.Systrap); err != nil || !choice.Unsure {
		t.Errorf("choice without a record: %+v, %v", choice, err)
	}
	if err := r.CanRestore(dir); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("CanRestore while kvm could not be tried = %v, want Unavailable", err)
	}
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	if choice, err := r.ChooseAs(t.Context(), device, platform.Systrap); err != nil || choice.Platform != platform.KVM {
		t.Errorf("choice with a record: %+v, %v", choice, err)
	}
	if err := r.CanRestore(dir); err != nil {
		t.Errorf("CanRestore where kvm was chosen = %v", err)
	}
}

// TestPlatformOfSavedBoxes: a box keeps its platform, and is not saved for, or restored on, another one; its files are.
func TestPlatformOfSavedBoxes(t *testing.T) {
	if testPlatform() == platform.KVM {
		t.Skip("boxes run on KVM")
	}
	r := newRig(t)
	spec := newSpec(onDisk)
	g := r.start(t, spec)
	dir := r.checkpoint(t, g, driver.CheckpointOptions{})
	m, err := saved.ReadManifest(dir)
	if err != nil || m.Platform != "" || m.Format != saved.FormatHandover {
		t.Errorf("checkpoint on systrap: platform %q, format %d, %v; want it as before", m.Platform, m.Format, err)
	}
	if err := r.SetPlatform(g.id, platform.KVM); err != nil {
		t.Fatal(err)
	}
	if pid, err := r.Protect(g.id); err != nil || score(t, pid) != "1000" {
		t.Errorf("gVisor's process on kvm has the score %s, %v; want 1000, as the guest", score(t, pid), err)
	}
	r.reopen(t)
	if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
		t.Fatal(err)
	}
	g = r.connect(t, g.id, g.handle)
	err = r.Checkpoint(t.Context(), g.id, filepath.Join(t.TempDir(), "saved"), driver.CheckpointOptions{})
	if sandbox.CodeOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "kvm") {
		t.Errorf("Checkpoint of a box on kvm = %v, want Unsupported", err)
	}
	g.must("true") // it goes on
	if err := r.Checkpoint(t.Context(), g.id, filepath.Join(t.TempDir(), "files"), driver.CheckpointOptions{FilesOnly: true}); err != nil {
		t.Errorf("Checkpoint of its files = %v", err)
	}
	m.Platform, m.Format = platform.KVM, saved.FormatPlatform
	if err := saved.WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Restore(t.Context(), spec, dir); sandbox.CodeOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "kvm") {
		t.Errorf("Restore of a box on kvm = %v, want Unsupported", err)
	}
}

// score returns the score of a process for the kernel's choice when memory runs out.
func score(t *testing.T, pid int) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// formatNow returns the format of the checkpoints of new boxes.
func formatNow() int {
	if testPlatform() == platform.KVM {
		return saved.FormatPlatform
	}
	return saved.FormatHandover
}

// firstProcess returns the number of the first process of a box.
func firstProcess(t *testing.T, r *rig, id sandbox.ID) string {
	t.Helper()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		data, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(data), "--root="+r.cfg.RunDir+"\x00") && strings.HasSuffix(string(data), "\x00"+string(id)+"\x00") {
			return filepath.Base(filepath.Dir(name))
		}
	}
	t.Fatalf("box %s has no process", id)
	return ""
}
