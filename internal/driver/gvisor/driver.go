package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	gvlog "gvisor.dev/gvisor/pkg/log"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/launch"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/driver/gvisor/process"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

// Config has the settings of a driver. All paths are absolute.
type Config struct {
	// RunDir is for files that do not survive a restart of the host: a directory on tmpfs such as
	// /run/modbox. It identifies the installation: two drivers with different RunDirs never see
	// each other's boxes. Required.
	RunDir string
	// StateDir is for large files: writable layers and the agent's image. Required.
	StateDir string
	// SandboxBinary is the executable modbox-sandbox. Required.
	SandboxBinary string
	// AgentBinary is the static executable that runs as PID 1 of every box. Required.
	AgentBinary string
	// CgroupParent is the control group, as a path below the hierarchy's mount point, in which the
	// driver makes its own. Empty means the top for root, and the group of the server's process for
	// other users.
	CgroupParent string
	// AnswerTimeout is how long a box's process or agent may be silent when it is asked for
	// something that takes no time; 0 means the driver's default.
	AnswerTimeout time.Duration
	// Platform runs new boxes; empty means systrap. See also [Driver.ChoosePlatform].
	Platform platform.Name
	// Logger receives events that are not an error of a call. Required.
	Logger *slog.Logger
}

// Driver runs boxes with gVisor. It is made by [New].
type Driver struct {
	host   *host
	caps   driver.Capabilities
	binary *os.File   // modbox-sandbox, open so that an upgrade does not change it while the server runs
	agent  string     // path of the agent's image
	frame  string     // path of the frame's image, see package agentimage
	saves  saved.Host // this host, for checkpoints
	// platform runs new boxes. It does not change once boxes are made.
	platform platform.Name
	// forwards is whether agents are not handed connections, as in earlier versions; only in tests.
	forwards bool

	boxes table
	calls calls
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Checkpointer = (*Driver)(nil)
	_ driver.Snapshotter  = (*Driver)(nil)
	_ driver.Networker    = (*Driver)(nil)
	_ driver.Furnisher    = (*Driver)(nil)
	_ driver.Meter        = (*Driver)(nil)
	_ driver.Tidier       = (*Driver)(nil)
)

// errClosed is the error of calls in progress when the driver is closed.
var errClosed = sandbox.Errorf(sandbox.Unavailable, "the server is shutting down")

// tunnelMemory bounds the unread bytes of connections to the ports of all boxes.
const tunnelMemory = 256 << 20

// New returns a driver that knows no box yet. It makes its directories and the agent's image. It
// fails when a required part is missing or unusable; [Driver.Capabilities] reports limits that the
// host does not offer.
func New(cfg Config) (*Driver, error) {
	if cfg.Logger == nil {
		return nil, errors.New("gvisor: no logger")
	}
	for name, path := range map[string]string{
		"RunDir": cfg.RunDir, "StateDir": cfg.StateDir, "SandboxBinary": cfg.SandboxBinary, "AgentBinary": cfg.AgentBinary,
	} {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("gvisor: %s is %q, want an absolute path", name, path)
		}
	}
	d := &Driver{host: newHost(cfg), boxes: table{boxes: map[sandbox.ID]*box{}}, platform: cmp.Or(cfg.Platform, platform.Systrap)}
	paths := d.host.paths
	for _, dir := range []string{paths.boxes(), string(paths.layers()), string(paths.agents())} {
		if err := durable.MkdirAll(dir); err != nil {
			return nil, fmt.Errorf("gvisor: %w", err)
		}
	}
	if err := unix.Access(cfg.SandboxBinary, unix.X_OK); err != nil {
		return nil, fmt.Errorf("gvisor: sandbox binary %s: %w", cfg.SandboxBinary, err)
	}
	var err error
	if d.agent, err = paths.agents().Make(cfg.AgentBinary); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	if d.frame, err = paths.agents().MakeFrame(); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	version, err := launch.Version(cfg.SandboxBinary)
	if err != nil {
		cfg.Logger.Warn("checkpoints are not available", "error", err)
	}
	d.saves = saved.Host{GVisor: version, CPU: saved.HostCPU(), Agents: paths.agents(), KVM: d.platform == platform.KVM}
	if d.binary, err = os.Open(cfg.SandboxBinary); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	// gVisor's library logs through a variable of its own, to stderr by default.
	gvlog.SetTarget(logTarget{cfg.Logger})
	if err := d.host.openGroups(cfg.CgroupParent); err != nil {
		cfg.Logger.Warn("control groups cannot be used", "error", err)
	}
	d.calls.life = d.host.life
	d.caps = d.detect()
	if !d.caps.Memory {
		d.host.watchers.Go(d.watchContainer) // see container.go
	}
	return d, nil
}

