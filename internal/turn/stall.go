package turn

import (
	"fmt"
	"os"
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

// uptime returns the time since the machine was started. It goes on while the machine is suspended.
func uptime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // the kernel has it
	return time.Duration(t.Nano())
}

// endStalled has the kernel end this process with SIGKILL when it has stood still for a limit, for example after SIGSTOP or while
// its machine is suspended, or when well has not returned true for so long: it does not go on then, and its locks and connections end.
// The kernel does not end the first process of a container in this way; such a process ends itself as soon as it goes on.
func endStalled(limit time.Duration, well func() bool) error {
	var timer int32
	event := sigevent{signo: int32(unix.SIGKILL)}
	// The clock goes on while the machine is suspended.
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&timer))); errno != 0 {
		return fmt.Errorf("make a timer: %w", errno)
	}
	arm := func() error {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(limit.Nanoseconds())}
		if _, _, errno := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(timer), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); errno != 0 {
			return fmt.Errorf("set a timer: %w", errno)
		}
		return nil
	}
	if err := arm(); err != nil {
		_, _, _ = unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(timer), 0, 0)
		return err
	}
	armed := uptime()
	go func() { // until the process ends
		for range time.Tick(limit / 10) {
			now := uptime()
			if now-armed > limit {
				os.Exit(1) // without another word: another server may be active
			}
			if well() {
				_ = arm() // it succeeded before, with the same arguments
				armed = now
			}
		}
	}()
	return nil
}
