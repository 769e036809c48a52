package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver/gvisor/agentimage"
	"github.com/modbox/modbox/internal/driver/gvisor/cgroup"
	"github.com/modbox/modbox/internal/driver/gvisor/launch"
	"github.com/modbox/modbox/internal/driver/gvisor/layer"
	"github.com/modbox/modbox/internal/sandbox"
)

// host is the part of a driver that all of its boxes use.
type host struct {
	paths  paths
	groups *cgroup.Parent // nil when the host offers no control groups
	logger *slog.Logger
	// container is the container of this process.
	container cgroup.Container
	tunnels   *agentapi.Memory // of all boxes
	answer    time.Duration    // see Config.AnswerTimeout
	readers   chan struct{}    // semaphore for reading trees, see readSlot
	strays    *straySearch

	// life ends when the driver is closed.
	life  context.Context
	close context.CancelCauseFunc
	// watchers counts the goroutines that wait for the end of boxes.
	watchers sync.WaitGroup
}

// newHost returns a host without control groups.
func newHost(cfg Config) *host {
	h := &host{
		paths:     paths{run: filepath.Clean(cfg.RunDir), state: filepath.Clean(cfg.StateDir)},
		container: cgroup.ThisContainer(), logger: cfg.Logger, answer: cfg.AnswerTimeout,
		tunnels: agentapi.NewMemory(tunnelMemory), readers: make(chan struct{}, raiseAtOnce),
		strays: &straySearch{list: launch.Strays},
	}
	h.tunnels.SetAnswerTimeout(cfg.AnswerTimeout)
	h.life, h.close = context.WithCancelCause(context.Background())
	return h
}

// openGroups opens the installation's control groups below parent.
func (h *host) openGroups(parent string) error {
	of, err := cgroup.Detect()
	if err != nil {
		return err
	}
	h.groups, err = of.Open(parent, h.paths.installation())
	return err
}

// group returns the control group of a box, or nil.
func (h *host) group(id sandbox.ID) *cgroup.Group {
	if h.groups == nil {
		return nil
	}
	return h.groups.Group(string(id))
}

// paths are the directories of an installation.
type paths struct{ run, state string }

func (p paths) boxes() string            { return filepath.Join(p.run, "boxes") }
func (p paths) box(id sandbox.ID) string { return filepath.Join(p.boxes(), string(id)) }
func (p paths) layers() layer.Dir        { return layer.Dir(filepath.Join(p.state, "layers")) }
func (p paths) agents() agentimage.Dir   { return agentimage.Dir(filepath.Join(p.state, "agents")) }

// installation returns a short name that is unique to the RunDir.
func (p paths) installation() string {
	sum := sha256.Sum256([]byte(p.run))
	return "modbox-" + hex.EncodeToString(sum[:6])
}

// installationName matches the results of installation.
var installationName = regexp.MustCompile(`^modbox-[0-9a-f]{12}$`)

// RemoveDeadLayers removes the layers of boxes without running processes, so that a server can
// start on a full disk: those boxes cannot be recovered. It returns the bytes freed. No server may
// use the state directory or make boxes meanwhile.
func RemoveDeadLayers(stateDir string) (freed int64, err error) {
	return paths{state: stateDir}.layers().RemoveDead()
}
