package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/libp2p/go-yamux/v5"
	"golang.org/x/sync/semaphore"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/sandbox"
)

// stageKey names what is staged together.
type stageKey struct{ rootfs, dir string }

// stage is a root filesystem and a checkpoint that the worker has, or is getting, as long as there are users. The worker keeps
// them as long as the stream of the call is there.
type stage struct {
	key    stageKey
	token  string        // names the checkpoint in calls
	ready  chan struct{} // closed when err is final
	err    error         // valid when ready
	cancel context.CancelFunc
	users  int // guarded by the stager's mu
}

// stager brings files to the worker.
type stager struct {
	driver *Driver
	places *fairsem.Semaphore  // of transfers
	kept   *fairsem.Semaphore  // of checkpoints on the worker, from their transfer until their boxes run
	held   *semaphore.Weighted // maxStages

	mu      sync.Mutex
	stages  map[stageKey]*stage      // guarded by mu
	sending map[string]chan struct{} // guarded by mu; images that are being sent, by digest
}

func newStager(d *Driver) *stager {
	return &stager{
		driver: d, places: fairsem.New(maxTransfersAtOnce), kept: fairsem.New(maxKept), held: semaphore.NewWeighted(maxStages),
		stages: map[stageKey]*stage{}, sending: map[string]chan struct{}{},
	}
}

