package process_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/modbox/modbox/internal/driver/gvisor/process"
)

// TestFindRefusesALaterProcess checks that a process is only found with its own start time, and not
// when it has ended.
func TestFindRefusesALaterProcess(t *testing.T) {
	pidfd := -1
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &pidfd}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child, err := process.Child(cmd.Process.Pid, pidfd)
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	parent, start, err := process.ParentAndStart(child.PID)
	if err != nil || parent != os.Getpid() || start != child.Start {
		t.Errorf("ParentAndStart = %d, %d, %v, want %d, %d", parent, start, err, os.Getpid(), child.Start)
	}
	found, err := child.Mark.Find()
	if err != nil {
		t.Fatalf("Find of a running process: %v", err)
	}
	found.Close()
	for _, other := range []process.Mark{{PID: child.PID, Start: child.Start + 1}, {PID: 1}, {}} {
		if _, err := other.Find(); !errors.Is(err, process.ErrNone) {
			t.Errorf("Find(%v) = %v, want ErrNone", other, err)
		}
	}
	if child.Exited() {
		t.Error("a running process has exited")
	}
	if err := child.KillAndWait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !child.Exited() {
		t.Error("a killed process has not exited")
	}
	if _, err := child.Mark.Find(); !errors.Is(err, process.ErrNone) {
		t.Errorf("Find of a process that has ended = %v, want ErrNone", err)
	}
}
