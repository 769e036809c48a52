// Package output stores the output of ended executions in an object store, so that another server with the same database can return it.
//
// The streams stay on the disk of the server that has written them. A stream is the objects output/INSTALLATION/XX/STREAM.N: parts of its
// file, of which the first, with the sizes, is written last. XX ends the id of the stream. The record of the execution then has the installation. A
// stream that is missing on the disk is fetched to it by the first reader.
//
// The record is deleted before the objects. A server that is killed between leaves objects of an execution without a record; the sweep
// removes them.
package output

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/stream"
)

const (
	// uploads and fetches bound the streams that are sent and fetched at a time. Each has a part in memory. Removals have none.
	uploads, fetches, removers = 4, 4, 16
	batch                      = 100
	tick                       = time.Minute
	sweepEvery                 = time.Hour
	// grace is the age of objects without a record that a sweep removes: the database may be a copy of another server's.
	grace = 24 * time.Hour
	// pause is the time between two looks for executions that have ended. lateness is the time by which an end may usually be recorded after a
	// later end; the hourly look at all executions finds the others.
	pause, lateness = time.Second, time.Minute
	// removalsMax bounds the streams that wait for their removal. The sweep removes the others. While half as many wait nothing is
	// stored, so that the bucket has no more than what is recorded and what waits.
	removalsMax = 10_000
	// patience bounds the time that a reader waits for a bucket that refuses requests.
	patience = 10 * time.Second
)

// Config are the settings of the service.
type Config struct {
	// URL is the bucket, and KeyFile has the key that encrypts the objects; "" for no encryption.
	URL, KeyFile string
	// Store says that output is stored. Otherwise output that was stored earlier is fetched and removed.
	Store bool
	// Installation is the id of the installation.
	Installation string
	// Space is the space of the disk to which streams are fetched; nil for a budget of its own.
	Space *ballast.Budget
}

// Records are the records of where output is. Their methods are safe for concurrent use.
type Records interface {
	// Unstored returns at most limit executions in the sandboxes of the server that ended at a time or later and whose output is not stored, the oldest
	// end first.
	Unstored(ctx context.Context, since time.Time, limit int) ([]sandbox.Execution, error)
	// Foreign returns at most limit executions whose output another installation than by has stored, those after an id, in the order of the ids.
	Foreign(ctx context.Context, by string, after sandbox.ExecutionID, limit int) ([]sandbox.Execution, error)
	// Store records the installation that has stored the output of an execution. It reports whether there is such an execution.
	Store(ctx context.Context, id sandbox.ExecutionID, by string) (bool, error)
	// Stored returns a stored stream. Errors: NotFound.
	Stored(ctx context.Context, id sandbox.StreamID) (sandbox.StoredStream, error)
	// All returns all stored streams, some of them twice.
	All(ctx context.Context) ([]sandbox.StoredStream, error)
	// Owners returns the streams of all executions, with their workspaces.
	Owners(ctx context.Context) (map[sandbox.StreamID]sandbox.WorkspaceID, error)
}

// Deps are the parts that the service uses. It does not close them.
type Deps struct {
	Records Records
	// Used reports whether anything was stored in the bucket: then a missing store is an error.
	Used func(context.Context) (bool, error)
	// Confirm returns an error if another server may have taken the database over: this server then sweeps nothing.
	Confirm func(context.Context) error
	Streams *stream.Store
	// Owner has the part of the server; nil for all sandboxes. A server stores the output of its own sandboxes, and the primary alone adopts and sweeps.
	Owner  *sandbox.Ownership
	Logger *slog.Logger
}

// Service stores the output of ended executions. It is safe for concurrent use.
type Service struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	fetches *fairsem.Semaphore
	moved   moved
	objects *object.Lazy
	ended   chan struct{} // has an element when an execution has ended
	deleted chan struct{} // has an element when there are removals

	mu       sync.Mutex
	removals []sandbox.StreamID // guarded by mu
}

// New returns a service that does nothing until Run.
func New(cfg Config, deps Deps) *Service {
	cfg.Space = cmp.Or(cfg.Space, ballast.NewBudget(0))
	return &Service{
		cfg: cfg, deps: deps, log: deps.Logger, fetches: fairsem.New(fetches), moved: newMoved(), objects: object.NewLazy(cfg.URL, cfg.KeyFile, deps.Used),
		ended: make(chan struct{}, 1), deleted: make(chan struct{}, 1),
	}
}

// Wake says that an execution has ended.
func (s *Service) Wake() { wake(s.ended) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run stores, removes and sweeps until ctx ends. Removals do not wait for what is stored.
func (s *Service) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	if s.cfg.Store {
		var since, all time.Time
		adopted := !s.deps.Owner.Primary()
		work.Go(func() {
			repeat(ctx, s.ended, func() {
				if !adopted && time.Since(all) >= sweepEvery {
					adopted = s.adopt(ctx)
				}
				if time.Since(all) >= sweepEvery {
					all, since = time.Now(), time.Time{}
				}
				since = s.storeEnded(ctx, since)
			})
		})
	}
	var swept time.Time
	repeat(ctx, s.deleted, func() {
		s.removeQueued(ctx)
		if s.deps.Owner.Primary() && time.Since(swept) >= sweepEvery {
			swept = time.Now()
			if err := s.Sweep(ctx, time.Now().Add(-grace)); err != nil {
				s.failed(ctx, "stored output of executions not swept", err)
			}
		}
	})
}

