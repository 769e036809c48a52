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

// MemoryTarget is the memory the agent's garbage collector aims to stay below.
const MemoryTarget = 64 << 20

// Harden makes the agent outlive signals meant for others. They are caught, not
// ignored: a process it starts would inherit that a signal is ignored.
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

// PrepareSystem brings up what an init must find or make: the loopback
// interface and pseudo-terminals. What the sandbox does not allow is logged.
func PrepareSystem(log *slog.Logger) {
	if err := raiseLoopback(); err != nil {
		log.Warn("loopback not raised", "error", err)
	}
	if _, err := os.Stat("/dev/pts/ptmx"); err != nil {
		if err := mountTerminals(); err != nil {
			log.Warn("pseudo-terminals not mounted", "error", err)
		}
	}
}

// raiseLoopback sets the flag "up" of the interface lo if it is not set.
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

// Confine sees to it that CAP_SYS_ADMIN, which an init may have to set the host
// name with, is for this process only. It must succeed before anything is started.
func Confine() error { return setAdmin(true) }

// setAdmin keeps all threads of the process from passing CAP_SYS_ADMIN on, and
// without keep takes it from them.
func setAdmin(keep bool) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	const admin = 1 << unix.CAP_SYS_ADMIN
	sets[0].Inheritable &^= admin
	if !keep {
		sets[0].Effective &^= admin
		sets[0].Permitted &^= admin
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets[0])), 0)
	if errno != 0 {
		return fmt.Errorf("set capabilities: %w", errno)
	}
	return nil
}

// Listen opens a TCP address, or a Unix socket as "unix:PATH".
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
