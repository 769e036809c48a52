package gvisor

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestFaulted checks that only a crash of the box's process is attributed to a full disk.
func TestFaulted(t *testing.T) {
	exited := func(code int) unix.WaitStatus { return unix.WaitStatus(code << 8) }
	for name, c := range map[string]struct {
		ws    unix.WaitStatus
		known bool
		want  bool
	}{
		"guest exits with 0":          {exited(0), true, false},
		"guest exits with 1":          {exited(1), true, false},
		"guest's PID 1 is killed":     {exited(128 + int(unix.SIGKILL)), true, false},
		"killed by SIGKILL":           {unix.WaitStatus(unix.SIGKILL), true, false},
		"SIGBUS":                      {unix.WaitStatus(unix.SIGBUS), true, true},
		"Go's fatal error":            {exited(2), true, true},
		"ended while no server waits": {0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := faulted(c.ws, c.known); got != c.want {
				t.Errorf("faulted(%#x, %v) = %v, want %v", uint32(c.ws), c.known, got, c.want)
			}
		})
	}
}