// repeat calls f at once, and a moment after each wake and each tick, until ctx ends.
func repeat(ctx context.Context, wake <-chan struct{}, f func()) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for ctx.Err() == nil {
		f()
		select {
		case <-wake:
		case <-ticker.C:
		case <-ctx.Done():
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (s *Service) failed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		s.moved.failures.Inc()
		s.log.Warn(what+", trying again later", "error", err)
	}
}

// storeEnded stores the output of executions that ended at a time or later, and returns the time for the next call.
func (s *Service) storeEnded(ctx context.Context, since time.Time) time.Time {
	for ctx.Err() == nil && s.waiting() < removalsMax/2 {
		list, err := s.deps.Records.Unstored(ctx, since, batch)
		if err != nil {
			s.failed(ctx, "executions whose output is not stored cannot be listed", err)
			return since
		}
		if err := s.storeAll(ctx, list); err != nil {
			s.failed(ctx, "output of executions not stored", err)
			return since
		}
		if len(list) < batch {
			return time.Now().Add(-lateness)
		}
	}
	return since
}

// adopt stores the output that another installation has stored and may remove: a restored server has the records of the earlier server. It reports
// whether that was done.
func (s *Service) adopt(ctx context.Context) bool {
	for after := sandbox.ExecutionID(""); ; {
		list, err := s.deps.Records.Foreign(ctx, s.cfg.Installation, after, batch)
		if err == nil && len(list) == 0 {
			return true
		}
		if err == nil {
			after = list[len(list)-1].ID
			err = s.storeAll(ctx, list)
		}
		if err != nil {
			s.failed(ctx, "output that another installation has stored is not stored again", err)
			return false
		}
	}
}

// storeAll stores the output of executions, and records that. A local bucket is synced once for all of them.
func (s *Service) storeAll(ctx context.Context, list []sandbox.Execution) error {
	if len(list) == 0 {
		return nil
	}
	objects, err := s.objects.Open(ctx, true)
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards errs and stored
	var errs []error
	type record struct {
		sandbox.Execution
		by string
	}
	var stored []record
	background.Each(inTurns(list), uploads, func(e sandbox.Execution) {
		by, err := s.put(ctx, objects, &e)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, fmt.Errorf("execution %s: %w", e.ID, err))
		} else {
			stored = append(stored, record{e, by})
		}
	})
	if err := objects.Flush(); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, r := range stored {
		found, err := s.deps.Records.Store(ctx, r.ID, r.by)
		if err != nil {
			errs = append(errs, err)
		} else if !found { // it was deleted meanwhile
			s.Remove(&r.Execution)
		}
	}
	return errors.Join(errs...)
}

// inTurns orders executions so that workspaces take turns.
func inTurns(list []sandbox.Execution) []sandbox.Execution {
	position, count := map[sandbox.ExecutionID]int{}, map[sandbox.WorkspaceID]int{}
	for _, e := range list {
		position[e.ID] = count[e.Workspace]
		count[e.Workspace]++
	}
	slices.SortStableFunc(list, func(a, b sandbox.Execution) int { return position[a.ID] - position[b.ID] })
	return list
}

// put stores the output of an execution. It returns what its record is to say.
func (s *Service) put(ctx context.Context, objects *object.Store, e *sandbox.Execution) (by string, err error) {
	by = sandbox.NothingStored
	for _, ref := range refs(e) {
		if ref.Bytes == 0 { // the record says it all
			by = s.cfg.Installation
			continue
		}
		c, err := s.deps.Streams.Export(ref.ID)
		if err != nil && e.StoredBy != "" { // by another installation
			if gone, err := s.copy(ctx, objects, ref.ID, e.StoredBy); err != nil || gone {
				return e.StoredBy, err
			}
			by = s.cfg.Installation
			continue
		}
		switch code := sandbox.CodeOf(err); {
		case code == sandbox.NotFound: // it was removed
			continue
		case code == sandbox.Conflict || code == sandbox.Unsupported: // it has no end, which the full disk may have prevented, or is damaged; nothing changes that
			s.log.Warn("output of an execution is not stored", "execution", e.ID, "error", err)
			continue
		case err != nil:
			return "", err
		}
		by = s.cfg.Installation
		if err := errors.Join(s.send(ctx, objects, ref.ID, c), c.Close()); err != nil {
			return "", err
		}
	}
	return by, nil
}

