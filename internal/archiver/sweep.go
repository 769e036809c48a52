package archiver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/archive"
	"github.com/modbox/modbox/internal/backup"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	tick = time.Minute
	// copyEvery is the time between two looks for states without a copy.
	copyEvery    = 5 * time.Second
	sweepEvery   = time.Hour
	collectEvery = 24 * time.Hour
	// sweepMost bounds the states that a sweep removes; the next goes on.
	sweepMost = 1000
)

// Run archives sandboxes that are paused for long, sweeps, and removes unused data, until the service closes.
func (s *Service) Run() {
	if s.cfg.URL == "" {
		return
	}
	if s.deps.Owner.Primary() {
		s.deps.Work.Go(s.collectDaily) // which waits for uploads
	}
	s.deps.Work.Go(s.sweepHourly) // which waits for the bucket
	ticker, looks := time.NewTicker(tick), time.NewTicker(copyEvery)
	defer ticker.Stop()
	defer looks.Stop()
	old := newBacklog(s)
	old.look()
	for {
		old.fill()
		select {
		case u := <-old.ended:
			old.end(u)
		case <-looks.C:
			old.look()
		case <-ticker.C:
			old.retry()
		case <-s.ctx.Done():
			return
		}
	}
}

// sweepHourly sweeps at the start of the server and then every hour, until the service closes.
func (s *Service) sweepHourly() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		s.Sweep(s.ctx)
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// collectDaily removes unused data until the service closes.
func (s *Service) collectDaily() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	collected := time.Now().Add(sweepEvery - collectEvery) // also by servers that are started every day
	for {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
		if time.Since(collected) >= collectEvery && s.Collect(s.ctx) {
			collected = time.Now()
		}
	}
}

// Sweep removes the remains of interrupted work, and as primary the stored states that no sandbox needs and whose grace period is over.
func (s *Service) Sweep(ctx context.Context) {
	s.sweepLocal(ctx)
	if !s.deps.Owner.Primary() {
		return
	}
	if err := s.sweepStored(ctx); err != nil && ctx.Err() == nil {
		s.log.Error("states in the object store not swept, trying again later", "error", err)
	}
}

// sweepLocal removes the local files of archived sandboxes that nothing else is done with.
func (s *Service) sweepLocal(ctx context.Context) {
	for _, b := range s.deps.Boxes() {
		if b.Busy() || !s.hasRemains(b) {
			continue
		}
		err := b.Exclusively(ctx, box.Archive, func() error {
			if s.hasRemains(b) {
				s.removeLocal(b, b.View().Sandbox.Saved)
			}
			return nil
		})
		if err != nil && ctx.Err() == nil && b.Context().Err() == nil {
			s.log.Error("local files of an archived sandbox not removed, trying again later", "sandbox", b.ID, "error", err)
		}
	}
}

func (s *Service) hasRemains(b *box.Box) bool {
	sb := b.View().Sandbox
	if sb.State != sandbox.Paused || sb.ArchivedAt.IsZero() {
		return false
	}
	_, err := os.Lstat(s.deps.Saved.Path(b.ID, sb.Saved))
	return !errors.Is(err, fs.ErrNotExist)
}

