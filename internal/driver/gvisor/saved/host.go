package saved

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"

	"gvisor.dev/gvisor/pkg/cpuid"

	"github.com/modbox/modbox/internal/driver/gvisor/agentimage"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/sandbox"
)

// Host has the properties of a host that decide which checkpoints can be restored on it.
type Host struct {
	GVisor string // its version; empty when it is not known
	CPU    CPU
	Agents agentimage.Dir
	KVM    bool // boxes may run on this platform
	Unsure bool // the next start may show that they may
}

// CanRestore returns nil when a checkpoint can be restored on h. Errors: Unsupported with the
// reason; Unavailable if that may be possible after the next start; the system's.
func (h Host) CanRestore(m Manifest) error {
	unsupported := func(format string, args ...any) error {
		return sandbox.Errorf(sandbox.Unsupported, "the checkpoint cannot be restored here: "+format, args...)
	}
	if m.Format < FormatPlain || m.Format > FormatPlatform {
		return unsupported("its format is %d, this server knows %d to %d", m.Format, FormatPlain, FormatPlatform)
	}
	if m.GVisor == "" || m.GVisor != h.GVisor {
		return unsupported("it was made by gVisor %s, this server has %s", cmp.Or(m.GVisor, "of an unknown version"), h.GVisor)
	}
	if m.Platform == platform.KVM && !h.KVM && h.Unsure {
		return sandbox.Errorf(sandbox.Unavailable, "the memory of the sandbox needs kvm, which did not work at this start of the server, but may at the next; the server keeps the memory, try again after its next start")
	}
	if m.Platform != "" && (m.Platform != platform.KVM || !h.KVM) {
		return unsupported("it was made on gVisor's platform %s, on which this server runs no sandboxes (setting sandbox.platform)", m.Platform)
	}
	if reason := m.CPU.missingOn(h.CPU); reason != "" {
		return unsupported("%s", reason)
	}
	if !agentimage.Valid(m.Agent) {
		return unsupported("it names no agent")
	}
	if m.Frame != "" && !agentimage.Valid(m.Frame) {
		return unsupported("it has a frame of an unacceptable name")
	}
	for what, name := range map[string]string{"agent": m.Agent, "frame": m.Frame} {
		if name == "" {
			continue
		}
		if _, err := os.Stat(h.Agents.Image(name)); errors.Is(err, fs.ErrNotExist) {
			return unsupported("the %s that it was made with is not on this host", what)
		} else if err != nil {
			return fmt.Errorf("look for %s %s: %w", what, name, err)
		}
	}
	return nil
}

// CPU has the properties of a processor that programs query once and then rely on.
type CPU struct {
	Arch      string   `json:"arch"`
	Flags     []string `json:"flags"`
	CacheLine uint32   `json:"cache_line"`
}

// HostCPU describes the processor of this host.
func HostCPU() CPU {
	cpuid.Initialize()
	host := cpuid.HostFeatureSet()
	return CPU{Arch: runtime.GOARCH, Flags: strings.Fields(host.FlagString()), CacheLine: cacheLine(host)}
}

// missingOn returns what c has and host lacks; empty when nothing.
func (c CPU) missingOn(host CPU) string {
	if c.Arch != host.Arch {
		return fmt.Sprintf("it was made on %s, this host is %s", c.Arch, host.Arch)
	}
	var missing []string
	for _, flag := range c.Flags {
		if !slices.Contains(host.Flags, flag) {
			missing = append(missing, flag)
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("this host's processor lacks %s", strings.Join(missing, ", "))
	}
	if c.CacheLine != host.CacheLine {
		return fmt.Sprintf("it was made with cache lines of %d bytes, this host has %d", c.CacheLine, host.CacheLine)
	}
	return ""
}
