package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/eviction"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
)

// startSpace is how many bytes must be free for the start of a server, which creates the
// write-ahead log of the database and several small files.
const startSpace = 24 << 20

// disk manages the disk of the state directory: the reserve on it, and freeing space before it is
// full. It implements [eviction.Host].
type disk struct {
	dir     string
	cfg     eviction.Config
	ballast *ballast.Ballast
	space   *ballast.Budget    // for large files that come over the network
	store   *store.Store       // nil before attach, like the other fields here
	images  *image.Store       //
	service *lifecycle.Service //
	// templates removes all memory templates, and returns their size.
	templates interface{ RemoveAll() int64 }
	log       *slog.Logger
	pressure  atomic.Bool

	quarantine *quarantine.Store
	limits     quarantine.Limits
	removing   sync.Mutex // serialises removals from quarantine
}

// openDisk makes space for the start of the server on a full disk, from the ballast of the previous
// server. accept is for [parts.openStore].
func openDisk(ctx context.Context, cfg config.Config, accept bool, log *slog.Logger) (*disk, error) {
	b, err := ballast.Open(filepath.Join(cfg.StateDir, statedir.BallastDir), int64(cfg.Disk.Ballast), log)
	if err != nil {
		return nil, err
	}
	d := &disk{dir: cfg.StateDir, ballast: b, space: ballast.NewBudget(int64(cfg.MinFreeDisk)), log: log, cfg: evictionConfig(cfg), quarantine: OpenQuarantine(cfg), limits: quarantineLimits(cfg)}
	short := func() (bool, error) {
		free, err := ballast.Free(d.dir)
		return free.Bytes < startSpace || free.Inodes == 0, err
	}
	for {
		if none, err := short(); err != nil || !none {
			return d, err
		}
		if !b.Release() {
			break
		}
	}
	// Nothing is removed if the database may be the wrong one.
	if reason := fitsInstallation(ctx, cfg); reason != nil && !accept {
		log.Warn("the disk is full, and files of ended sandboxes are not removed because the database does not fit", "reason", reason)
		return d, nil
	}
	freed, err := gvisor.RemoveDeadLayers(d.dir)
	if err != nil {
		log.Error("cannot remove files of ended sandboxes from the full disk", "error", err)
	}
	if freed > 0 {
		log.Warn("the disk is full: files of sandboxes without processes were removed", "bytes", freed)
	}
	return d, nil
}

// retry repeats a step of the start, which must be safe to repeat, while the disk is full and the
// ballast can release space.
func (d *disk) retry(f func() error) error {
	for {
		err := f()
		if !ballast.IsFull(err) && !errors.Is(err, sandbox.ErrNoSpace) || !d.ballast.Release() {
			return err
		}
	}
}

// withSpace is retry for a step that returns a value.
func withSpace[T any](d *disk, make func() (T, error)) (made T, err error) {
	err = d.retry(func() (err error) {
		made, err = make()
		return err
	})
	return made, err
}

// attach lets the database use the ballast.
func (d *disk) attach(st *store.Store) {
	d.store = st
	st.OnFull(d.ballast.Release)
	if err := st.ReserveLog(); err != nil {
		d.log.Error("cannot reserve disk space for the database, trying again soon", "error", err)
	}
}

// watch begins to free space when it is scarce. The parts must have been started.
func (d *disk) watch(ctx context.Context, p *parts, cu *cleanup.Cleanup) {
	d.images, d.service, d.templates = p.images, p.Lifecycle, p.Lifecycle.Templates()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	tasks.Go(func() { eviction.New(d.cfg, d, d.log).Run(ctx) })
	if d.store.Owner().Primary() {
		tasks.Go(func() { d.trimQuarantine(ctx) })
	}
	cu.Add(func() {
		cancel()
		tasks.Wait()
	})
}

