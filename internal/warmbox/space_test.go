package warmbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/sandbox"
)

// full is a driver whose only host has space for some boxes, each as large as another.
type full struct {
	driver.Driver
	mu        sync.Mutex
	free      int          // guarded by mu; negative: no box that is destroyed helps
	destroyed []sandbox.ID // guarded by mu
	late      bool         // guarded by mu; there is space after the first Stage
	steal     int          // guarded by mu; how often another takes the space that a box leaves
}

func (d *full) Stage(context.Context, sandbox.WorkspaceID, driver.Spec, string) (func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.free < 1 {
		return nil, sandbox.Wrap(sandbox.Unavailable, driver.ErrFull, "there is no space")
	}
	d.free--
	return func() {}, nil
}

func (d *full) TakesSandbox(sandbox.ID) bool { return true }

func (d *full) MakeSpace(_ context.Context, _ driver.Spec, _ string, candidates []sandbox.ID) ([]sandbox.ID, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.late {
		d.late, d.free = false, 1
		return nil, true
	}
	if d.free < 0 || len(candidates) == 0 {
		return nil, false
	}
	return candidates[:1], true
}

func (d *full) Destroy(_ context.Context, id sandbox.ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.destroyed = append(d.destroyed, id)
	if d.free++; d.steal > 0 {
		d.steal--
		d.free--
	}
	return nil
}

// crowd is a driver for whose boxes others give way.
type crowd struct {
	driver.Driver
	crowded   chan struct{}
	mu        sync.Mutex
	waits     int          // guarded by mu; boxes that wait
	destroyed []sandbox.ID // guarded by mu
}

func (d *crowd) Crowded() <-chan struct{} { return d.crowded }

func (d *crowd) GiveWay(candidates []sandbox.ID) sandbox.ID {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waits == 0 || len(candidates) == 0 {
		return ""
	}
	d.waits--
	return candidates[0]
}

func (d *crowd) Destroy(_ context.Context, id sandbox.ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.destroyed = append(d.destroyed, id)
	return nil
}

// TestBoxesGiveWayToWaitingSandboxes: as many boxes of the pool are destroyed as the driver says.
func TestBoxesGiveWayToWaitingSandboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := background.New()
		work.Start()
		defer func() { work.Cancel(); synctest.Wait() }()
		host, d, boxes := maker{work: work}, &crowd{crowded: make(chan struct{})}, pool.New[Box](5, false)
		k := New(Config{}, Deps{Pool: boxes, Host: host, Images: host, Driver: d, Work: work, Logger: slog.New(slog.DiscardHandler)})
		for _, id := range []sandbox.ID{"a", "b", "c"} {
			boxes.Add(&pool.Box[Box]{Kind: pool.Kind{Digest: "data"}, Started: time.Now(), Value: Box{Box: host.NewBox(id), stop: func() {}}})
			time.Sleep(time.Second)
		}
		work.Go(k.giveWay)
		for _, step := range []struct {
			waits int
			want  []sandbox.ID // destroyed, in no order
		}{{0, nil}, {2, []sandbox.ID{"a", "b"}}, {5, []sandbox.ID{"a", "b", "c"}}} {
			d.mu.Lock()
			d.waits = step.waits
			d.mu.Unlock()
			d.crowded <- struct{}{}
			synctest.Wait()
			slices.Sort(d.destroyed)
			if all, _ := boxes.Len(); !slices.Equal(d.destroyed, step.want) || all != 3-len(step.want) {
				t.Errorf("while %d wait, the boxes %q are destroyed and %d remain, want %q", step.waits, d.destroyed, all, step.want)
			}
		}
	})
}

// TestBoxesGiveWay: a box of the pool gives way to the box of a sandbox that finds no space, and only then, and only if that helps.
func TestBoxesGiveWay(t *testing.T) {
	for name, c := range map[string]struct {
		free, steal int
		late        bool
		want        []sandbox.ID // destroyed
		full        bool
	}{
		"space":                  {free: 1},
		"space a moment later":   {late: true},
		"no space":               {want: []sandbox.ID{"a"}},
		"space that others take": {steal: 1, want: []sandbox.ID{"a", "b"}},
		"all space others take":  {steal: 9, want: []sandbox.ID{"a", "b", "c"}, full: true},
		"no box that would help": {free: -1, full: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			work := background.New()
			work.Start()
			defer func() { work.Cancel(); synctest.Wait() }()
			host, d, boxes := maker{work: work}, &full{free: c.free, steal: c.steal, late: c.late}, pool.New[Box](5, false)
			k := New(Config{}, Deps{Pool: boxes, Host: host, Images: host, Driver: d, Work: work, Logger: slog.New(slog.DiscardHandler)})
			for _, id := range []sandbox.ID{"a", "b", "c"} {
				boxes.Add(&pool.Box[Box]{Kind: pool.Kind{Digest: "data"}, Started: time.Now(), Value: Box{Box: host.NewBox(id), stop: func() {}}})
				time.Sleep(time.Second)
			}
			release, err := k.Stage(t.Context(), "w", driver.Spec{ID: "new"}, "")
			if errors.Is(err, driver.ErrFull) != c.full || (err == nil) == c.full {
				t.Errorf("%s: Stage() = %v", name, err)
			}
			if err == nil {
				release()
			}
			if !slices.Equal(d.destroyed, c.want) {
				t.Errorf("%s: the boxes %q are destroyed, want %q", name, d.destroyed, c.want)
			}
			if all, _ := boxes.Len(); all != 3-len(c.want) {
				t.Errorf("%s: %d boxes are in the pool", name, all)
			}
		})
	}
}
