package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// defaultPatience limits the time for which a call waits for a worker.
const defaultPatience = 30 * time.Second

// Config configures a [Driver].
type Config struct {
	// Installation and Epoch are for the worker, see [Control].
	Installation string
	Epoch        int64
	// Saved reads checkpoints on this host, as the worker's driver makes them.
	Saved Saved
	// OpenRootfs opens the content of a root filesystem, with its digest and the path of its file; nil opens the file.
	OpenRootfs func(ctx context.Context, digest, path string) (io.ReadCloser, error)
	// Space is the space of the disk for checkpoints of the worker; nil for a budget of its own.
	Space *ballast.Budget
	// Patience is how long a call other than Wait and Checkpoint waits for a worker; 0 means 30 seconds.
	Patience time.Duration
	Log      *slog.Logger
}

func (c *Config) openRootfs(ctx context.Context, i image) (io.ReadCloser, error) {
	if c.OpenRootfs == nil {
		return os.Open(i.path)
	}
	return c.OpenRootfs(ctx, i.digest, i.path)
}

// Saved reads checkpoints, see [driver.Checkpointer].
type Saved interface {
	// OpenLayer returns the files that were saved.
	OpenLayer(dir string) (io.ReadCloser, error)
	// Verify reads a whole checkpoint.
	Verify(ctx context.Context, dir string) (memory, files error)
}

// Driver is a driver whose boxes are on a worker's host. It needs a connection, see [Driver.Attach].
type Driver struct {
	cfg  Config
	id   string
	life context.Context // ends with the driver
	end  context.CancelCauseFunc
	work sync.WaitGroup // calls, connections to the worker, and interfaces

	dials, agentDials, waits, links, bodies *semaphore.Weighted // see maxStreams

	*saveQueue
	stager *stager

	connected broadcast.Broadcast // there is another session

	mu      sync.Mutex           // excludes the beginning of work and its end
	session *session             // guarded by mu; nil without
	caps    *driver.Capabilities // guarded by mu; nil before the first session
	boxes   map[sandbox.ID]*box  // guarded by mu; made or recovered by this driver
	// unclear are boxes whose Create or Restore had no answer; they are to be destroyed. Guarded by mu.
	unclear map[sandbox.ID]bool

	clearing *semaphore.Weighted // 1; held while an unclear box is destroyed
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Checkpointer = (*Driver)(nil)
	_ driver.Snapshotter  = (*Driver)(nil)
	_ driver.Networker    = (*Driver)(nil)
	_ driver.Furnisher    = (*Driver)(nil)
	_ driver.Meter        = (*Driver)(nil)
	_ driver.DiskMeter    = (*Driver)(nil)
	_ driver.Stager       = (*Driver)(nil)
	_ driver.SaveReserver = (*Driver)(nil)
)

var (
	errClosed  = sandbox.Errorf(sandbox.Unavailable, "the server is shutting down")
	errAway    = driver.ErrAway
	errOutcome = sandbox.Wrap(sandbox.Unavailable, driver.ErrAway, "the connection to the worker was lost")
	errGone    = sandbox.Errorf(sandbox.Unavailable, "the box has ended while its worker was away")
)

// New returns a driver that knows no box and has no worker yet.
func New(cfg Config) *Driver {
	if cfg.Patience == 0 {
		cfg.Patience = defaultPatience
	}
	cfg.Space = cmp.Or(cfg.Space, ballast.NewBudget(0))
	d := &Driver{
		cfg: cfg, id: rand.Text(),
		dials: semaphore.NewWeighted(maxDials), agentDials: semaphore.NewWeighted(maxAgentDials),
		waits: semaphore.NewWeighted(maxWaits), links: semaphore.NewWeighted(maxLinks), bodies: semaphore.NewWeighted(maxBodies),
		boxes: map[sandbox.ID]*box{}, unclear: map[sandbox.ID]bool{}, clearing: semaphore.NewWeighted(1),
	}
	d.saveQueue, d.stager = newSaveQueue(d), newStager(d)
	d.life, d.end = context.WithCancelCause(context.Background())
	return d
}

