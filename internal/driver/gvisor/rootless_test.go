package gvisor_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/modbox/modbox/internal/driver/gvisor/gvisortest"
)

// rootlessChild is set in a process of this test that runs as an ordinary user;
// its value lists what TestMain made in the parent.
const rootlessChild = "MODBOX_GVISOR_ROOTLESS"

func TestOrdinaryUser(t *testing.T) {
	gvisortest.Need(t)
	if os.Geteuid() != 0 {
		t.Skip("runs as an ordinary user anyway")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestAsOrdinaryUser$", "-test.v")
	cmd.Env = []string{
		"MODBOX_TEST_GVISOR=1", "PATH=" + os.Getenv("PATH"),
		rootlessChild + "=" + strings.Join([]string{built.sandbox, built.agent, built.rootfs}, ":"),
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: TestAsOrdinaryUser") {
		t.Errorf("as user 12345: %v", err)
	}
}

// TestAsOrdinaryUser is the part of TestOrdinaryUser that runs as another user.
func TestAsOrdinaryUser(t *testing.T) {
	paths, isChild := os.LookupEnv(rootlessChild)
	if !isChild {
		t.Skip("is run by TestOrdinaryUser")
	}
	parts := strings.Split(paths, ":")
	built.sandbox, built.agent, built.rootfs = parts[0], parts[1], parts[2]
	r := newRig(t)
	caps := r.Capabilities()
	if caps.Memory || len(caps.Missing) == 0 {
		t.Errorf("Capabilities = %+v, want no memory limit without a delegated group, and to hear so", caps)
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
}
