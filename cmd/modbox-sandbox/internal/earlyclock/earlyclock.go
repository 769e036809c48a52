// Package earlyclock lets processes of the guest read the clocks without system calls soon after the start or the restore of a
// sandbox. For that gVisor compares the processor's counter with the clock of the host twice, a second apart, and
// until then each reading is a system call: 100 of the 240 system calls of a command. Here the second comparison follows after
// milliseconds. Later comparisons, each second, correct its error, as they do any.
package earlyclock

import (
	"errors"
	"reflect"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/systemcall"
)

const (
	// apart is the least time between two comparisons. On an idle machine a comparison is right to within half a microsecond, so a clock
	// is wrong by at most 0.1 ms in the second until the next; on a busy machine gVisor permits less exact comparisons.
	apart = 5 * time.Millisecond
	// most bounds the comparisons of a sandbox: programs may use the system call on purpose.
	most = 4
)

// timer is the offset in a timekeeper of the timer whose end starts a comparison.
var timer uintptr

// Register changes the system call. It must be called before gVisor's boot runs.
func Register() error {
	if err := find(); err != nil {
		return err
	}
	return systemcall.Wrap(map[uintptr]systemcall.Wrapper{unix.SYS_CLOCK_GETTIME: wrap})
}

// find finds the timer.
func find() error {
	field, ok := reflect.TypeFor[kernel.Timekeeper]().FieldByName("timer")
	if !ok || field.Type != reflect.TypeFor[*time.Timer]() {
		return errors.New("gVisor's timekeeper has no timer of comparisons")
	}
	timer = field.Offset
	return nil
}

// wrap returns the system call that starts comparisons.
func wrap(get kernel.SyscallFn) kernel.SyscallFn {
	start, p := time.Now(), new(pace)
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		id := args[0].Int()
		if (id == unix.CLOCK_MONOTONIC || id == unix.CLOCK_REALTIME) && p.due(time.Since(start)) {
			compare(t.Timekeeper())
		}
		return get(t, sysno, args)
	}
}

// compare has the timekeeper compare counter and clock now, instead of a second after the last time.
func compare(k *kernel.Timekeeper) {
	// It has none while the sandbox is being saved.
	if next := *(**time.Timer)(unsafe.Add(unsafe.Pointer(k), timer)); next != nil {
		next.Reset(0)
	}
}

// pace tells when there is a comparison.
type pace struct {
	last  atomic.Int64 // time of the last comparison, or of the first call; 0 before that
	count atomic.Int32
}

// due is called with the time now, when the guest has read a clock by a system call.
func (p *pace) due(now time.Duration) bool {
	if p.count.Load() >= most {
		return false
	}
	last := p.last.Load()
	if last != 0 && now-time.Duration(last) < apart || !p.last.CompareAndSwap(last, max(1, int64(now))) {
		return false
	}
	return last != 0 && p.count.Add(1) <= most
}
