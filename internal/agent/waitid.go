package agent

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is the result of waitid. Package unix lacks the field that we need: for the end of a
// child the kernel writes its pid directly after the padding.
type siginfo struct {
	raw unix.Siginfo
}

func (s *siginfo) pid() int {
	const offset = 4 * unsafe.Sizeof(int32(0)) // signo, errno, code, padding
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&s.raw), offset)))
}

// waitid waits until a child has ended, and leaves it a zombie.
func waitid(kind, id int, info *siginfo) error {
	return unix.Waitid(kind, id, &info.raw, unix.WEXITED|unix.WNOWAIT, nil)
}
