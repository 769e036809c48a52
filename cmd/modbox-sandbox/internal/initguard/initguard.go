// Package initguard keeps processes of the sandbox from ending it by accident. Unlike Linux, gVisor lets root
// inside a sandbox kill PID 1 with SIGKILL, which ends the sandbox and loses its files. Threads of PID 1 count as processes of
// root, and a Go program ends when it cannot have a thread: so PID 1 gets a thread also when the limit of processes is reached.
//
// A filter of system calls in the agent would do the same, but gVisor evaluates the filter for all system calls
// whenever a thread starts: a fourteenth of the processor time of a command.
//
// It is not a security boundary: root who wants to end the agent finds other ways, such as a signal to one of its threads.
package initguard

import (
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/limits"

	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/systemcall"
)

// deadly are the signals that end or stop a Go program, whatever handlers it installs.
var deadly = signalSet(
	unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGKILL, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSTOP,
	unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGPROF, unix.SIGSYS,
)

func signalSet(signals ...unix.Signal) (set uint64) {
	for _, s := range signals {
		set |= 1 << s
	}
	return set
}

// harms has the guarded system calls, by number, and reports for each whether arguments would end, stop or trace PID 1. Signals
// that carry a value, and descriptors of PID 1, are refused whatever the signal.
var harms = map[uintptr]func(arch.SyscallArguments) bool{
	unix.SYS_KILL:              func(args arch.SyscallArguments) bool { return isInit(args[0]) && isDeadly(args[1]) },
	unix.SYS_TKILL:             func(args arch.SyscallArguments) bool { return isInit(args[0]) && isDeadly(args[1]) },
	unix.SYS_TGKILL:            func(args arch.SyscallArguments) bool { return isInit(args[0]) && isDeadly(args[2]) },
	unix.SYS_RT_SIGQUEUEINFO:   func(args arch.SyscallArguments) bool { return isInit(args[0]) },
	unix.SYS_RT_TGSIGQUEUEINFO: func(args arch.SyscallArguments) bool { return isInit(args[0]) },
	unix.SYS_PIDFD_OPEN:        func(args arch.SyscallArguments) bool { return isInit(args[0]) },
	// PTRACE_TRACEME has no target.
	unix.SYS_PTRACE: func(args arch.SyscallArguments) bool {
		return args[0].Int64() != unix.PTRACE_TRACEME && isInit(args[1])
	},
}

func isInit(id arch.SyscallArgument) bool { return id.Int() == 1 }

func isDeadly(signal arch.SyscallArgument) bool {
	n := signal.Int()
	return n > 0 && n < 64 && deadly&(1<<n) != 0
}

// Register changes the system calls. It must be called before gVisor's boot runs.
func Register() error {
	wrappers := map[uintptr]systemcall.Wrapper{}
	for number, harm := range harms {
		wrappers[number] = func(call kernel.SyscallFn) kernel.SyscallFn {
			return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
				// PID 1 of another namespace is a process of the user.
				if harm(args) && t.PIDNamespace() == t.Kernel().RootPIDNamespace() {
					return 0, nil, linuxerr.EPERM
				}
				return call(t, sysno, args)
			}
		}
	}
	wrappers[unix.SYS_CLONE] = freeThreads
	wrappers[unix.SYS_CLONE3] = afterRaise
	return systemcall.Wrap(wrappers)
}

// raising is locked while the limit of PID 1 is raised, and read-locked while PID 1 starts a process, which copies the limit.
var raising sync.RWMutex

// freeThreads returns the clone system call, which makes a thread of PID 1 even if root has as many processes as it may have.
func freeThreads(clone kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if args[0].Uint64()&unix.CLONE_THREAD == 0 {
			return afterRaise(clone)(t, sysno, args)
		}
		tid, next, err := clone(t, sysno, args)
		if !linuxerr.Equals(linuxerr.EAGAIN, err) || t.ThreadGroup() != t.Kernel().GlobalInit() {
			return tid, next, err
		}
		raising.Lock()
		defer raising.Unlock()
		set := t.ThreadGroup().Limits()
		limit := set.Get(limits.ProcessCount)
		defer set.SetUnchecked(limits.ProcessCount, limit)
		set.SetUnchecked(limits.ProcessCount, limits.Limit{Cur: limits.Infinity, Max: limits.Infinity})
		return clone(t, sysno, args)
	}
}

// afterRaise returns a system call that starts a process. PID 1 does not start a process while its limit is raised.
func afterRaise(clone kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if t.ThreadGroup() == t.Kernel().GlobalInit() {
			raising.RLock()
			defer raising.RUnlock()
		}
		return clone(t, sysno, args)
	}
}
