package launch

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/modbox/modbox/internal/driver/gvisor/platform"
)

// TestPlatformOf reads the platform from the command line of a process.
func TestPlatformOf(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "cat", "--", "-", "--platform=kvm")
	in, err := cmd.StdinPipe() // cat waits for its end
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	// The kernel lets Start return before it has set the command line: an answer of the program comes after both.
	if _, err := in.Write([]byte{'x'}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got := PlatformOf(cmd.Process.Pid); got != platform.KVM {
		t.Errorf("platform of a process = %q, want kvm", got)
	}
	if got := PlatformOf(os.Getpid()); got != "" {
		t.Errorf("platform of this process = %q, want none", got)
	}
}
