package launch

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/agentimage"
	"github.com/modbox/modbox/internal/driver/gvisor/layer"
	"github.com/modbox/modbox/internal/sandbox"
)

// maxFiles is RLIMIT_NOFILE of guest processes.
const maxFiles = 65536

// capabilities are the capabilities of the box's root, inside its own kernel: Docker's default, so
// that sudo, apt and su work. None of them exists outside.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// rootMaking are additional capabilities of an agent that makes the root of its box. The agent prevents that other
// processes inherit them, see agent.Confine.
var rootMaking = []string{"CAP_SYS_ADMIN"}

var hostnamePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })

// Check returns an Invalid error for a spec of which no box can be made.
func Check(s driver.Spec) error {
	if id, ok := sandbox.ParseID(string(s.ID)); !ok || id != s.ID {
		return sandbox.InvalidField("id", "%q is not a sandbox id", s.ID)
	}
	if !hostnamePattern().MatchString(s.Hostname) {
		return sandbox.InvalidField("hostname", "%q is not 1 to 63 characters of a-z, 0-9 and -", s.Hostname)
	}
	if s.RootFS != "" {
		if err := CheckImage(s.RootFS); err != nil {
			return err
		}
	}
	r := s.Resources
	switch {
	case r.MemoryBytes < sandbox.MemoryMin:
		return sandbox.InvalidField("resources.memory", "%d bytes are less than %d", r.MemoryBytes, sandbox.MemoryMin)
	case r.DiskBytes < sandbox.DiskMin:
		return sandbox.InvalidField("resources.disk", "%d bytes are less than %d", r.DiskBytes, sandbox.DiskMin)
	case r.CPUMilli < sandbox.CPUMilliMin || r.CPUMilli > sandbox.CPUMilliMax:
		return sandbox.InvalidField("resources.cpu", "%d thousandths of a core are not between %d and %d", r.CPUMilli, sandbox.CPUMilliMin, sandbox.CPUMilliMax)
	case s.MaxProcesses < 0:
		return sandbox.InvalidField("max_processes", "%d is negative", s.MaxProcesses)
	}
	return nil
}

// CheckImage returns an Invalid error unless a path may be a root image's.
func CheckImage(path string) error {
	if !filepath.IsAbs(path) {
		return sandbox.InvalidField("rootfs", "%q is not an absolute path", path)
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return sandbox.InvalidField("rootfs", "%q is not a file", path)
	}
	return nil
}

// ociSpec describes the box to gVisor. It contains no environment and no secret.
func ociSpec(s driver.Spec, agentImage string, l layer.Layout) *specs.Spec {
	spec := &specs.Spec{
		Version:  specs.Version,
		Hostname: s.Hostname,
		Root:     &specs.Root{Path: "/"}, // not used: the root is an image
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.source":  s.RootFS,
			"dev.gvisor.spec.rootfs.type":    "erofs",
			"dev.gvisor.spec.rootfs.overlay": "memory", // gofer-mount-confs override it
		},
		Process: &specs.Process{
			Args: []string{agentimage.Path}, // PID 1
			Cwd:  "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NPROC", Soft: uint64(s.MaxProcesses), Hard: uint64(s.MaxProcesses)},
				{Type: "RLIMIT_NOFILE", Soft: maxFiles, Hard: maxFiles},
				{Type: "RLIMIT_CORE"},
			},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/dev", Type: "dev", Source: "dev", Options: []string{"nosuid"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777", "size=" + strconv.FormatInt(l.ShmBytes, 10)}},
			{Destination: agentimage.Mount, Type: "erofs", Source: agentImage, Options: []string{"ro", "nosuid", "nodev"}},
		},
		Linux: &specs.Linux{},
	}
	return spec
}

// framed changes spec for a root that the agent assembles from layers, because gVisor supports only one layer below
// the writable one. The guest starts with the frame as its root. If layers is empty, the agent assembles the root when
// it is configured.
func framed(spec *specs.Spec, frame string, layers []string, plainTmp bool) {
	spec.Annotations["dev.gvisor.spec.rootfs.source"] = frame
	spec.Process.Capabilities.Inheritable = rootMaking
	moved := []string{"/proc", "/sys", "/dev", agentimage.Mount}
	if !plainTmp {
		moved = append(moved, "/tmp")
	}
	spec.Process.Args = append(spec.Process.Args, "-layers="+strconv.Itoa(len(layers)))
	spec.Process.Args = append(spec.Process.Args, moved...)
	for i, name := range layers {
		spec.Mounts = append(spec.Mounts, specs.Mount{
			Destination: path.Join(agentimage.FrameLayers, strconv.Itoa(i)), Type: "erofs", Source: name, Options: []string{"ro"},
		})
	}
}