// detect finds out which limits this host can enforce.
func (d *Driver) detect() driver.Capabilities {
	caps := driver.Capabilities{Name: "gvisor", Isolated: true, Survives: true, Disk: true, Snapshot: true, Network: true, Furnish: true}
	if caps.Checkpoint = d.saves.GVisor != ""; !caps.Checkpoint {
		caps.Missing = append(caps.Missing, "Sandboxes cannot be paused or forked: modbox-sandbox does not say which version of gVisor it contains; "+
			"install the modbox-sandbox that came with this server.")
	}
	if d.host.groups != nil {
		ok := d.host.groups.Controllers()
		caps.Memory, caps.CPU, caps.Processes = ok.Memory, ok.CPU, ok.Processes
	}
	const how = "run the server as root, or give it a delegated control group (systemd: Delegate=yes)"
	for _, c := range []struct {
		ok   bool
		what string
	}{
		{caps.Memory, "Memory limits are not enforced"},
		{caps.CPU, "CPU limits are not enforced"},
		{caps.Processes, "The number of host processes of a sandbox is not limited"},
	} {
		if !c.ok {
			caps.Missing = append(caps.Missing, c.what+": this server cannot use that control group; "+how+".")
		}
	}
	if caps.Memory && !process.MayLowerScore() {
		caps.Missing = append(caps.Missing, "A sandbox that uses up its memory may end as a whole: this server cannot protect "+
			"gVisor from being chosen by the kernel; give it the capability CAP_SYS_RESOURCE.")
	}
	return caps
}

// Capabilities implements [driver.Driver].
func (d *Driver) Capabilities() driver.Capabilities {
	caps := d.caps
	caps.Missing = append([]string(nil), caps.Missing...)
	caps.Platform = string(d.platform)
	return caps
}

// Close implements [driver.Driver].
func (d *Driver) Close() error {
	d.calls.end(d.host.close) // they clean up after themselves
	for _, b := range d.boxes.empty() {
		b.letGo()
	}
	d.host.watchers.Wait()
	if d.host.groups != nil {
		_ = d.host.groups.Remove() // succeeds only when no box remains
		d.host.groups.Close()
	}
	return d.binary.Close()
}

// calls are the calls in progress.
type calls struct {
	life context.Context // ends when the driver is closed

	mu      sync.Mutex // excludes enter and end
	running sync.WaitGroup
}

// enter begins a call: the context that it returns ends with ctx and with the driver.
func (c *calls) enter(ctx context.Context) (context.Context, context.CancelFunc) {
	merged, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(errClosed) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		cancel(errClosed)
		return merged, func() { stop() }
	}
	c.running.Add(1)
	return merged, func() { stop(); cancel(nil); c.running.Done() }
}

// end ends the life of the driver, and so the contexts of all calls, and waits for the calls.
func (c *calls) end(life context.CancelCauseFunc) {
	c.mu.Lock()
	life(errClosed)
	c.mu.Unlock()
	c.running.Wait()
}

// ended replaces an error caused by the end of ctx by the reason of that end.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}
