package launch

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// Before a child executes a program, it moves files whose number is below their final number out of
// the way, from the highest number on (forkAndExecInChild1 in package syscall). The program's own
// number must be above all of those: otherwise the child executes another file, which happens under
// many concurrent creates.
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
		const given = 3 + 3 // the standard files and the extra files
		if got := fdOf(program); got <= fd+given {
			t.Errorf("with a highest file of %d the program is %d, want more than %d", fd, got, fd+given)
		}
		program.Close()
		high.Close()
	}
}
