package agent

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MemoryTarget is the memory limit for the agent's garbage collector.
const MemoryTarget = 64 << 20

// Harden makes the agent survive signals meant for other processes. It catches and drops them,
// because processes that it starts would inherit ignored signals.
func Harden() {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught,
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGALRM,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	go func() {
		for range caught {
		}
	}()
}

// LeaveChildrenSilent makes the ends of children send no signal: the reaper waits for them. For each signal gVisor would wake
// another thread of the process, whose handler drops the signal. The default action does the same without a thread; to ignore the
// signal would leave the reaper no children to wait for.
func LeaveChildrenSilent() error {
	var byDefault [4]uint64 // struct sigaction of the kernel
	const setSize = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&byDefault)), 0, setSize, 0, 0)
	if errno != 0 {
		return fmt.Errorf("leave the signals of children to the system: %w", errno)
	}
	return nil
}

// PrepareSystem sets up what an init must provide: the loopback interface and pseudo-terminals. It
// logs what the sandbox does not permit.
func PrepareSystem(log *slog.Logger) {
	if err := raiseLoopback(); err != nil {
		log.Warn("loopback interface not up", "error", err)
	}
	if _, err := os.Stat("/dev/pts/ptmx"); err != nil {
		if err := mountTerminals(); err != nil {
			log.Warn("pseudo-terminals not mounted", "error", err)
		}
	}
}

// raiseLoopback brings the interface lo up if it is down.
func raiseLoopback() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	if lo.Flags&net.FlagUp != 0 {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

func mountTerminals() error {
	if err := os.MkdirAll("/dev/pts", 0o755); err != nil {
		return err
	}
	return unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
}

// admin is the bit of CAP_SYS_ADMIN, which an init has for making its root.
const admin = 1 << unix.CAP_SYS_ADMIN

// Confine gives up CAP_SYS_ADMIN; with keep it only keeps other processes from inheriting the capability. It must
// succeed before any process is started.
func Confine(keep bool) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	before := sets[0]
	sets[0].Inheritable &^= admin
	if !keep {
		sets[0].Effective &^= admin
		sets[0].Permitted &^= admin
	}
	if sets[0] == before { // all threads have the same; the call wakes each of them
		return nil
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets[0])), 0)
	if errno != 0 {
		return fmt.Errorf("set capabilities: %w", errno)
	}
	return nil
}

// Listen listens on a TCP address, or on a Unix socket given as "unix:PATH".
func Listen(address string) (net.Listener, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}
