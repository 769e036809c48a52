package launch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// memoryFile returns v as JSON in an unlinked file.
func memoryFile(name string, v any) (*os.File, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// donations passes files to a command.
type donations struct{ owned []*os.File }

// own closes f when the command has been started, or could not be.
func (d *donations) own(f *os.File) { d.owned = append(d.owned, f) }

func (d *donations) close() {
	for _, f := range d.owned {
		f.Close()
	}
	d.owned = nil
}

// to passes files to the command and gives it their numbers by a flag, repeated for each.
func (d *donations) to(cmd *exec.Cmd, flag string, files ...*os.File) {
	const first = 3 // after the standard files
	for _, f := range files {
		cmd.Args = append(cmd.Args, fmt.Sprintf("--%s=%d", flag, first+len(cmd.ExtraFiles)))
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
}

// aboveFiles returns f under a descriptor number from which the child of cmd can execute it. Before
// the child executes, it moves its files to new numbers, temporarily using as many numbers as there
// are files from the highest on.
func aboveFiles(f *os.File, cmd *exec.Cmd) (*os.File, error) {
	files := append([]*os.File{cmd.Stdin.(*os.File)}, cmd.ExtraFiles...)
	highest := 0
	for _, other := range files {
		highest = max(highest, fdOf(other))
	}
	const standard = 3
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, highest+standard+len(files)+1)
	if err != nil {
		return nil, fmt.Errorf("open %s again: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func fdOf(f *os.File) int { return int(f.Fd()) }