// sweepStored removes stored states.
func (s *Service) sweepStored(ctx context.Context) error {
	any, err := s.deps.States.Any(ctx)
	if err != nil {
		return err
	}
	// Without a record the bucket may still have the last state. If backups alone use it, it keeps their format.
	objects, err := object.OpenWithKeyFile(ctx, s.cfg.URL, s.cfg.KeyFile, object.Options{})
	if err != nil {
		return unlessUnused(err, any)
	}
	store := archive.New(objects, s.cfg.Space)
	defer func() { _ = store.Close() }() // it was only read
	before := time.Now().Add(-s.cfg.Grace)
	ids, err := s.deps.States.Released(ctx, "", before, sweepMost)
	if err != nil {
		return err
	}
	strays, err := store.Strays(ctx, s.cfg.Installation, before, func(id sandbox.CheckpointID) (bool, error) { return s.deps.States.Known(ctx, id) })
	if err != nil {
		return err
	}
	for _, id := range append(ids, strays...) {
		if _, err := s.remove(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a stored state that no sandbox needs. It reports whether the state counts no more: it may be needed by now.
//
// A state that another installation stored stays, and only its record goes: a restored copy of a server has records of states that the
// server itself still needs.
func (s *Service) remove(ctx context.Context, id sandbox.CheckpointID) (bool, error) {
	release, ok := s.lock(id)
	if !ok {
		return false, nil
	}
	defer release()
	store, err := s.open(ctx)
	if err != nil {
		return false, err
	}
	// The record goes first. After a crash the description is a stray, which the next sweep removes if it is old: either its grace period
	// was over, or its workspace needed the space.
	if _, err := s.deps.States.Forget(ctx, id); err != nil {
		return false, err
	}
	if known, err := s.deps.States.Known(ctx, id); err != nil || known { // the sandbox is paused with it: a later sweep removes it
		return false, err
	}
	st, err := store.Get(ctx, id)
	switch code := sandbox.CodeOf(err); {
	case code == sandbox.NotFound || err == nil && st.Installation != s.cfg.Installation:
		return true, nil
	case code == sandbox.Unsupported: // of another version
		s.unreadable(id, "it stays in the object store", err)
		return true, nil
	case code == sandbox.Invalid: // no server can use it, and it keeps all unused data
		s.unreadable(id, "it is removed", err)
	case err != nil:
		return false, err
	}
	return true, store.Remove(ctx, id)
}

// unreadable reports the description of a state that cannot be read, once, because the state has no record any more.
func (s *Service) unreadable(id sandbox.CheckpointID, then string, err error) {
	s.moved.unreadable.Inc()
	s.log.Warn("the description of a stored state that no sandbox needs cannot be read; "+then, "checkpoint", id, "error", err)
}

// unlessUnused returns the error of opening the bucket, nil if there is no bucket yet, because nothing was ever archived. any says that something was.
func unlessUnused(err error, any bool) error {
	if !any && (sandbox.CodeOf(err) == sandbox.NotFound || errors.Is(err, fs.ErrNotExist)) {
		return nil
	}
	return err
}

// Collect removes data that no backup and no archived sandbox uses. It reports whether the next attempt has time. It waits for the uploads of
// this server, and later uploads wait for it.
func (s *Service) Collect(ctx context.Context) bool {
	any, err := s.deps.States.Any(ctx)
	if err != nil {
		return false
	}
	if err := s.bucket.Acquire(ctx, uploads); err != nil {
		return false
	}
	defer s.bucket.Release(uploads)
	b, err := backup.OpenBucket(ctx, s.cfg.URL, s.cfg.KeyFile, false)
	if err == nil {
		_, err = b.Prune(ctx, 0, backup.Grace)
		err = errors.Join(err, b.Close())
	} else {
		err = unlessUnused(err, any)
	}
	if err == nil {
		err = s.deps.States.ClearSent(ctx)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("unused data in the bucket of archived sandboxes not removed, trying again later", "error", err)
	}
	return sandbox.CodeOf(err) != sandbox.Unavailable
}

// moved counts transfers, and descriptions of removed states that could not be read.
type moved struct {
	bytes      *prometheus.CounterVec
	unreadable prometheus.Counter
}

func newMoved() moved {
	m := moved{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modbox_archive_moved_bytes_total", Help: "Bytes of the states of archived sandboxes, by direction: sent, without data that the object store had; fetched.",
	}, []string{"direction"}), prometheus.NewCounter(prometheus.CounterOpts{
		Name: "modbox_archive_unreadable_total", Help: "States that no sandbox needs any more and whose description in the object store was damaged, and was removed, or of another version, and stays.",
	})}
	for _, d := range []string{"sent", "fetched"} {
		m.bytes.WithLabelValues(d)
	}
	return m
}

// Collectors returns the metrics of archived sandboxes; none without an object store.
func (s *Service) Collectors() []prometheus.Collector {
	if s.cfg.URL == "" {
		return nil
	}
	gauge := func(name, help string, of func(archived, bytes int64) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
			defer cancel()
			archived, bytes, _ := s.deps.States.Use(ctx) // 0 when the database cannot be read
			return float64(of(archived, bytes))
		})
	}
	uncopied := func(of func(context.Context) int) func() float64 {
		return func() float64 {
			if !s.cfg.Copies {
				return 0
			}
			ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
			defer cancel()
			return float64(of(ctx))
		}
	}
	states := uncopied(func(ctx context.Context) int {
		list, _ := s.deps.States.Uncopied(ctx) // none when the database cannot be read
		return len(list)
	})
	checkpoints := uncopied(func(ctx context.Context) int {
		list, _ := s.deps.Checkpoints.UncopiedCheckpoints(ctx) // see states
		return len(list)
	})
	waiting := func(of func() int) func() float64 { return func() float64 { return float64(of()) } }
	return []prometheus.Collector{
		s.moved.bytes, s.moved.unreadable,
		gauge("modbox_archive_sandboxes", "Archived sandboxes.", func(n, _ int64) int64 { return n }),
		gauge("modbox_archive_bytes", "States of archived and copied sandboxes and of copied checkpoints in the object store, and of sandboxes that were resumed or ended, and checkpoints that were deleted, within archive.grace.", func(_, n int64) int64 { return n }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "modbox_archive_uncopied_sandboxes", Help: "Paused sandboxes whose state is on the disk of the server alone, with archive.copies; otherwise 0."}, states),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "modbox_archive_uncopied_checkpoints", Help: "Checkpoints, named and automatic, that are on the disk of the server alone, with archive.copies; otherwise 0."}, checkpoints),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "modbox_archive_uploads_waiting", Help: "Sandboxes whose upload to the object store waits for others."}, waiting(s.uploads.Waiting)),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "modbox_archive_fetches_waiting", Help: "Sandboxes whose fetch from the object store waits for others."}, waiting(s.fetches.Waiting)),
	}
}
