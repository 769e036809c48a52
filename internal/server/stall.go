package server

import (
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigevent is the struct sigevent of the kernel.
type sigevent struct {
	value  uint64
	signo  int32
	notify int32 // 0: a signal to the process
	_      [48]byte
}

// endStalled has the kernel end this process with SIGKILL when it has stood still for a limit, for example after SIGSTOP or while
// its machine is suspended: it does not go on then, and its locks and connections end. disarm ends that.
func endStalled(limit time.Duration) (disarm func(), err error) {
	var timer int32
	event := sigevent{signo: int32(unix.SIGKILL)}
	// The clock goes on while the machine is suspended.
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&timer))); errno != 0 {
		return nil, fmt.Errorf("make a timer: %w", errno)
	}
	arm := func() error {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(limit.Nanoseconds())}
		if _, _, errno := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(timer), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); errno != 0 {
			return fmt.Errorf("set a timer: %w", errno)
		}
		return nil
	}
	remove := func() { _, _, _ = unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(timer), 0, 0) }
	if err := arm(); err != nil {
		remove()
		return nil, err
	}
	end := make(chan struct{})
	var task sync.WaitGroup
	task.Go(func() {
		tick := time.NewTicker(limit / 10)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = arm() // it succeeded before, with the same arguments
			case <-end:
				return
			}
		}
	})
	return func() {
		close(end)
		task.Wait()
		remove()
	}, nil
}
