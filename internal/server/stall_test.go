package server

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestStalledProcess is the process of TestEndStalled, which stops itself.
func TestStalledProcess(t *testing.T) {
	if os.Getenv(serverVariable) == "" {
		t.Skip("it is a process of TestEndStalled")
	}
	if _, err := endStalled(3 * time.Second); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	t.Error("the process went on") // not before SIGCONT, which nobody sends
}

// TestEndStalled checks that the kernel ends a process that was stopped.
func TestEndStalled(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestStalledProcess$")
	cmd.Env = append(os.Environ(), serverVariable+"=1")
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGCONT) })
	defer late.Stop()
	out, _ := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("the process ended with %s, want SIGKILL; it said %s", cmd.ProcessState, out)
	}
}
