package hostmem_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/hostmem"
)

func TestAvailable(t *testing.T) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	total := int64(info.Totalram) * int64(info.Unit)
	if got, err := hostmem.Available(); err != nil || got < 1<<20 || got > total {
		t.Errorf("Available = %d, %v, want some of %d bytes", got, err, total)
	}
}
