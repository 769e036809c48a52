package capacity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// Machine has the resources of a machine.
type Machine struct {
	MemoryBytes int64
	// DiskBytes is the size of the file system of the state directory.
	DiskBytes int64
	Cores     int
}

// memoryLimits are the files with the memory limit of a container, in both versions of control groups. Outside of containers, there is
// no such file, or its number exceeds the memory of every machine.
var memoryLimits = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// Detect returns the resources of this machine, or of this container if it may use less memory. The file system contains the state directory,
// or its nearest existing parent.
func Detect(stateDir string) (Machine, error) { return detect(stateDir, memoryLimits) }

func detect(stateDir string, limits []string) (Machine, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return Machine{}, fmt.Errorf("memory of the machine: %w", err)
	}
	var st unix.Statfs_t
	for at := stateDir; ; at = filepath.Dir(at) {
		err := unix.Statfs(at, &st)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue
		}
		if err != nil {
			return Machine{}, fmt.Errorf("file system of %s: %w", at, err)
		}
		break
	}
	memory := int64(info.Totalram) * int64(info.Unit)
	for _, file := range limits {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 { // it is "max" without a limit
			memory = min(memory, limit)
		}
	}
	return Machine{MemoryBytes: memory, DiskBytes: int64(st.Blocks) * st.Bsize, Cores: runtime.GOMAXPROCS(0)}, nil
}

// Policy determines how much of a machine may be promised.
type Policy struct {
	// MemoryOvercommit and DiskOvercommit are how many times what there is may be
	// promised; 0 means any number; negative means 4 times, but always enough for 20
	// sandboxes of the default size and a build.
	MemoryOvercommit, DiskOvercommit float64
	// MemoryReserve is memory in bytes that is not for sandboxes; negative for an eighth
	// of the machine's, within 256 MiB and 2 GiB.
	MemoryReserve int64
	// MaxSandboxes is how many sandboxes all workspaces may have at once; 0 for any number.
	MaxSandboxes int
	// Sandbox are the default resources of a sandbox, Build the resources of a box of a build.
	Sandbox, Build sandbox.Resources
}

// Promise returns how much memory and disk all sandboxes, builds and pool boxes may be
// promised together.
func (m Machine) Promise(p Policy) quota.Promise {
	reserve := p.MemoryReserve
	if reserve < 0 {
		reserve = min(max(m.MemoryBytes/8, 256<<20), 2<<30)
	}
	enough := p.enough()
	return quota.Promise{
		MemoryBytes: times(max(m.MemoryBytes-reserve, m.MemoryBytes/4), p.MemoryOvercommit, enough.MemoryBytes),
		DiskBytes:   times(m.DiskBytes, p.DiskOvercommit, enough.DiskBytes),
	}
}

// times multiplies n by the factor of a setting; a negative factor means least. The result is never
// 0, which would mean no limit.
func times(n int64, factor float64, least int64) int64 {
	switch {
	case factor == 0:
		return 0
	case factor < 0:
		return max(int64(float64(n)*overcommit), least)
	}
	return max(1, int64(float64(n)*factor))
}

const (
	// sandboxesMin is how many sandboxes of the default size one workspace may have at
	// once on every machine, beside one build.
	sandboxesMin = 20
	// overcommit is the default factor of promised to existing resources. An idle sandbox of 512
	// MiB uses about 30 MiB.
	overcommit = 4
)

// enough returns the resources of sandboxesMin sandboxes of the default size and a build.
func (p Policy) enough() sandbox.Resources {
	return sandbox.Resources{
		MemoryBytes: sandboxesMin*p.Sandbox.MemoryBytes + p.Build.MemoryBytes,
		CPUMilli:    sandboxesMin*p.Sandbox.CPUMilli + p.Build.CPUMilli,
		DiskBytes:   sandboxesMin*p.Sandbox.DiskBytes + p.Build.DiskBytes,
	}
}

// Quota returns the default quota of a workspace: half of the capacity that may be promised, so that another
// workspace can have as much, but always enough for 20 sandboxes of the default size and a build.
func (m Machine) Quota(p Policy) quota.Limits {
	half, enough := m.Promise(p), p.enough()
	q := quota.Limits{
		// CPU is shared by weight: the limit bounds how many threads compete, not who wins.
		quota.LimitCPU:     max(int64(m.Cores)*cpuPerCore, enough.CPUMilli),
		quota.LimitCreates: int64(m.Cores) * createsPerCore,
	}
	if half.MemoryBytes > 0 {
		q[quota.LimitMemory] = max(mebibytes(half.MemoryBytes/2), enough.MemoryBytes)
	}
	if half.DiskBytes > 0 {
		q[quota.LimitDisk] = max(mebibytes(half.DiskBytes/2), enough.DiskBytes)
	}
	q[quota.LimitArchive] = archivedDisks * q[quota.LimitDisk]
	if p.MaxSandboxes > 0 {
		q[quota.LimitSandboxes] = max(int64(p.MaxSandboxes)/2, min(int64(p.MaxSandboxes), sandboxesMin))
	}
	return q
}

const (
	cpuPerCore     = 64_000 // thousandths of a core
	createsPerCore = 600    // a minute; a core starts about as many
	archivedDisks  = 10     // sandboxes in the object store take no disk of the machine
)

// mebibytes rounds down to whole mebibytes.
func mebibytes(n int64) int64 { return n >> 20 << 20 }
