package gvisor

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// On its way to executing a program, a child gives files whose number is below
// the one they shall have a new number, from the highest on (forkAndExecInChild1
// in package syscall). The program's own must be beyond all of those: if not, the
// child executes another file, which happens under many creates at once.
func TestProgramIsOutOfTheWayOfTheFiles(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, highest := range []int{10, 99, 100, 101, 500} {
		fd, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, highest)
		if err != nil {
			t.Fatal(err)
		}
		high := os.NewFile(uintptr(fd), "high")
		cmd := &exec.Cmd{Stdin: null, ExtraFiles: []*os.File{null, high, null}}
		program, err := aboveFiles(null, cmd)
		if err != nil {
			t.Fatal(err)
		}
		const given = 3 + 3 // the standard ones and the extra ones
		if got := fdOf(program); got <= fd+given {
			t.Errorf("with a highest file of %d the program is %d, want more than %d", fd, got, fd+given)
		}
		program.Close()
		high.Close()
	}
}
