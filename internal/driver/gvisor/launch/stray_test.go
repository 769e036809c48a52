package launch

import (
	"os"
	"os/exec"
	"testing"

	"github.com/modbox/modbox/internal/driver/gvisor/platform"
)

// TestPlatformOf reads the platform from the command line of a process.
func TestPlatformOf(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "cat", "--", "-", "--platform=kvm")
	if _, err := cmd.StdinPipe(); err != nil { // it waits for its end
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if got := PlatformOf(cmd.Process.Pid); got != platform.KVM {
		t.Errorf("platform of a process = %q, want kvm", got)
	}
	if got := PlatformOf(os.Getpid()); got != "" {
		t.Errorf("platform of this process = %q, want none", got)
	}
}