// copy copies the objects of a stream that another installation has stored. It reports whether any is missing or damaged.
func (s *Service) copy(ctx context.Context, objects *object.Store, id sandbox.StreamID, by string) (gone bool, err error) {
	from, to := nameOf(by, id), nameOf(s.cfg.Installation, id)
	first, err := objects.Part(ctx, from, 0)
	var h head
	if err == nil {
		h, _, err = decode(first)
	}
	for n := 1; n < h.parts() && err == nil; n++ {
		var data []byte
		if data, err = objects.Part(ctx, from, n); err == nil {
			err = objects.Put(ctx, object.PartKey(to, n), data)
		}
	}
	if code := sandbox.CodeOf(err); code == sandbox.NotFound || code == sandbox.Invalid {
		s.log.Warn("output that another installation has stored is missing or damaged", "stream", id, "error", err)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if err := objects.Put(ctx, object.PartKey(to, 0), first); err != nil {
		return false, err
	}
	s.moved.bytes.WithLabelValues("sent").Add(float64(h.total()))
	return false, nil
}

// refs returns the outputs of an execution.
func refs(e *sandbox.Execution) []sandbox.StreamRef {
	if e.Stdout.ID == e.Stderr.ID {
		return []sandbox.StreamRef{e.Stdout}
	}
	return []sandbox.StreamRef{e.Stdout, e.Stderr}
}

// send sends the parts of a stream, the first part last.
func (s *Service) send(ctx context.Context, objects *object.Store, id sandbox.StreamID, c *stream.Copy) error {
	h := head{Size: c.Size, Times: c.Times}
	first := make([]byte, min(partBytes, h.total()))
	if _, err := io.ReadFull(c, first); err != nil {
		return err
	}
	part := make([]byte, min(partBytes, h.total()))
	for n := 1; n < h.parts(); n++ {
		size, err := io.ReadFull(c, part)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if err := objects.Put(ctx, object.PartKey(nameOf(s.cfg.Installation, id), n), part[:size]); err != nil {
			return err
		}
	}
	if err := objects.Put(ctx, object.PartKey(nameOf(s.cfg.Installation, id), 0), h.encode(first)); err != nil {
		return err
	}
	s.moved.bytes.WithLabelValues("sent").Add(float64(h.total()))
	return nil
}

// Fetch brings a stored stream to the disk, unless it is there. Errors: NotFound when there is no such stream; Unavailable when the object store
// cannot be used; Unsupported when the stored stream is missing or damaged; DiskFull.
func (s *Service) Fetch(ctx context.Context, id sandbox.StreamID) error {
	st, err := s.deps.Records.Stored(ctx, id)
	if err != nil {
		return err
	}
	leave, err := s.fetches.Acquire(ctx, st.Workspace, nil)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := s.deps.Streams.Info(id); err == nil { // another reader has fetched it
		return nil
	}
	if st.Bytes == 0 {
		empty := stream.Empty(time.Now(), st.Truncated)
		return s.deps.Streams.Import(id, bytes.NewReader(empty), int64(len(empty)), 0)
	}
	objects, err := s.objects.Within(ctx, patience)
	if err != nil {
		return unusable(ctx, err)
	}
	if err = s.fetch(ctx, objects, &st); err == nil {
		// The execution may have been deleted meanwhile, before its file was there.
		if _, err = s.deps.Records.Stored(ctx, id); sandbox.CodeOf(err) == sandbox.NotFound {
			return errors.Join(err, s.deps.Streams.Remove(id))
		}
		return err
	}
	switch code := sandbox.CodeOf(err); {
	case code == sandbox.DiskFull:
		return err
	case code == sandbox.NotFound || code == sandbox.Invalid:
		s.log.Error("stored output of an execution is missing or damaged", "stream", id, "error", err)
		return sandbox.Wrap(sandbox.Unsupported, err, "the output is missing or damaged in the object store")
	}
	return unusable(ctx, err)
}

// unusable explains an error of the bucket to the reader of a stream, who does not know it.
func unusable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the output is in the object store, which cannot be used now (archive.url); try again, or ask an administrator")
}

// fetch writes a stored stream to the disk.
func (s *Service) fetch(ctx context.Context, objects *object.Store, st *sandbox.StoredStream) error {
	name := nameOf(st.By, st.ID)
	data, err := objects.Part(ctx, name, 0)
	if err != nil {
		return err
	}
	h, first, err := decode(data)
	if err != nil {
		return err
	}
	space, err := s.cfg.Space.Reserve(s.deps.Streams.Dir(), h.total(), "fetch the output")
	if err != nil {
		return err
	}
	defer space.Release()
	if err := s.deps.Streams.Import(st.ID, objects.Parts(ctx, name, first, h.parts()), h.Size, h.Times); err != nil {
		return err
	}
	s.moved.bytes.WithLabelValues("fetched").Add(float64(h.total()))
	return nil
}

// Sizes returns the bytes of the stored streams.
func (s *Service) Sizes(ctx context.Context) (map[sandbox.StreamID]int64, error) {
	all, err := s.deps.Records.All(ctx)
	if err != nil {
		return nil, err
	}
	sizes := make(map[sandbox.StreamID]int64, len(all))
	for _, st := range all {
		sizes[st.ID] = st.Bytes
	}
	return sizes, nil
}

// Close closes the object store, after Run and the readers have ended.
func (s *Service) Close() error { return s.objects.Close() }