// Stage implements [driver.Stager].
func (d *Driver) Stage(ctx context.Context, w sandbox.WorkspaceID, rootfs, checkpoint string) (release func(), err error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	images, err := imagesOf(rootfs)
	if err != nil || len(images) == 0 && checkpoint == "" {
		return func() {}, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	st := d.stager.join(stageKey{rootfs, checkpoint}, images, w)
	release = sync.OnceFunc(func() { d.stager.leave(st) })
	select {
	case <-st.ready:
		err = st.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// join returns the stage of a key with another user, and begins it if there is none. A call of the driver is in progress.
func (g *stager) join(key stageKey, images []image, w sandbox.WorkspaceID) *stage {
	g.mu.Lock()
	defer g.mu.Unlock()
	if st := g.stages[key]; st != nil {
		st.users++
		return st
	}
	st := &stage{key: key, token: rand.Text(), ready: make(chan struct{}), users: 1}
	var ctx context.Context
	ctx, st.cancel = context.WithCancel(g.driver.life)
	g.stages[key] = st
	g.driver.work.Go(func() { g.hold(ctx, st, images, w) })
	return st
}

// leave ends a use of a stage.
func (g *stager) leave(st *stage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if st.users--; st.users == 0 {
		g.forget(st)
		st.cancel()
	}
}

// forget makes the next Stage begin anew.
//
// Preconditions: g.mu is held.
func (g *stager) forget(st *stage) {
	if g.stages[st.key] == st {
		delete(g.stages, st.key)
	}
}

// hold has the worker get the files of a stage and keep them until ctx or the connection ends.
func (g *stager) hold(ctx context.Context, st *stage, images []image, w sandbox.WorkspaceID) {
	var stream *yamux.Stream
	var s *session
	release, err := g.place(ctx, st, w)
	if err == nil {
		defer release()
		stream, s, err = g.transfer(ctx, st, images, w)
	}
	if err == nil {
		close(st.ready)
		select {
		case <-ctx.Done():
		case <-s.mux.CloseChan():
		}
		_ = stream.Reset()
	}
	g.mu.Lock()
	g.forget(st)
	g.mu.Unlock()
	if err != nil {
		st.err = err
		close(st.ready)
	}
}

// place takes the place of a stage. The disk of the worker has few checkpoints at a time, which workspaces share.
func (g *stager) place(ctx context.Context, st *stage, w sandbox.WorkspaceID) (release func(), err error) {
	kept := func() {}
	if st.key.dir != "" && w != "" { // checkpoints of templates are the server's own
		if kept, err = g.kept.Acquire(ctx, w, nil); err != nil {
			return nil, err
		}
	}
	if g.held.Acquire(ctx, 1) != nil {
		kept()
		return nil, context.Cause(ctx)
	}
	return func() { g.held.Release(1); kept() }, nil
}

// maxTransfers bounds the attempts of a transfer: another may get files, or the worker may lose them.
const maxTransfers = 8

// transfer sends what the worker lacks, and returns the stream that keeps it there.
func (g *stager) transfer(ctx context.Context, st *stage, images []image, w sandbox.WorkspaceID) (*yamux.Stream, *session, error) {
	req := &request{Op: opStage}
	for _, i := range images {
		req.Digests = append(req.Digests, i.digest)
	}
	if st.key.dir != "" {
		req.Token = st.token
	}
	last := errOutcome
	for range maxTransfers {
		s, err := g.driver.current(ctx, g.driver.cfg.Patience)
		if err != nil {
			return nil, nil, err
		}
		stream, err := g.stageOn(ctx, s, req, st, images, w)
		switch {
		case err == nil && stream != nil:
			return stream, s, nil
		case err == nil: // now it has the images
			continue
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case errors.Is(err, errLost):
			if !s.over(ctx) {
				return nil, nil, errOutcome
			}
			last = errOutcome
			continue
		}
		return nil, nil, err
	}
	return nil, nil, last
}

// stageOn is an attempt of transfer over a connection. The stream is nil if images were sent first.
func (g *stager) stageOn(ctx context.Context, s *session, req *request, st *stage, images []image, w sandbox.WorkspaceID) (*yamux.Stream, error) {
	stream, answer, err := s.open(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(answer.Lacks) > 0 {
		_ = stream.Reset()
		for _, i := range images {
			for _, digest := range answer.Lacks {
				if digest != i.digest {
					continue
				}
				if err := g.sendImage(ctx, s, i, w); err != nil {
					return nil, err
				}
			}
		}
		return nil, nil
	}
	if st.key.dir != "" {
		err = g.sendCheckpoint(ctx, s, stream, st.key.dir, w)
	}
	if err != nil {
		_ = stream.Reset()
		return nil, err
	}
	return stream, nil
}

// sendCheckpoint sends a checkpoint on the stream of its stage.
func (g *stager) sendCheckpoint(ctx context.Context, s *session, stream *yamux.Stream, dir string, w sandbox.WorkspaceID) error {
	files, err := filesOf(dir)
	if err != nil {
		return err
	}
	for i := range files { // a restore does not need it
		files[i].Hole = files[i].Name == driver.LayerFile
	}
	release, err := g.places.Acquire(ctx, w, nil)
	if err != nil {
		return err
	}
	defer release()
	defer context.AfterFunc(ctx, func() { _ = stream.Reset() })()
	err = sendTree(stream, dir, files)
	var source *sourceError
	if errors.As(err, &source) {
		_ = stream.Reset()
		return source.ofCheckpoint()
	}
	return s.confirmed(ctx, stream, err)
}

// confirmed returns the worker's answer to what was sent on a stream with the error err. The answer is the reason if the worker did not take all of it.
func (s *session) confirmed(ctx context.Context, stream *yamux.Stream, err error) error {
	var source *sourceError
	if errors.As(err, &source) { // the worker waits for the rest
		_ = stream.Reset()
		return transferError(ctx, err)
	}
	var answer response
	if rerr := readMessage(stream, maxAnswer, &answer); rerr == nil && (err == nil || answer.Error != nil) {
		err = answer.Error.decode()
	} else if err == nil {
		err = rerr
	}
	if err != nil && s.lost(err) {
		return errLost
	}
	return transferError(ctx, err)
}

// lost reports whether an error of a stream is one of its connection.
func (s *session) lost(err error) bool {
	var coded *sandbox.Error
	return !errors.As(err, &coded) && (s.mux.IsClosed() || errors.Is(err, yamux.ErrStreamReset) || errors.Is(err, yamux.ErrSessionShutdown) || errors.Is(err, yamux.ErrStreamClosed))
}

// sendImage puts a file of a root filesystem into the worker's cache, or waits until another call has tried to.
func (g *stager) sendImage(ctx context.Context, s *session, i image, w sandbox.WorkspaceID) error {
	g.mu.Lock()
	other := g.sending[i.digest]
	if other == nil {
		sent := make(chan struct{})
		g.sending[i.digest] = sent
		defer func() {
			g.mu.Lock()
			delete(g.sending, i.digest)
			g.mu.Unlock()
			close(sent)
		}()
	}
	g.mu.Unlock()
	if other != nil {
		select {
		case <-other:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	release, err := g.places.Acquire(ctx, w, nil)
	if err != nil {
		return err
	}
	defer release()
	stream, _, err := s.open(ctx, &request{Op: opImage, Digests: []string{i.digest}, Size: i.size})
	if err != nil {
		return err
	}
	defer stream.Reset()
	defer context.AfterFunc(ctx, func() { _ = stream.Reset() })()
	return s.confirmed(ctx, stream, sendFile(stream, i.path, i.size))
}

// staged returns the token of a checkpoint that the worker has. Errors: [driver.ErrNotStaged].
func (g *stager) staged(rootfs, dir string) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if st := g.stages[stageKey{rootfs, dir}]; st != nil {
		select {
		case <-st.ready:
			return st.token, nil
		default:
		}
	}
	return "", driver.ErrNotStaged
}
