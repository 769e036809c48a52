package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
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
	slots  *semaphore.Weighted // maxStages

	mu      sync.Mutex
	stages  map[stageKey]*stage // guarded by mu
	sending map[string]*sending // guarded by mu; images that stages wait for, by digest
}

// sending is an image that the worker lacks. Each stage that needs it waits for a place of its own workspace, and the first to get one sends it.
type sending struct {
	over  context.Context // ends with an attempt to send it
	end   context.CancelFunc
	users int  // guarded by the stager's mu
	begun bool // guarded by the stager's mu; it is being sent
}

func newStager(d *Driver) *stager {
	return &stager{
		driver: d, places: fairsem.New(maxTransfersAtOnce), kept: fairsem.New(maxKept), slots: semaphore.NewWeighted(maxStages),
		stages: map[stageKey]*stage{}, sending: map[string]*sending{},
	}
}

// Stage implements [driver.Stager].
func (d *Driver) Stage(ctx context.Context, w sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (release func(), err error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	images, err := imagesOf(spec.RootFS)
	if err != nil || len(images) == 0 && checkpoint == "" {
		return func() {}, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	st := d.stager.join(stageKey{spec.RootFS, checkpoint}, images, w)
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
	if g.slots.Acquire(ctx, 1) != nil {
		kept()
		return nil, context.Cause(ctx)
	}
	return func() { g.slots.Release(1); kept() }, nil
}

// maxTransfers bounds the attempts of a transfer over connections that break, and how often a worker may lose files meanwhile.
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
		case err == nil:
			return stream, s, nil
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

// stageOn is an attempt of transfer over a connection. The worker keeps what it has of the images until the stream ends, also while it gets the
// others.
func (g *stager) stageOn(ctx context.Context, s *session, req *request, st *stage, images []image, w sandbox.WorkspaceID) (_ *yamux.Stream, err error) {
	stream, answer, err := s.open(ctx, req)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = stream.Reset()
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = stream.Reset() })()
	for sent := 0; len(answer.Lacks) > 0; sent++ {
		i := slices.IndexFunc(images, func(i image) bool { return i.digest == answer.Lacks[0] })
		if i < 0 || sent == maxTransfers+len(images) {
			return nil, sandbox.Errorf(sandbox.Unavailable, "the worker does not keep the root filesystem that it gets; try again")
		}
		if err := g.sendImage(ctx, s, images[i], w); err != nil {
			return nil, err
		}
		if answer, err = s.confirmed(ctx, stream, writeMessage(stream, &response{})); err != nil { // the files that it lacks now
			return nil, err
		}
	}
	if st.key.dir != "" {
		err = g.sendCheckpoint(ctx, s, stream, st.key.dir, w)
	}
	return stream, err
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
	_, err = s.confirmed(ctx, stream, err)
	return err
}

// confirmed returns the worker's answer to what was sent on a stream with the error err. The answer is the reason if the worker did not take all of it.
func (s *session) confirmed(ctx context.Context, stream *yamux.Stream, err error) (*response, error) {
	var source *sourceError
	if errors.As(err, &source) { // the worker waits for the rest
		_ = stream.Reset()
		return nil, transferError(ctx, err)
	}
	answer := &response{}
	if rerr := readMessage(stream, maxAnswer, answer); rerr == nil && (err == nil || answer.Error != nil) {
		err = answer.Error.decode()
	} else if err == nil {
		err = rerr
	}
	if err != nil && s.lost(err) {
		return nil, errLost
	}
	return answer, transferError(ctx, err)
}

// lost reports whether an error of a stream is one of its connection.
func (s *session) lost(err error) bool {
	var coded *sandbox.Error
	return !errors.As(err, &coded) && (s.mux.IsClosed() || errors.Is(err, yamux.ErrStreamReset) || errors.Is(err, yamux.ErrSessionShutdown) || errors.Is(err, yamux.ErrStreamClosed))
}

// sendImage puts a file of a root filesystem into the worker's cache, or returns when another call has tried to.
func (g *stager) sendImage(ctx context.Context, s *session, i image, w sandbox.WorkspaceID) error {
	n := g.need(i.digest)
	defer g.done(i.digest, n)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(n.over, stop)()
	release, err := g.places.Acquire(waiting, w, nil)
	if err == nil {
		defer release()
	} else if ctx.Err() != nil || n.over.Err() == nil {
		return err
	}
	if n.over.Err() != nil {
		return nil
	}
	if !g.begin(n) {
		release()
		select {
		case <-n.over.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer g.finish(i.digest, n)
	content, err := g.driver.cfg.openRootfs(ctx, i)
	if err != nil {
		return &sourceError{err}
	}
	defer content.Close()
	stream, _, err := s.open(ctx, &request{Op: opImage, Digests: []string{i.digest}, Size: i.size})
	if err != nil {
		return err
	}
	defer stream.Reset()
	defer context.AfterFunc(ctx, func() { _ = stream.Reset() })()
	_, err = s.confirmed(ctx, stream, sendFile(stream, content, i.size))
	return err
}

// need returns the image of a digest that another stage needs; call done afterwards.
func (g *stager) need(digest string) *sending {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.sending[digest]
	if n == nil {
		n = &sending{}
		n.over, n.end = context.WithCancel(context.Background())
		g.sending[digest] = n
	}
	n.users++
	return n
}

func (g *stager) done(digest string, n *sending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n.users--; n.users == 0 {
		g.forgetSending(digest, n)
	}
}

// begin reports whether the caller is the first to send an image. It calls finish afterwards.
func (g *stager) begin(n *sending) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := !n.begun
	n.begun = true
	return first
}

// finish ends the waits for an attempt to send an image.
func (g *stager) finish(digest string, n *sending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgetSending(digest, n)
}

// forgetSending makes the next need begin anew.
//
// Preconditions: g.mu is held.
func (g *stager) forgetSending(digest string, n *sending) {
	if g.sending[digest] == n {
		delete(g.sending, digest)
	}
	n.end()
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