// Attach uses the connection to a worker, until it breaks or the driver is closed, and closes it. A connection
// replaces the one before. accepted is called with its answer when the worker has accepted this control plane, and may refuse the worker.
// Errors: of accepted; the reason why the worker refuses this control plane, or cannot be used.
func (d *Driver) Attach(ctx context.Context, conn net.Conn, accepted func(Welcome) error) error {
	ctx, leave := d.enter(ctx)
	defer leave()
	s, err := newSession(conn)
	if err != nil {
		_ = conn.Close()
		return err
	}
	defer s.mux.Close()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := d.greet(ctx, s, accepted); err != nil {
		return err
	}
	d.connected.Send()
	select {
	case <-s.mux.CloseChan():
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == s {
		d.session = nil
	}
	return nil
}

// greet makes a connection the driver's, if the worker agrees.
func (d *Driver) greet(ctx context.Context, s *session, accepted func(Welcome) error) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	answer, err := s.call(ctx, &request{Op: opHello, Hello: &Control{
		Protocol: protocol, Instance: d.id, Installation: d.cfg.Installation, Epoch: d.cfg.Epoch,
	}})
	if err != nil {
		return fmt.Errorf("the worker refuses this server: %w", err)
	}
	if answer.Welcome == nil {
		return errors.New("the worker does not introduce itself")
	}
	if p := answer.Welcome.Protocol; p != protocol {
		return fmt.Errorf("the worker speaks version %d of the workers' protocol, and this server %d: they must be of the same version of Modbox", max(p, 1), protocol)
	}
	s.instance = answer.Welcome.Instance
	caps := answer.Welcome.Capabilities
	if err := accepted(*answer.Welcome); err != nil {
		return err
	}
	d.removeUnclear(ctx, s) // while no call uses this connection
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.caps == nil {
		d.caps = &caps
	} else if !alike(*d.caps, caps) {
		return errors.New("the worker can do other things than before: restart the server")
	}
	if d.session != nil {
		go d.session.mux.Close() // waits for its goroutines
	}
	d.session = s
	return nil
}

// alike reports whether two drivers can do the same.
func alike(a, b driver.Capabilities) bool {
	a.Missing, b.Missing = nil, nil
	return fmt.Sprint(a) == fmt.Sprint(b)
}

// Ready waits for the first worker.
func (d *Driver) Ready(ctx context.Context) error {
	_, err := d.current(ctx, 0)
	return err
}

// current returns the connection to the worker. It waits for one as long as patience, 0: until ctx ends. Errors:
// Unavailable; the cause of the end of ctx.
func (d *Driver) current(ctx context.Context, patience time.Duration) (*session, error) {
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	for {
		next := d.connected.Wait()
		d.mu.Lock()
		s := d.session
		d.mu.Unlock()
		if s != nil && !s.mux.IsClosed() {
			return s, nil
		}
		select {
		case <-next:
		case <-late:
			return nil, errAway
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-d.life.Done():
			return nil, errClosed
		}
	}
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
	d.work.Add(1)
	return merged, func() { stop(); cancel(nil); d.work.Done() }
}

// Close implements [driver.Driver]. The worker keeps its driver, until another control plane connects.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.end(errClosed)
	s := d.session
	d.mu.Unlock()
	if s != nil {
		_ = s.mux.Close() // so that no call waits for the worker
	}
	d.work.Wait()
	return nil
}

// Capabilities implements [driver.Driver]. Before [Driver.Ready] there are none.
func (d *Driver) Capabilities() driver.Capabilities {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.caps == nil {
		return driver.Capabilities{Name: "remote", Missing: []string{"No worker is connected."}}
	}
	caps := *d.caps
	caps.Missing = append([]string(nil), caps.Missing...)
	return caps
}

// ask makes a call that may be repeated, on another connection when one breaks.
func (d *Driver) ask(ctx context.Context, req *request, patience time.Duration) (*response, error) {
	for {
		s, err := d.current(ctx, patience)
		if err != nil {
			return nil, err
		}
		answer, err := s.call(ctx, req)
		if !errors.Is(err, errLost) {
			return answer, err
		}
		if !s.over(ctx) {
			return nil, errOutcome
		}
	}
}

// List implements [driver.Driver].
func (d *Driver) List(ctx context.Context) ([]sandbox.ID, error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	answer, err := d.ask(ctx, &request{Op: opList}, d.cfg.Patience)
	if err != nil {
		return nil, err
	}
	return answer.IDs, nil
}

// DiskUse implements [driver.DiskMeter].
func (d *Driver) DiskUse() (map[sandbox.ID]int64, error) {
	ctx, leave := d.enter(context.Background())
	defer leave()
	answer, err := d.ask(ctx, &request{Op: opDiskUse}, d.cfg.Patience)
	if err != nil {
		return nil, err
	}
	return answer.DiskUse, nil
}
