package agent

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Shield keeps processes of the sandbox from ending it by accident: unlike Linux, gVisor lets root
// inside a sandbox kill PID 1 with SIGKILL, which ends the sandbox and loses its files. After
// Shield, such calls fail with EPERM in this process and all that it starts. It is not a security
// boundary: root who wants to end the agent finds other ways, such as a signal to one of its
// threads.
//
// Preconditions: the process is PID 1 and has CAP_SYS_ADMIN.
func Shield() error {
	filter := shieldFilter()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("install filter of system calls: %w", errno)
	}
	return nil
}

// deadly are the signals that end or stop a Go program, whatever handlers it installs.
var deadly = []unix.Signal{
	unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGKILL, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSTOP,
	unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGPROF, unix.SIGSYS,
}

// Offsets of what the filter reads: the number of the call, and the lower half of an argument; the
// kernel ignores the upper half for these calls.
const (
	offsetNumber = 0
	offsetArg0   = 16
	offsetArg1   = 24
	offsetArg2   = 32
)

// shieldFilter refuses PID 1 as the target of deadly signals, of ptrace and of pidfd_open. It
// refuses all signals that carry a value.
func shieldFilter() []unix.SockFilter {
	mask := uint32(0)
	for _, s := range deadly {
		mask |= 1 << s
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(test uint16, value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	answer := func(what uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what} }
	skip := func(n uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: n} }
	return []unix.SockFilter{
		0: load(offsetNumber),
		1: jump(unix.BPF_JEQ, unix.SYS_KILL, 7, 0),
		2: jump(unix.BPF_JEQ, unix.SYS_TKILL, 6, 0),
		3: jump(unix.BPF_JEQ, unix.SYS_TGKILL, 9, 0),
		4: jump(unix.BPF_JEQ, unix.SYS_RT_SIGQUEUEINFO, 12, 0),
		5: jump(unix.BPF_JEQ, unix.SYS_RT_TGSIGQUEUEINFO, 11, 0),
		6: jump(unix.BPF_JEQ, unix.SYS_PIDFD_OPEN, 10, 0),
		7: jump(unix.BPF_JEQ, unix.SYS_PTRACE, 11, 0),
		8: answer(unix.SECCOMP_RET_ALLOW),
		// kill and tkill: target, signal.
		9:  load(offsetArg0),
		10: jump(unix.BPF_JEQ, 1, 0, 18),
		11: load(offsetArg1),
		12: skip(10),
		// tgkill: target, thread, signal.
		13: load(offsetArg0),
		14: jump(unix.BPF_JEQ, 1, 0, 14),
		15: load(offsetArg2),
		16: skip(6),
		// Calls for which only the target matters.
		17: load(offsetArg0),
		18: jump(unix.BPF_JEQ, 1, 11, 10),
		// ptrace: request, target. PTRACE_TRACEME has no target.
		19: load(offsetArg0),
		20: jump(unix.BPF_JEQ, unix.PTRACE_TRACEME, 8, 0),
		21: load(offsetArg1),
		22: jump(unix.BPF_JEQ, 1, 7, 6),
		// Check whether mask contains the signal; higher numbers are real-time signals.
		23: jump(unix.BPF_JGE, 32, 5, 0),
		// (Through memory: gVisor's BPF_TAX copies in the opposite direction.)
		24: {Code: unix.BPF_ST},
		25: {Code: unix.BPF_LDX | unix.BPF_MEM},
		26: {Code: unix.BPF_LD | unix.BPF_IMM, K: 1},
		27: {Code: unix.BPF_ALU | unix.BPF_LSH | unix.BPF_X},
		28: jump(unix.BPF_JSET, mask, 1, 0),
		29: answer(unix.SECCOMP_RET_ALLOW),
		30: answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)),
	}
}
