// Package systemcall changes system calls of the guest.
package systemcall

import (
	"fmt"
	"runtime"

	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// Wrapper returns a system call that does what call does, with a change.
type Wrapper func(call kernel.SyscallFn) kernel.SyscallFn

// Wrap changes system calls, by number. It must be called before gVisor's boot runs.
func Wrap(wrappers map[uintptr]Wrapper) error {
	for _, table := range kernel.SyscallTables() {
		if table.Arch != hostArch() {
			continue
		}
		for number, wrap := range wrappers {
			call, ok := table.Table[number]
			if !ok {
				return fmt.Errorf("gVisor has no system call %d for %s", number, runtime.GOARCH)
			}
			call.Fn = wrap(call.Fn)
			table.Table[number] = call
		}
		table.Init()
		return nil
	}
	return fmt.Errorf("gVisor has no system calls for %s", runtime.GOARCH)
}

func hostArch() arch.Arch {
	if runtime.GOARCH == "arm64" {
		return arch.ARM64
	}
	return arch.AMD64
}
