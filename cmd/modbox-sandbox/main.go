// Command modbox-sandbox is the process of a sandbox. Package driver/gvisor starts it once per box;
// it is gVisor's own "boot" and, as its helper, "umount", chosen by the arguments. Of Modbox it has only
// what the packages earlyclock, hostname, initguard and lateimage add to system calls: a guest that breaks into it finds no other code and no
// data of ours.
package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/cpufeatures"
	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/earlyclock"
	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/hostname"
	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/initguard"
	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/lateimage"
	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/precompiled"
	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/tracepoints"
	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/umounter"
)

const (
	// gcDelay delays garbage collection: booting allocates a little and exits or settles before it,
	// so collecting during it only costs time.
	gcDelay   = 3 * time.Second
	gcPercent = 100
)

func main() {
	// Neither has a reader: gVisor discards its log, and nothing asks for a profile of its memory.
	runtime.MemProfileRate = 0
	log.SetLevel(log.Warning)
	// The driver starts this file by a descriptor, which would be the name in lists
	// of processes. Without a name everything works.
	_ = os.WriteFile("/proc/self/comm", []byte("modbox-sandbox"), 0)
	debug.SetGCPercent(-1)
	time.AfterFunc(gcDelay, func() {
		debug.SetGCPercent(gcPercent)
		debug.FreeOSMemory()
	})
	precompiled.Register()
	umounter.Register()
	tracepoints.LeaveOut()
	cpufeatures.Initialize()
	if err := errors.Join(earlyclock.Register(), hostname.Register(), initguard.Register(), lateimage.Register()); err != nil {
		panic(err) // tests of every build start boxes
	}
	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot):   "",
		new(sentrycmd.Umount): "",
	}, nil)
}
