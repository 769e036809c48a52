package process_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
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

func TestTree(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 100 & read line")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var tree []int
	for len(tree) < 2 { // polling: sh starts it
		tree = process.Tree(process.Children(), cmd.Process.Pid)
	}
	if parent, _, err := process.ParentAndStart(tree[1]); tree[0] != cmd.Process.Pid || parent != tree[0] || err != nil {
		t.Errorf("Tree() = %v, want process %d and its child, whose parent is %d (%v)", tree, cmd.Process.Pid, parent, err)
	}
	if !slices.Contains(process.Tree(process.Children(), os.Getpid()), tree[1]) {
		t.Errorf("Tree() of this process is without the grandchild %d", tree[1])
	}
	_ = syscall.Kill(tree[1], syscall.SIGKILL)
	_ = in.Close()
	_ = cmd.Wait()
}
