package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/driver/gvisor/cgroup"
	"github.com/modbox/modbox/internal/hostmem"
)

func architecture(context.Context, Options) Result {
	const name = "architecture"
	switch runtime.GOARCH {
	case "amd64":
		return ok(name, "amd64")
	case "arm64":
		return warn(name, "arm64: gVisor supports it, but Modbox is not tested on it yet", "")
	}
	return fail(name, runtime.GOARCH+" is not supported by gVisor", "use a machine with amd64 or arm64")
}

// The oldest kernel with all features that Modbox uses (waiting for processes by pidfd).
const kernelMajor, kernelMinor = 5, 4

func kernel(context.Context, Options) Result {
	const name = "kernel"
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fail(name, "its version cannot be read: "+err.Error(), "")
	}
	release := unix.ByteSliceToString(u.Release[:])
	if major, minor, err := parseRelease(release); err != nil || major < kernelMajor || major == kernelMajor && minor < kernelMinor {
		return fail(name, release+" is too old", fmt.Sprintf("use Linux %d.%d or newer", kernelMajor, kernelMinor))
	}
	return ok(name, "Linux "+release)
}

func parseRelease(release string) (major, minor int, err error) {
	first, rest, _ := strings.Cut(release, ".")
	second := strings.FieldsFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if major, err = strconv.Atoi(first); err != nil || len(second) == 0 {
		return 0, 0, fmt.Errorf("kernel release %q is not understood", release)
	}
	minor, err = strconv.Atoi(second[0])
	return major, minor, err
}

// userNamespaces makes the namespaces that a server without root needs; root needs none.
func userNamespaces(ctx context.Context, _ Options) Result {
	const name = "user namespaces"
	if os.Geteuid() == 0 {
		return ok(name, "not needed: running as root")
	}
	cmd := exec.CommandContext(ctx, "/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	err := cmd.Run()
	if err == nil {
		return ok(name, "ordinary users can make them")
	}
	for _, s := range []struct{ path, bad, fix string }{
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu's AppArmor forbids them)"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"},
	} {
		if value, _ := os.ReadFile(s.path); strings.TrimSpace(string(value)) == s.bad {
			return fail(name, "this user cannot make one: "+err.Error(), "as root: "+s.fix+"; or run the server as root")
		}
	}
	return fail(name, "this user cannot make one: "+err.Error(), "run the server as root, or outside of the container that forbids it")
}

func controlGroups(context.Context, Options) Result {
	const name = "control groups"
	host, err := cgroup.Detect()
	if err != nil {
		return warn(name, err.Error()+"; limits of memory, CPU and processes cannot be enforced", "mount cgroup2 at /sys/fs/cgroup")
	}
	version := "version 1"
	if host.V2 != "" {
		version = "version 2"
	}
	if os.Geteuid() != 0 {
		return ok(name, version+"; whether this user may use them shows when a sandbox is started")
	}
	return ok(name, version)
}

// Memory below which a sandbox of default size hardly fits, and below which few do.
const (
	memoryFail = 512 << 20
	memoryWarn = 2 << 30
)

func memory(context.Context, Options) Result {
	const name = "memory"
	available, err := hostmem.Available()
	if err != nil {
		return warn(name, err.Error(), "")
	}
	detail := humanize.IBytes(uint64(available)) + " available"
	switch {
	case available < memoryFail:
		return fail(name, detail, "at least "+humanize.IBytes(memoryFail)+" are needed for the server and one sandbox")
	case available < memoryWarn:
		return warn(name, detail+": enough for a few small sandboxes", "")
	}
	return ok(name, detail)
}

// filesWanted open files suffice for some thousand sandboxes.
const filesWanted = 65536

func openFiles(context.Context, Options) Result {
	const name = "open files"
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return warn(name, err.Error(), "")
	}
	detail := fmt.Sprintf("limit %d", l.Max)
	if l.Max < filesWanted {
		return warn(name, detail+": enough for about "+strconv.FormatUint(l.Max/16, 10)+" sandboxes", fmt.Sprintf("raise the hard limit to %d (ulimit -Hn, LimitNOFILE=)", filesWanted))
	}
	return ok(name, detail)
}
