package initguard

import (
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/arch"
)

// The suites of hostile programs and of the driver test the calls in sandboxes.
func TestHarms(t *testing.T) {
	sig := func(s unix.Signal) uintptr { return uintptr(s) }
	for _, c := range []struct {
		what string
		call uintptr
		args [3]uintptr
		want bool
	}{
		{"kill", unix.SYS_KILL, [3]uintptr{1, sig(unix.SIGKILL)}, true},
		{"kill, upper half of the argument", unix.SYS_KILL, [3]uintptr{1 | 5<<32, sig(unix.SIGKILL) | 7<<32}, true},
		{"stop", unix.SYS_KILL, [3]uintptr{1, sig(unix.SIGSTOP)}, true},
		{"segv", unix.SYS_KILL, [3]uintptr{1, sig(unix.SIGSEGV)}, true},
		{"sys", unix.SYS_KILL, [3]uintptr{1, sig(unix.SIGSYS)}, true},
		{"is it there", unix.SYS_KILL, [3]uintptr{1, 0}, false},
		{"term, which it ignores", unix.SYS_KILL, [3]uintptr{1, sig(unix.SIGTERM)}, false},
		{"real-time", unix.SYS_KILL, [3]uintptr{1, 41}, false},
		{"no signal", unix.SYS_KILL, [3]uintptr{1, 64 + sig(unix.SIGKILL)}, false},
		{"kill of another", unix.SYS_KILL, [3]uintptr{9, sig(unix.SIGKILL)}, false},
		{"kill of all", unix.SYS_KILL, [3]uintptr{^uintptr(0), sig(unix.SIGKILL)}, false},
		{"tkill", unix.SYS_TKILL, [3]uintptr{1, sig(unix.SIGABRT)}, true},
		{"tgkill", unix.SYS_TGKILL, [3]uintptr{1, 5, sig(unix.SIGKILL)}, true},
		{"tgkill of Go's scheduler", unix.SYS_TGKILL, [3]uintptr{1, 5, sig(unix.SIGURG)}, false},
		{"tgkill of a C library", unix.SYS_TGKILL, [3]uintptr{1, 5, 33}, false},
		{"tgkill of another", unix.SYS_TGKILL, [3]uintptr{8, 9, sig(unix.SIGKILL)}, false},
		{"queue", unix.SYS_RT_SIGQUEUEINFO, [3]uintptr{1, sig(unix.SIGKILL)}, true},
		{"queue to a thread", unix.SYS_RT_TGSIGQUEUEINFO, [3]uintptr{1, 5, sig(unix.SIGKILL)}, true},
		{"queue to another", unix.SYS_RT_SIGQUEUEINFO, [3]uintptr{3, sig(unix.SIGKILL)}, false},
		{"pidfd", unix.SYS_PIDFD_OPEN, [3]uintptr{1}, true},
		{"pidfd of another", unix.SYS_PIDFD_OPEN, [3]uintptr{2}, false},
		{"trace", unix.SYS_PTRACE, [3]uintptr{unix.PTRACE_SEIZE, 1}, true},
		{"trace another", unix.SYS_PTRACE, [3]uintptr{unix.PTRACE_ATTACH, 7}, false},
		{"be traced", unix.SYS_PTRACE, [3]uintptr{unix.PTRACE_TRACEME, 1}, false},
	} {
		var args arch.SyscallArguments
		for i, a := range c.args {
			args[i].Value = a
		}
		if got := harms[c.call](args); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
