package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/modbox/modbox/internal/sandbox"
)

// bootTimeout is how long gVisor may take until it listens on its control socket. It takes 30 ms on
// an idle machine.
const bootTimeout = 30 * time.Second

// processName is argv[0] of a box's process; the process sets the same name itself.
const processName = "modbox-sandbox"

// bootFlags are gVisor's flags for every box.
var bootFlags = []string{
	"--platform=systrap",
	"--network=sandbox", // a network stack of its own; also what port forwarding needs
	"--directfs=false",  // no host files: tighter system call filter, no capabilities
	"--ignore-cgroups",  // the driver's own, see package cgroup
	"--allow-suid",      // sudo and su, inside
	"--overlay2=none",   // the layers are described by gofer-mount-confs
	"--host-settings=ignore",
	"--restore-spec-validation=ignore", // a fork has another hostname and other limits
	"--control-rpc-stop-timeout=100ms", // the end of a box does not wait for a stuck caller
}

// launch describes the box's process to start. The caller still owns its files.
type launch struct {
	id        sandbox.ID
	dir       string // the box's directory in RunDir
	root      string // RunDir; on the command line, so that strays can be found
	spec      *specs.Spec
	mounts    specutils.GoferMountConfFlags
	images    []*os.File // EROFS images, in the order of the mounts
	layers    []*os.File // files behind the writable layers, in the order of the mounts
	resources sandbox.Resources
}

// start starts the box's process with attr and returns when gVisor listens and waits for the order
// to start the guest. On an error no process remains.
func (l launch) start(ctx context.Context, binary *os.File, attr *syscall.SysProcAttr) (*process, error) {
	cmd := &exec.Cmd{Args: append([]string{processName, "--root=" + l.root}, bootFlags...)}
	cmd.Env = []string{} // nil would mean the server's
	cmd.SysProcAttr = attr
	var given donations
	defer given.close()
	if err := l.arguments(cmd, &given); err != nil {
		return nil, err
	}
	up, ready, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer up.Close()
	given.own(ready)
	given.to(cmd, "start-sync-fd", ready)
	cmd.Args = append(cmd.Args, string(l.id))
	program, err := aboveFiles(binary, cmd)
	if err != nil {
		return nil, err
	}
	given.own(program)
	cmd.Path = fmt.Sprintf("/proc/self/fd/%d", fdOf(program))

	p, err := spawn(cmd)
	if err != nil {
		return nil, err
	}
	given.close() // the child has the only other end of the pipe now
	if err := awaitByte(ctx, up); err != nil {
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), bootTimeout)
		defer cancel()
		if kerr := p.killAndWait(wait); kerr != nil {
			return nil, kerr
		}
		p.close()
		return nil, fmt.Errorf("gVisor did not boot: %w%s", ended(ctx, err), l.bootLog())
	}
	return p, nil
}

