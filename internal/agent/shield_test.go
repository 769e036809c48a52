package agent

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/bpf"
)

func TestShieldFilter(t *testing.T) {
	var code []bpf.Instruction
	for _, i := range shieldFilter() {
		code = append(code, bpf.Instruction(linux.BPFInstruction{OpCode: i.Code, JumpIfTrue: i.Jt, JumpIfFalse: i.Jf, K: i.K}))
	}
	program, err := bpf.Compile(code, false)
	if err != nil {
		t.Fatal(err)
	}
	const refused = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	kill := func(sig unix.Signal) uint64 { return uint64(sig) }
	for _, c := range []struct {
		what string
		call uint32
		args [3]uint64
		want uint32
	}{
		{"kill", unix.SYS_KILL, [3]uint64{1, kill(unix.SIGKILL)}, refused},
		{"kill, upper half of the argument", unix.SYS_KILL, [3]uint64{1 | 5<<32, kill(unix.SIGKILL) | 7<<32}, refused},
		{"stop", unix.SYS_KILL, [3]uint64{1, kill(unix.SIGSTOP)}, refused},
		{"segv", unix.SYS_KILL, [3]uint64{1, kill(unix.SIGSEGV)}, refused},
		{"sys", unix.SYS_KILL, [3]uint64{1, kill(unix.SIGSYS)}, refused},
		{"is it there", unix.SYS_KILL, [3]uint64{1, 0}, unix.SECCOMP_RET_ALLOW},
		{"term, which it ignores", unix.SYS_KILL, [3]uint64{1, kill(unix.SIGTERM)}, unix.SECCOMP_RET_ALLOW},
		{"real-time", unix.SYS_KILL, [3]uint64{1, 41}, unix.SECCOMP_RET_ALLOW},
		{"kill of another", unix.SYS_KILL, [3]uint64{9, kill(unix.SIGKILL)}, unix.SECCOMP_RET_ALLOW},
		{"kill of all", unix.SYS_KILL, [3]uint64{^uint64(0), kill(unix.SIGKILL)}, unix.SECCOMP_RET_ALLOW},
		{"tkill", unix.SYS_TKILL, [3]uint64{1, kill(unix.SIGABRT)}, refused},
		{"tgkill", unix.SYS_TGKILL, [3]uint64{1, 5, kill(unix.SIGKILL)}, refused},
		{"tgkill of Go's scheduler", unix.SYS_TGKILL, [3]uint64{1, 5, kill(unix.SIGURG)}, unix.SECCOMP_RET_ALLOW},
		{"tgkill of a C library", unix.SYS_TGKILL, [3]uint64{1, 5, 33}, unix.SECCOMP_RET_ALLOW},
		{"tgkill of another", unix.SYS_TGKILL, [3]uint64{8, 9, kill(unix.SIGKILL)}, unix.SECCOMP_RET_ALLOW},
		{"queue", unix.SYS_RT_SIGQUEUEINFO, [3]uint64{1, kill(unix.SIGKILL)}, refused},
		{"queue to a thread", unix.SYS_RT_TGSIGQUEUEINFO, [3]uint64{1, 5, kill(unix.SIGKILL)}, refused},
		{"queue to another", unix.SYS_RT_SIGQUEUEINFO, [3]uint64{3, kill(unix.SIGKILL)}, unix.SECCOMP_RET_ALLOW},
		{"pidfd", unix.SYS_PIDFD_OPEN, [3]uint64{1}, refused},
		{"pidfd of another", unix.SYS_PIDFD_OPEN, [3]uint64{2}, unix.SECCOMP_RET_ALLOW},
		{"trace", unix.SYS_PTRACE, [3]uint64{unix.PTRACE_SEIZE, 1}, refused},
		{"trace another", unix.SYS_PTRACE, [3]uint64{unix.PTRACE_ATTACH, 7}, unix.SECCOMP_RET_ALLOW},
		{"be traced", unix.SYS_PTRACE, [3]uint64{unix.PTRACE_TRACEME, 1}, unix.SECCOMP_RET_ALLOW},
		{"another call", unix.SYS_GETPID, [3]uint64{1, 9}, unix.SECCOMP_RET_ALLOW},
	} {
		data := make(bpf.Input, 64)
		binary.NativeEndian.PutUint32(data[offsetNumber:], c.call)
		for i, arg := range c.args {
			binary.NativeEndian.PutUint64(data[offsetArg0+8*i:], arg)
		}
		got, err := bpf.Exec[bpf.NativeEndian](program, data)
		if err != nil || got != c.want {
			t.Errorf("%s: the filter answers %#x, %v; want %#x", c.what, got, err, c.want)
		}
	}
}
