package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/driver/remote/rootcache"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// servers are several active servers with the same records of workers. Server n has epoch n.
type servers struct {
	rows  rows
	parts []sandbox.Ranges

	mu   sync.Mutex
	list []*fleet.Driver // guarded by mu; nil: it does not run
}

func newServers(t *testing.T, n int) *servers {
	fleet.SetReportPause(5 * time.Millisecond)
	s := &servers{parts: sandbox.Parts(n), list: make([]*fleet.Driver, n)}
	for i := range n {
		s.open(t, i, 0)
	}
	t.Cleanup(func() {
		for i := range n {
			s.close(t, i)
		}
		fleet.SetReportPause(10 * time.Second)
	})
	return s
}

func (s *servers) open(t *testing.T, n int, lostAfter time.Duration, parts ...sandbox.Ranges) *fleet.Driver {
	t.Helper()
	if parts == nil {
		parts = s.parts
	}
	d, err := fleet.New(t.Context(), fleet.Config{
		Rows: &s.rows, Own: s.parts[n], Parts: parts, LostAfter: lostAfter, Limit: func(bytes int64) int64 { return bytes },
		Remote: remote.Config{Installation: "i", Epoch: int64(n), Saved: fake.New(fake.NewHost(t.TempDir())), Patience: testTimeout, Log: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list[n] = d
	return d
}

func (s *servers) close(t *testing.T, n int) {
	s.mu.Lock()
	d := s.list[n]
	s.list[n] = nil
	s.mu.Unlock()
	if d == nil {
		return
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
}

func (s *servers) at(n int) *fleet.Driver {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[n]
}

// connect starts a worker that tries one server after the other, the first first, and returns what ends it, and its host.
func (s *servers) connect(t *testing.T, id string, first int) (stop func(), host *fake.Host) {
	t.Helper()
	state, err := worker.OpenState(t.TempDir(), id)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := rootcache.Open(filepath.Join(t.TempDir(), "images"), 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	host = fake.NewHost(t.TempDir())
	w := remote.NewWorker(remote.WorkerConfig{
		Open:  func() (driver.Driver, error) { return fake.New(host), nil },
		Cache: cache, Dir: t.TempDir(), Host: remote.Host{Name: "same", Version: "1.0", MemoryBytes: gib, Cores: 4},
		Accept: func(c remote.Control) error {
			err := state.Accept(c.Installation, c.Epoch)
			if err != nil {
				t.Errorf("the worker %s: %v", id, err)
			}
			return err
		},
		Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for n := first; ctx.Err() == nil; n++ {
			d := s.at(n % len(s.parts))
			if d != nil {
				theirs, ours := tcpPair()
				running.Go(func() { _ = d.Attach(ctx, worker.Identity{ID: state.ID(), Key: "key"}, theirs) })
				_ = w.Serve(ctx, ours)
			}
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := errors.Join(w.Close(), host.Close()); err != nil {
			t.Errorf("Close() of a worker = %v", err)
		}
	})
	t.Cleanup(stop)
	return stop, host
}

// connected returns the ids of the connected workers of a server.
func (s *servers) connected(n int) (ids []string) {
	for _, w := range s.at(n).Workers() {
		if w.Connected {
			ids = append(ids, w.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// want waits until servers have as many connected workers.
func (s *servers) want(t *testing.T, want ...int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%v workers are connected", want), func() error {
		for n := range want {
			if got := len(s.connected(n)); got != want[n] {
				return fmt.Errorf("server %d has %d", n, got)
			}
		}
		return nil
	})
}

func workerName(n int) string { return "worker-" + strings.Repeat(string(rune('A'+n)), 26) }

// TestHomes checks that each of several servers has as many workers, of its own, although all workers try the same server first; that a worker meets
// its own server alone, whose epoch it remembers; and that it comes back to that.
func TestHomes(t *testing.T) {
	s := newServers(t, 4)
	for n := range 8 {
		s.connect(t, workerName(n), 3) // the server with the highest epoch
	}
	s.want(t, 2, 2, 2, 2)
	before := s.connected(1)
	s.close(t, 1)
	again := s.open(t, 1, 0)
	s.want(t, 2, 2, 2, 2)
	if after := s.connected(1); !slices.Equal(before, after) {
		t.Errorf("the workers %q came back as %q", before, after)
	}
	eventually(t, "all servers know all workers", func() error {
		list := again.AllWorkers()
		names := map[string]bool{}
		for _, w := range list {
			if !w.Connected || w.MemoryBytes != gib || w.PromisedMaxBytes != gib {
				return fmt.Errorf("%+v", w)
			}
			names[w.Name] = true
			if ranges := again.RangesOf(w); ranges != s.parts[w.Home/4].Digits() {
				return fmt.Errorf("%s is of the server of %s", w.ID, ranges)
			}
		}
		if len(list) != 8 || len(names) != 8 {
			return fmt.Errorf("%d workers with the names %v", len(list), names)
		}
		return nil
	})
	other := s.connected(0)[0]
	_, found := again.Find(other)
	_, used := again.Use(t.Context(), other, worker.Draining)
	for _, err := range []error{found, used} {
		var elsewhere sandbox.Elsewhere
		if !errors.As(err, &elsewhere) || !s.parts[0].HasRange(elsewhere.Range) || sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("the error for the worker of another server is %v", err)
		}
	}
	if w, err := again.Find(before[0]); err != nil || w.ID != before[0] {
		t.Errorf("Find() = %+v, %v", w, err)
	}
	if _, err := again.Remove(t.Context(), "none", true); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Remove() of no worker = %v", err)
	}
	if again.Elsewhere(other) == nil || again.Elsewhere(before[0]) != nil {
		t.Error("a worker leaves a server that does not have it, or does not leave its own")
	}
}

// TestHomeOfBoxes checks that the records say what other servers do not see: the boxes of a worker, and that its connection has ended.
func TestHomeOfBoxes(t *testing.T) {
	s := newServers(t, 2)
	stop, _ := s.connect(t, workerName(0), 0)
	s.want(t, 1, 0)
	spec := spec()
	if _, err := (staging{s.at(0)}).Create(within(t), spec); err != nil {
		t.Fatal(err)
	}
	shown := func(connected bool) func() error {
		return func() error {
			list := s.at(1).AllWorkers()
			if len(list) != 1 || list[0].Connected != connected || list[0].Boxes != 1 || list[0].PromisedBytes != spec.Resources.MemoryBytes {
				return fmt.Errorf("%+v", list)
			}
			return nil
		}
	}
	eventually(t, "the other server sees the box", shown(true))
	stop()
	eventually(t, "the other server sees the end of the connection", shown(false))
	s.connect(t, workerName(1), 0) // this worker is not the second of server 0, which has no connected worker: it is the first of either
	eventually(t, "another worker is connected", func() error {
		if n := len(s.connected(0)) + len(s.connected(1)); n != 1 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
}

// TestHomeOfLostWorker checks that a worker that was lost and is back stays with its server: records of sandboxes may name it.
func TestHomeOfLostWorker(t *testing.T) {
	s := newServers(t, 2)
	s.close(t, 0)
	first := s.open(t, 0, 20*time.Millisecond)
	var stops []func()
	for n := range 6 {
		stop, _ := s.connect(t, workerName(n), 0)
		stops = append(stops, stop)
	}
	s.want(t, 3, 3)
	id := s.connected(0)[0]
	for n := range stops {
		if workerName(n) == id {
			stops[n]()
		}
	}
	eventually(t, "the worker is lost", func() error {
		if w, err := first.Worker(id); err != nil || w.Status != worker.Lost {
			return fmt.Errorf("%+v, %w", w, err)
		}
		return nil
	})
	s.close(t, 1) // its workers would be fewer
	stop, _ := s.connect(t, id, 0)
	defer stop()
	s.want(t, 3)
}

// TestHomeOfSuppliedWorker checks that a server meets no supplied worker that it does not expect.
func TestHomeOfSuppliedWorker(t *testing.T) {
	s := newServers(t, 2)
	id := worker.NewSuppliedID()
	theirs, ours := tcpPair()
	defer ours.Close()
	if err := s.at(0).Attach(t.Context(), worker.Identity{ID: id, Key: "key"}, theirs); !errors.Is(err, worker.ErrElsewhere) {
		t.Errorf("Attach() = %v", err)
	}
	if n, err := ours.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the worker got %d bytes of a greeting", n)
	}
}

// TestHomeOfOne checks that the workers of a single server are of all ranges in turn.
func TestHomeOfOne(t *testing.T) {
	r := newRig(t, testTimeout, gib, gib, gib, gib, gib)
	var homes []int
	for _, w := range r.control.Load().Workers() {
		homes = append(homes, w.Home)
	}
	if want := []int{0, 8, 4, 12, 2}; !slices.Equal(homes, want) {
		t.Errorf("the workers are of the ranges %v, want %v", homes, want)
	}
}

// TestDivide checks that a server that has all parts, which are to have servers, finds the boxes on workers of other parts, and places others on workers of
// their own parts, as soon as each part has a worker.
func TestDivide(t *testing.T) {
	s := newServers(t, 2)
	s.close(t, 0)
	s.close(t, 1)
	parts := s.parts
	s.parts = []sandbox.Ranges{sandbox.AllRanges}
	d := s.open(t, 0, 0, parts...)
	s.connect(t, workerName(0), 0)
	s.want(t, 1)
	boxes := func(n int, digit string) {
		t.Helper()
		for range n {
			spec := spec()
			spec.Resources.MemoryBytes = 16 << 20
			spec.ID = spec.ID[:len(spec.ID)-2] + sandbox.ID(digit) + spec.ID[len(spec.ID)-1:]
			if _, err := (staging{d}).Create(within(t), spec); err != nil {
				t.Fatal(err)
			}
		}
	}
	boxes(2, "3")
	boxes(3, "c")
	if ids := d.Apart(); len(ids) != 0 || !d.TakesSandbox(placed(d)) {
		t.Errorf("with one worker %q are apart", ids)
	}
	s.connect(t, workerName(1), 0)
	s.want(t, 2)
	apart := d.Apart()
	if len(apart) != 3 || d.TakesSandbox(apart[0]) {
		t.Errorf("%q are apart, want three", apart)
	}
	boxes(8, "c")
	boxes(4, "0")
	if ids := d.Apart(); len(ids) != 3 {
		t.Errorf("%q are apart, want the three of before", ids)
	}
	for _, id := range apart {
		if err := d.Destroy(within(t), id); err != nil {
			t.Fatal(err)
		}
	}
	if ids := d.Apart(); len(ids) != 0 {
		t.Errorf("after their end %q are apart", ids)
	}
}

// placed returns a box.
func placed(d *fleet.Driver) sandbox.ID {
	_, boxes := d.BoxesOf(workerName(0))
	return boxes[0]
}

func TestMisplaced(t *testing.T) {
	of := func(id string, home int, status worker.Status) worker.Record {
		return worker.Record{Identity: worker.Identity{ID: id}, Home: home, Status: status}
	}
	workers := []worker.Record{of("worker-A", 0, worker.Ready), of("worker-B", 8, worker.Draining), of("worker-C", 8, worker.Gone), of("worker-D", 8, worker.Lost)}
	box := func(digit, on string) sandbox.Sandbox {
		sb := sandbox.Sandbox{ID: sandbox.ID("sbx_000000000000000000000000000000" + digit + "0")}
		if on != "" {
			sb.Handle = []byte("fleet/1 " + on + " 1\n")
		}
		return sb
	}
	for name, test := range map[string]struct {
		servers int
		box     sandbox.Sandbox
		refused bool
	}{
		"on a worker of its server":               {2, box("7", "worker-A"), false},
		"on the other worker of its server":       {2, box("f", "worker-B"), false},
		"on a worker of another server":           {2, box("8", "worker-A"), true},
		"on a draining worker of another server":  {2, box("1", "worker-B"), true},
		"of more servers":                         {4, box("4", "worker-A"), true},
		"of a single server":                      {1, box("8", "worker-A"), false},
		"paused":                                  {2, box("8", ""), false},
		"on a worker that was removed":            {2, box("1", "worker-C"), false},
		"on a worker that is lost":                {2, box("1", "worker-D"), false},
		"on a worker that nobody knows":           {2, box("1", "worker-E"), false},
		"of a server that had one worker":         {2, sandbox.Sandbox{ID: "sbx_00", Handle: []byte("x")}, true},
		"of a single server that had one worker":  {1, sandbox.Sandbox{ID: "sbx_00", Handle: []byte("x")}, false},
		"of a single server, which has no worker": {1, box("8", "worker-E"), false},
	} {
		err := fleet.Misplaced(sandbox.Parts(test.servers), workers, []sandbox.Sandbox{test.box})
		if test.refused != (sandbox.CodeOf(err) == sandbox.Conflict) || test.refused && !strings.Contains(err.Error(), string(test.box.ID)) {
			t.Errorf("a box %s: %v", name, err)
		}
	}
}