// collectors returns the metrics of the disk.
func (d *disk) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modbox_disk_free_bytes", Help: "Free bytes on the disk of the state directory.",
		}, func() float64 {
			free, err := d.Free()
			if err != nil {
				return -1
			}
			return float64(free)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modbox_disk_pressure", Help: "1 while less than disk.evict_below is free and the server frees space, else 0.",
		}, func() float64 {
			if d.pressure.Load() {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modbox_disk_ballast_bytes", Help: "Bytes of the disk held in reserve; less than disk.ballast after the disk was full.",
		}, func() float64 { return float64(d.ballast.Reserved()) }),
	}
}

// Free implements [eviction.Host].
func (d *disk) Free() (int64, error) {
	free, err := ballast.Free(d.dir)
	return free.Usable(), err
}

// RemoveQuarantined implements [eviction.Host]: it removes saved states first, and then all root
// filesystems at once. Of several servers the primary does: together they would remove more than is needed.
func (d *disk) RemoveQuarantined(ctx context.Context, bytes int64) error {
	if !d.store.Owner().Primary() {
		return nil
	}
	d.removing.Lock()
	removed, err := d.quarantine.RemoveOldest(ctx, bytes)
	d.removing.Unlock()
	d.logRemoved(removed, "its bytes are needed")
	if err != nil {
		return err
	}
	for _, e := range removed {
		bytes -= e.SizeBytes
	}
	lost, err := d.images.Removal().Lost(ctx)
	if err != nil || bytes <= 0 || len(lost) == 0 {
		return err
	}
	pruned, err := d.images.Removal().PruneFor(ctx, image.PruneRequest{All: true, Lost: true})
	if err != nil {
		return fmt.Errorf("remove root filesystems that the database does not know: %w", err)
	}
	d.log.Warn("root filesystems that the database does not know were removed to free space", "bytes", pruned.FreedBytes)
	return nil
}

func (d *disk) logRemoved(removed []quarantine.Entry, reason string) {
	for _, e := range removed {
		d.log.Warn("a saved state in quarantine was removed", "sandbox", e.Sandbox, "checkpoint", e.Checkpoint, "since", e.At, "reason", reason)
	}
}

// trimInterval is the interval between trims of the quarantine.
const trimInterval = time.Minute

// trimQuarantine keeps the quarantine within its limits until ctx ends.
func (d *disk) trimQuarantine(ctx context.Context) {
	tick := time.NewTicker(trimInterval)
	defer tick.Stop()
	for {
		d.removing.Lock()
		removed, err := d.quarantine.Trim(ctx, d.limits, time.Now())
		d.removing.Unlock()
		d.logRemoved(removed, "it was too old, or the quarantine was too large")
		if err != nil && ctx.Err() == nil {
			d.log.Error("cannot trim the quarantine, trying again soon", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// RemoveCaches implements [eviction.Host].
func (d *disk) RemoveCaches(ctx context.Context) (int64, error) {
	freed := d.templates.RemoveAll()
	pruned, err := d.images.Removal().PruneFor(ctx, image.PruneRequest{All: true})
	return freed + pruned.FreedBytes, err
}

// DiskUse implements [eviction.Host].
func (d *disk) DiskUse(context.Context) ([]eviction.Use, error) {
	boxes, err := d.service.Disk().Use()
	uses := make([]eviction.Use, len(boxes))
	for i, b := range boxes {
		uses[i] = eviction.Use{ID: b.ID, Bytes: b.Bytes, Ending: b.Ending}
	}
	return uses, err
}

// Evict implements [eviction.Host].
func (d *disk) Evict(_ context.Context, id sandbox.ID, message string) error {
	return d.service.Disk().Evict(id, message)
}

// Looked implements [eviction.Host].
func (d *disk) Looked(_ int64, pressure bool) {
	d.pressure.Store(pressure)
	if err := d.ballast.Restore(); err != nil {
		d.log.Error("cannot reserve disk space, trying again soon", "error", err)
	}
	if err := d.store.ReserveLog(); err != nil {
		d.log.Error("cannot reserve disk space for the database, trying again soon", "error", err)
	}
}
