// Package hostname lets PID 1 set the sandbox's host name without CAP_SYS_ADMIN. The agent learns the name when
// the sandbox gets its box, which may have run for long. A capability that the agent keeps until then must be taken from each of
// its threads, which gVisor wakes for that.
package hostname

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/systemcall"
)

// Register changes the sethostname system call. It must be called before gVisor's boot runs.
func Register() error {
	return systemcall.Wrap(map[uintptr]systemcall.Wrapper{unix.SYS_SETHOSTNAME: wrap})
}

// wrap returns the sethostname system call, with a right of PID 1.
func wrap(set kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		// PID 1 of another namespace is a process of the user.
		if t.ThreadGroup() != t.Kernel().GlobalInit() {
			return set(t, sysno, args)
		}
		size := args[1].Int()
		if size < 0 || size > linux.UTSLen {
			return 0, nil, linuxerr.EINVAL
		}
		name := make([]byte, size)
		if _, err := t.CopyInBytes(args[0].Pointer(), name); err != nil {
			return 0, nil, err
		}
		t.UTSNamespace().SetHostName(t, string(name))
		return 0, nil, nil
	}
}
