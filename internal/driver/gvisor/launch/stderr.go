package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// stderrSize is the size of the file that is the stderr of an agent. A Go program that crashes writes the reason first.
const stderrSize = 4 << 10

// NewStderr returns a file in memory for the stderr of an agent. Its size is fixed, because root in the sandbox can write to it too.
func NewStderr() (*os.File, error) {
	fd, err := unix.MemfdCreate("stderr", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create the agent's stderr: %w", err)
	}
	f := os.NewFile(uintptr(fd), "stderr")
	err = f.Truncate(stderrSize)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fix the size of the agent's stderr: %w", err), f.Close())
	}
	return f, nil
}

// Written returns the beginning of what was written to a file of [NewStderr], or nothing. The file may be nil.
func Written(f *os.File) string {
	var data [quoted]byte
	n, _ := f.ReadAt(data[:], 0) // a message has at least the part that can be read
	text, _, _ := bytes.Cut(data[:n], []byte{0})
	return string(bytes.TrimSpace(text))
}
