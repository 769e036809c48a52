package turn

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// stalledVariable makes this program the process of TestEndStalled.
const stalledVariable = "MODBOX_TEST_STALLED"

// TestStalledProcess is the process of TestEndStalled, which stops itself.
func TestStalledProcess(t *testing.T) {
	if os.Getenv(stalledVariable) == "" {
		t.Skip("it is a process of TestEndStalled")
	}
	if err := endStalled(3*time.Second, func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	if os.Getpid() == 1 { // the kernel does not stop it by its own wish
		fmt.Println("armed")
		time.Sleep(2 * time.Minute)
		os.Exit(0)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	t.Error("the process went on") // not before SIGCONT, which nobody sends
}

// TestEndStalled checks that the kernel ends a process that was stopped.
func TestEndStalled(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestStalledProcess$")
	cmd.Env = append(os.Environ(), stalledVariable+"=1")
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGCONT) })
	defer late.Stop()
	out, _ := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("the process ended with %s, want SIGKILL; it said %s", cmd.ProcessState, out)
	}
}

// TestEndStalledInit checks that the first process of a container, which the kernel does not end, ends itself when it goes on.
func TestEndStalledInit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes a PID namespace")
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestStalledProcess$")
	cmd.Env = append(os.Environ(), stalledVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this root makes no PID namespace")
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "armed"; {
	}
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(4 * time.Second) // longer than its limit
	_ = cmd.Process.Signal(syscall.SIGCONT)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("the process ended with %v, want exit code 1", err)
	}
}
