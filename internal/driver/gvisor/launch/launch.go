package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/agentimage"
	"github.com/modbox/modbox/internal/driver/gvisor/cgroup"
	"github.com/modbox/modbox/internal/driver/gvisor/control"
	"github.com/modbox/modbox/internal/driver/gvisor/layer"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/driver/gvisor/process"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// bootTimeout is how long gVisor may take until it listens on its control socket. It takes 30 ms on
// an idle machine.
const bootTimeout = 30 * time.Second

// logName is gVisor's log about its own failure, in the box's directory.
const logName = "boot.log"

// processName is argv[0] of a box's process; the process sets the same name itself.
const processName = "modbox-sandbox"

// platformFlag is followed by the box's platform on the command line.
const platformFlag = "--platform="

// bootFlags are gVisor's flags for every box.
var bootFlags = []string{
	"--network=sandbox", // a network stack of its own; also what port forwarding needs
	"--directfs=false",  // no host files: tighter system call filter, no capabilities
	"--ignore-cgroups",  // the driver's own, see package cgroup
	"--allow-suid",      // sudo and su, inside
	"--overlay2=none",   // the layers are described by gofer-mount-confs
	"--host-settings=ignore",
	"--restore-spec-validation=ignore", // a fork has another hostname and other limits
	"--control-rpc-stop-timeout=100ms", // the end of a box does not wait for a stuck caller
}

// GuestScore is the score of processes that run guest code, see [process.SetScore]. Such processes
// inherit it from the process that Start starts.
const GuestScore = 1000

// Box is a box to start.
type Box struct {
	Spec   driver.Spec
	Dir    string // the box's directory
	Root   string // of the installation; on the command line, so that strays can be found
	Agent  string // path of the agent's image
	Frame  string // path of the frame's image if the agent makes the root; "" if gVisor makes it
	Layout layer.Layout
	Layers layer.Dir
	// Platform runs the guest.
	Platform platform.Name
	// Handover is whether the agent takes connections from [control.Client.HandOver].
	Handover bool
	// Stderr is the agent's, from [NewStderr]. The caller owns it.
	Stderr *os.File
}