// arguments adds everything but the pipe and the ID to the command line.
func (l launch) arguments(cmd *exec.Cmd, given *donations) error {
	log, err := os.OpenFile(filepath.Join(l.dir, bootLogName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	given.own(log)
	given.to(cmd, "log-fd", log)
	given.to(cmd, "panic-log-fd", log)

	cpus := max(2, (l.resources.CPUMilli+999)/1000) // with a single CPU, some programs omit their locks
	cmd.Args = append(cmd.Args, "boot", "--bundle="+l.dir, "--apply-caps=true", "--setup-root",
		"--product-name=Modbox",
		"--cpu-num="+strconv.FormatInt(cpus, 10),
		"--cpu-quota="+strconv.FormatInt(l.resources.CPUMilli*100, 10), "--cpu-period=100000",
		"--total-memory="+strconv.FormatInt(l.resources.MemoryBytes, 10),
		// Used only as the base of the default size of memory file systems, half of it.
		"--total-host-memory="+strconv.FormatInt(defaultTmpfs(l.resources)*2, 10),
		"--gofer-mount-confs="+l.mounts.String())
	spec, err := memoryFile("spec", l.spec)
	if err != nil {
		return err
	}
	given.own(spec)
	given.to(cmd, "spec-fd", spec)
	given.to(cmd, "io-fds", l.images...)
	given.to(cmd, "gofer-filestore-fds", l.layers...)

	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	given.own(null)
	given.to(cmd, "stdio-fds", null, null, null)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null
	control, err := bindControl(l.dir)
	if err != nil {
		return err
	}
	given.own(control)
	given.to(cmd, "controller-fd", control)
	return nil
}

// bootLog returns the end of gVisor's log about its failure, or nothing.
func (l launch) bootLog() string {
	data, err := os.ReadFile(filepath.Join(l.dir, bootLogName))
	if err != nil || len(data) == 0 {
		return ""
	}
	const most = 2 << 10
	return ": " + strings.TrimSpace(string(data[:min(len(data), most)]))
}

// spawn starts cmd in namespaces of its own and as a user that owns nothing.
func spawn(cmd *exec.Cmd) (*process, error) {
	pidfd := -1
	attr := cmd.SysProcAttr
	attr.PidFD = &pidfd
	attr.Setsid = true // survive the end of the server's terminal and session
	attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS |
		unix.CLONE_NEWPID | unix.CLONE_NEWNET
	uid, gid := os.Geteuid(), os.Getegid()
	root := uid == 0
	if root {
		const nobody = 65534
		uid, gid = nobody, nobody
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	// Root drops its supplementary groups; other users cannot, and may not set any then.
	attr.GidMappingsEnableSetgroups = root
	attr.Credential = &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: !root}
	if err := cmd.Start(); errors.Is(err, unix.EPERM) {
		return nil, sandbox.Wrap(sandbox.Unsupported, err, "this host does not allow the server to make user namespaces")
	} else if err != nil {
		return nil, fmt.Errorf("start %s: %w", processName, err)
	}
	pid := cmd.Process.Pid
	_ = cmd.Process.Release() // the pidfd is used for waiting
	p, err := newProcess(pid, pidfd)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return nil, err
	}
	p.child = true
	// gVisor locks memory briefly while it fetches many pages at once. It works without the
	// permission to; the limit is raised where that is allowed.
	_ = unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil)
	setOOMScore(pid, guestOOMScore)
	return p, nil
}

// awaitByte reads the byte that gVisor writes when it is ready.
func awaitByte(ctx context.Context, up *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = up.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := up.Read(make([]byte, 1))
	return ended(ctx, err)
}

// memoryFile returns v as JSON in an unlinked file.
func memoryFile(name string, v any) (*os.File, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// donations passes files to a command.
type donations struct{ owned []*os.File }

// own closes f when the command has been started, or could not be.
func (d *donations) own(f *os.File) { d.owned = append(d.owned, f) }

func (d *donations) close() {
	for _, f := range d.owned {
		f.Close()
	}
	d.owned = nil
}

// to passes files to the command and gives it their numbers by a flag, repeated for each.
func (d *donations) to(cmd *exec.Cmd, flag string, files ...*os.File) {
	const first = 3 // after the standard files
	for _, f := range files {
		cmd.Args = append(cmd.Args, fmt.Sprintf("--%s=%d", flag, first+len(cmd.ExtraFiles)))
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
}

// aboveFiles returns f under a descriptor number from which the child of cmd can execute it. Before
// the child executes, it moves its files to new numbers, temporarily using as many numbers as there
// are files from the highest on.
func aboveFiles(f *os.File, cmd *exec.Cmd) (*os.File, error) {
	files := append([]*os.File{cmd.Stdin.(*os.File)}, cmd.ExtraFiles...)
	highest := 0
	for _, other := range files {
		highest = max(highest, fdOf(other))
	}
	const standard = 3
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, highest+standard+len(files)+1)
	if err != nil {
		return nil, fmt.Errorf("open %s again: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func fdOf(f *os.File) int { return int(f.Fd()) }
