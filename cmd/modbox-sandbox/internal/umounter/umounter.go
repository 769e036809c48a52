// Package umounter gives gVisor a tiny program for its helper "umount", which removes /proc when the boot no longer
// needs it. gVisor starts its own executable as that helper: a second start of the Go runtime and of all
// packages of gVisor, a tenth of the processor time of a box's start.
package umounter

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/specutils"
)

// codeSize is larger than the code; the bytes behind it are never executed.
const codeSize = 256

// Register has gVisor use the program. Where the host does not let a process execute a file in memory, or for
// another architecture, gVisor uses its own. It must be called before gVisor's boot runs.
func Register() {
	if start == nil {
		return
	}
	fd, err := unix.MemfdCreate("umount", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3, every such file may be executed
		fd, err = unix.MemfdCreate("umount", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return
	}
	if _, err := unix.Write(fd, executable()); err != nil {
		_ = unix.Close(fd)
		return
	}
	specutils.ExePath = fmt.Sprintf("/proc/self/fd/%d", fd)
}

// executable returns an ELF file with the code of the program.
func executable() []byte {
	const (
		headers = 64 + 56
		address = 0x400000
	)
	code := start()
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01") // 64 bits, little endian
	b.Write(make([]byte, 9))
	for _, v := range []any{
		uint16(2), machine, uint32(1), // an executable
		uint64(address + headers), uint64(64), uint64(0), // where it begins; the program header; no sections
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		// The program header: everything is loaded, to be read and executed.
		uint32(1), uint32(1 | 4), uint64(0), uint64(address), uint64(address), uint64(headers + codeSize), uint64(headers + codeSize), uint64(1 << 16),
	} {
		_ = binary.Write(&b, binary.LittleEndian, v)
	}
	b.Write(code[:])
	return b.Bytes()
}