// Start starts the box's process, which executes binary, in group, and returns when gVisor listens
// and waits for the order to start the guest. Without a group the process is in the caller's. The
// caller closes the process. On an error nothing of it remains.
func (b Box) Start(ctx context.Context, binary *os.File, group *cgroup.Group) (p *process.Process, err error) {
	var given donations
	defer given.close()
	var layers []*os.File
	if b.Spec.RootFS != "" {
		if layers, err = stack.Open(b.Spec.RootFS); err != nil {
			return nil, err
		}
	}
	for _, f := range layers {
		given.own(f)
	}
	agent, err := os.Open(b.Agent)
	if err != nil {
		return nil, err
	}
	given.own(agent)
	oci := ociSpec(b.Spec, b.Agent, b.Layout)
	images, upper := append(slices.Clone(layers), agent), ""
	if b.Frame != "" {
		frame, err := os.Open(b.Frame)
		if err != nil {
			return nil, err
		}
		given.own(frame)
		images, upper = append([]*os.File{frame, agent}, layers...), agentimage.FrameUpper
		framed(oci, b.Frame, names(layers), b.Layout.PlainTmp)
	}
	l := launch{
		handover: b.Handover, platform: b.Platform, stderr: b.Stderr,
		id: b.Spec.ID, dir: b.Dir, root: b.Root, spec: oci, images: images,
		mounts: b.Layout.Mounts(oci, b.Spec.Resources, b.Layers, len(images)-1, upper), resources: b.Spec.Resources,
	}
	if b.Platform == platform.KVM {
		if l.device, err = os.OpenFile(platform.Device, os.O_RDWR, 0); err != nil {
			return nil, err
		}
		given.own(l.device)
	}
	if b.Layout.OnDisk {
		defer func() {
			if err != nil {
				_ = b.Layers.Remove(b.Spec.ID)
			}
		}()
		if l.layers, err = b.Layers.Create(b.Spec.ID, b.Layout); err != nil {
			return nil, err
		}
		for _, f := range l.layers {
			given.own(f)
		}
	}
	start := func(attr *syscall.SysProcAttr) (err error) {
		p, err = l.start(ctx, binary, attr)
		return err
	}
	if group == nil {
		err = start(&syscall.SysProcAttr{})
	} else {
		err = group.Start(start)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func names(files []*os.File) []string {
	var list []string
	for _, f := range files {
		list = append(list, f.Name())
	}
	return list
}

// launch describes a process to start. The caller still owns its files.
type launch struct {
	id        sandbox.ID
	dir       string // the box's directory in RunDir
	root      string // RunDir; on the command line, so that strays can be found
	spec      *specs.Spec
	mounts    specutils.GoferMountConfFlags
	images    []*os.File // EROFS images, in the order of the mounts
	layers    []*os.File // files behind the writable layers, in the order of the mounts
	resources sandbox.Resources
	handover  bool
	stderr    *os.File
	platform  platform.Name
	device    *os.File // of the platform; nil for none
}

// start starts the box's process with attr and returns when gVisor listens and waits for the order
// to start the guest. On an error no process remains.
func (l launch) start(ctx context.Context, binary *os.File, attr *syscall.SysProcAttr) (*process.Process, error) {
	cmd := &exec.Cmd{Args: append([]string{processName, "--root=" + l.root, platformFlag + string(l.platform)}, bootFlags...)}
	cmd.Env = []string{} // nil would mean the server's
	if l.platform == platform.KVM {
		cmd.Env = append(cmd.Env, "GODEBUG=asyncpreemptoff=1") // as runsc does
	}
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
		if kerr := p.KillAndWait(wait); kerr != nil {
			return nil, kerr
		}
		p.Close()
		if said := BootLog(l.dir); said != "" {
			return nil, fmt.Errorf("gVisor did not boot: %w: %s", err, said)
		}
		return nil, fmt.Errorf("gVisor did not boot: %w", err)
	}
	return p, nil
}

// arguments adds everything but the pipe and the ID to the command line.
func (l launch) arguments(cmd *exec.Cmd, given *donations) error {
	log, err := os.OpenFile(filepath.Join(l.dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
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
		"--total-host-memory="+strconv.FormatInt(layer.DefaultTmpfs(l.resources)*2, 10),
		"--gofer-mount-confs="+l.mounts.String())
	spec, err := memoryFile("spec", l.spec)
	if err != nil {
		return err
	}
	given.own(spec)
	given.to(cmd, "spec-fd", spec)
	given.to(cmd, "io-fds", l.images...)
	given.to(cmd, "gofer-filestore-fds", l.layers...)
	if l.device != nil {
		given.to(cmd, "device-fd", l.device)
	}

	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	given.own(null)
	stdin := null
	if l.handover {
		if stdin, err = control.BindHandover(l.dir); err != nil {
			return err
		}
		given.own(stdin)
	}
	given.to(cmd, "stdio-fds", stdin, null, l.stderr)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null
	control, err := control.Bind(l.dir)
	if err != nil {
		return err
	}
	given.own(control)
	given.to(cmd, "controller-fd", control)
	return nil
}

// quoted is the most of a failed box's own words in a message, in bytes.
const quoted = 2 << 10

// BootLog returns the beginning of what gVisor has written about its own failure into the directory of a box, or nothing.
func BootLog(dir string) string {
	f, err := os.Open(filepath.Join(dir, logName))
	if err != nil {
		return ""
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, quoted)) // a message has at least the part that can be read
	return strings.TrimSpace(string(data))
}

// spawn starts cmd in namespaces of its own and as a user that owns nothing.
func spawn(cmd *exec.Cmd) (*process.Process, error) {
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
	p, err := process.Child(pid, pidfd)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return nil, err
	}
	// gVisor locks memory briefly while it fetches many pages at once. It works without the
	// permission to; the limit is raised where that is allowed.
	_ = unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil)
	process.SetScore(pid, GuestScore)
	return p, nil
}

// awaitByte reads the byte that gVisor writes when it is ready.
func awaitByte(ctx context.Context, up *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = up.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := up.Read(make([]byte, 1))
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
