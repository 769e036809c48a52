package gvisor_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/gvisortest"
)

// rootlessChild is set for processes that a test starts from its own executable, as an ordinary
// user; its value lists what TestMain made in the parent.
const rootlessChild = "MODBOX_GVISOR_ROOTLESS"

// TestOrdinaryUser runs itself again as another user. Without privileges the driver does everything
// but limit memory, CPU and host processes.
func TestOrdinaryUser(t *testing.T) {
	gvisortest.Need(t)
	if os.Geteuid() != 0 {
		ordinaryUser(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestOrdinaryUser$", "-test.v")
	cmd.Env = []string{
		"MODBOX_TEST_GVISOR=1", "PATH=" + os.Getenv("PATH"),
		rootlessChild + "=" + strings.Join([]string{forEverybody(t, built.sandbox), forEverybody(t, built.agent), built.rootfs}, ":"),
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: TestOrdinaryUser") {
		t.Errorf("as user 12345: %v", err)
	}
}

// forEverybody copies an executable to a directory where every user can run it: the working copy
// may be in a directory that other users cannot enter, such as /root.
func forEverybody(t *testing.T, path string) string {
	t.Helper()
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "mbxbin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	copied := filepath.Join(dir, filepath.Base(path))
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(copied, program, 0o755)); err != nil {
		t.Fatal(err)
	}
	return copied
}

func ordinaryUser(t *testing.T) {
	r := newRig(t)
	caps := r.Capabilities()
	if os.Getenv(rootlessChild) != "" && (caps.Memory || caps.CPU || caps.Processes || len(caps.Missing) < 3) {
		t.Errorf("Capabilities = %+v, want no limits without a delegated group, and to hear so", caps)
	}
	g := r.start(t, newSpec(onDisk))
	if out := g.must("id -u; chown 1000:1000 /root && stat -c %u /root"); out != "0\n1000" {
		t.Errorf("inside: %q", out)
	}
	g.sh("dd if=/dev/zero of=/fill bs=64k")
	if s, err := r.Stats(t.Context(), g.id); err != nil || s.DiskBytes < onDisk.DiskBytes || s.Processes == 0 {
		t.Errorf("Stats = %+v, %v", s, err)
	}
	r.reopen(t)
	if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
		t.Fatalf("Recover: %v", err)
	}
	again := r.connect(t, g.id, g.handle)
	again.must("test -s /fill")
	dir := r.checkpoint(t, again, driver.CheckpointOptions{Stop: true})
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatalf("Destroy: %v", err)
	}
	fork := r.restore(t, newSpec(onDisk), dir)
	fork.must("test -s /fill && rm /fill")
	fork.wantNetwork(r.plug(t, fork, "peer"), "peer")
	if headers, _ := r.layer(t, fork); headers["root/"] == nil {
		t.Error("the layer lacks the directory that was changed")
	}
}
