package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	gvlog "gvisor.dev/gvisor/pkg/log"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/cgroup"
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
	// Logger receives events that are not an error of a call. Required.
	Logger *slog.Logger
}

// Driver runs boxes with gVisor. It is made by [New].
type Driver struct {
	cfg     Config
	caps    driver.Capabilities
	groups  *cgroup.Parent // nil when the host offers no control groups
	binary  *os.File       // modbox-sandbox, open so that an upgrade does not change it while the server runs
	agent   string         // path of the agent's image
	runtime string         // version of gVisor in modbox-sandbox; empty when unknown
	cpu     cpu            // of this host

	tunnels *agentapi.Memory // of all boxes

	readers chan struct{} // semaphore for reading trees, see readSlot

	// life ends when the driver is closed.
	life  context.Context
	close context.CancelCauseFunc
	// calls counts the calls in progress, watchers the goroutines that wait for the end of boxes.
	calls, watchers sync.WaitGroup

	mu    sync.Mutex
	boxes map[sandbox.ID]*box // guarded by mu
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Checkpointer = (*Driver)(nil)
	_ driver.Snapshotter  = (*Driver)(nil)
	_ driver.Networker    = (*Driver)(nil)
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
	cfg.RunDir, cfg.StateDir = filepath.Clean(cfg.RunDir), filepath.Clean(cfg.StateDir)
	d := &Driver{cfg: cfg, boxes: map[sandbox.ID]*box{}, tunnels: agentapi.NewMemory(tunnelMemory), readers: make(chan struct{}, raiseAtOnce)}
	d.tunnels.SetAnswerTimeout(cfg.AnswerTimeout)
	for _, dir := range []string{d.boxesDir(), d.layersDir(), d.agentsDir()} {
		if err := durable.MkdirAll(dir); err != nil {
			return nil, fmt.Errorf("gvisor: %w", err)
		}
	}
	if err := unix.Access(cfg.SandboxBinary, unix.X_OK); err != nil {
		return nil, fmt.Errorf("gvisor: sandbox binary %s: %w", cfg.SandboxBinary, err)
	}
	agent, err := agentImage(cfg.AgentBinary, d.agentsDir())
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	d.agent = agent
	d.cpu = hostCPU()
	if d.runtime, err = runtimeVersion(cfg.SandboxBinary); err != nil {
		cfg.Logger.Warn("checkpoints are not available", "error", err)
	}
	if d.binary, err = os.Open(cfg.SandboxBinary); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	// gVisor's library logs through a variable of its own, to stderr by default.
	gvlog.SetTarget(logTarget{cfg.Logger})
	d.life, d.close = context.WithCancelCause(context.Background())
	d.caps = d.detect()
	return d, nil
}

// installation returns a short name that is unique to the RunDir.
func (d *Driver) installation() string {
	sum := sha256.Sum256([]byte(d.cfg.RunDir))
	return "modbox-" + hex.EncodeToString(sum[:6])
}

// installationName matches the results of installation.
var installationName = regexp.MustCompile(`^modbox-[0-9a-f]{12}$`)

// detect finds out which limits this host can enforce.
func (d *Driver) detect() driver.Capabilities {
	caps := driver.Capabilities{Name: "gvisor", Isolated: true, Survives: true, Disk: true, Snapshot: true, Network: true}
	if caps.Checkpoint = d.runtime != ""; !caps.Checkpoint {
		caps.Missing = append(caps.Missing, "Sandboxes cannot be paused or forked: modbox-sandbox does not say which version of gVisor it contains; "+
			"install the modbox-sandbox that came with this server.")
	}
	host, err := cgroup.Detect()
	if err == nil {
		d.groups, err = host.Open(d.cfg.CgroupParent, d.installation())
	}
	if err != nil {
		d.cfg.Logger.Warn("control groups cannot be used", "error", err)
	} else {
		ok := d.groups.Controllers()
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
	if caps.Memory && !mayLowerOOMScore() {
		caps.Missing = append(caps.Missing, "A sandbox that uses up its memory may end as a whole: this server cannot protect "+
			"gVisor from being chosen by the kernel; give it the capability CAP_SYS_RESOURCE.")
	}
	return caps
}

// Capabilities implements [driver.Driver].
func (d *Driver) Capabilities() driver.Capabilities {
	caps := d.caps
	caps.Missing = append([]string(nil), caps.Missing...)
	return caps
}

// Close implements [driver.Driver].
func (d *Driver) Close() error {
	d.mu.Lock()
	d.close(errClosed)
	d.mu.Unlock()
	d.calls.Wait() // their contexts have ended, and they clean up after themselves
	d.mu.Lock()
	boxes := d.boxes
	d.boxes = map[sandbox.ID]*box{}
	d.mu.Unlock()
	for _, b := range boxes {
		b.letGo()
	}
	d.watchers.Wait()
	if d.groups != nil {
		_ = d.groups.Remove() // succeeds only when no box remains
		d.groups.Close()
	}
	return d.binary.Close()
}

// enter begins a call: the context that it returns ends with ctx and with the driver.
func (d *Driver) enter(ctx context.Context) (context.Context, context.CancelFunc) {
	merged, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.life, func() { cancel(errClosed) })
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life.Err() != nil {
		cancel(errClosed)
		return merged, func() { stop() }
	}
	d.calls.Add(1)
	return merged, func() { stop(); cancel(nil); d.calls.Done() }
}

// ended replaces an error caused by the end of ctx by the reason of that end.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// lookup returns a box that was made or recovered completely.
func (d *Driver) lookup(id sandbox.ID) (*box, error) {
	d.mu.Lock()
	b := d.boxes[id]
	d.mu.Unlock()
	if b == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no box %s", id)
	}
	select {
	case <-b.ready:
		return b, nil
	default:
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no box %s yet", id)
	}
}

// forget removes b from the table of boxes.
func (d *Driver) forget(b *box) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.boxes[b.id] == b {
		delete(d.boxes, b.id)
	}
}

func (d *Driver) boxesDir() string            { return filepath.Join(d.cfg.RunDir, "boxes") }
func (d *Driver) boxDir(id sandbox.ID) string { return filepath.Join(d.boxesDir(), string(id)) }
func (d *Driver) layersDir() string           { return layersDir(d.cfg.StateDir) }
func (d *Driver) agentsDir() string           { return filepath.Join(d.cfg.StateDir, "agents") }
func (d *Driver) group(id sandbox.ID) *cgroup.Group {
	if d.groups == nil {
		return nil
	}
	return d.groups.Group(string(id))
}
