package turn

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
)

// database is the database of a test.
type database struct {
	away     atomic.Bool
	ready    atomic.Bool
	looked   chan struct{} // gets a value with each look, if there is space
	prepared atomic.Int64
}

func (d *database) config(dir string, n int) Config {
	return Config{
		StateDir: dir, Parts: sandbox.Parts(n), Log: slog.New(slog.DiscardHandler),
		Look: func(context.Context) (bool, error) {
			select {
			case d.looked <- struct{}{}:
			default:
			}
			if d.away.Load() {
				return false, errors.New("the database is away")
			}
			return d.ready.Load(), nil
		},
		Prepare: func(context.Context) error {
			d.prepared.Add(1)
			d.ready.Store(true)
			return nil
		},
	}
}

// begin takes a turn in the background. The process ends with a turn whose lock is lost, so tests release no lock of a turn.
func begin(t *testing.T, c Config) (ranges chan sandbox.Ranges) {
	ranges = make(chan sandbox.Ranges, 1)
	turn := &Turn{cfg: c}
	go func() {
		if err := turn.take(t.Context()); err != nil {
			t.Error(err)
		}
		ranges <- turn.Ranges()
	}()
	return ranges
}

// TestParts checks that servers get different parts, and that one of them makes the tables.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	var d database
	first, second := <-begin(t, d.config(dir, 2)), <-begin(t, d.config(dir, 2))
	if first != sandbox.Parts(2)[0] || second != sandbox.Parts(2)[1] {
		t.Errorf("the servers have %s and %s", first.Digits(), second.Digits())
	}
	if n := d.prepared.Load(); n != 1 {
		t.Errorf("the tables were made %d times", n)
	}
}

// TestTablesOfAnEarlierVersion checks that a server waits with older tables until the servers of the earlier version have ended, takes no part from
// their standbys meanwhile, and updates the tables once.
func TestTablesOfAnEarlierVersion(t *testing.T) {
	dir, parts := t.TempDir(), sandbox.Parts(2)
	d := database{looked: make(chan struct{}, 1)}
	old, _, err := statedir.AwaitPart(t.Context(), dir, dir, parts)
	if err != nil {
		t.Fatal(err)
	}
	waits := begin(t, d.config(dir, 2))
	more := func() {
		t.Helper()
		for range 3 { // the first look may be from before
			select {
			case <-d.looked:
			case <-t.Context().Done():
				t.FailNow()
			}
		}
	}
	more()
	standby, part, err := statedir.AwaitPart(t.Context(), dir, dir, parts)
	if err != nil || part != 1 {
		t.Fatalf("a standby of the earlier version: part %d, %v", part, err)
	}
	old.Release()
	more()
	if n := d.prepared.Load(); n != 0 {
		t.Error("the tables are updated while a server of the earlier version works")
	}
	standby.Release()
	if got := <-waits; got != parts[0] || d.prepared.Load() != 1 {
		t.Errorf("the server has %s, and has updated the tables %d times", got.Digits(), d.prepared.Load())
	}
}

// TestAloneNeedsNoPreparation checks that a server that works on all sandboxes makes the tables as it starts, and not before.
func TestAloneNeedsNoPreparation(t *testing.T) {
	var d database
	if got := <-begin(t, d.config(t.TempDir(), 1)); got != sandbox.AllRanges || d.prepared.Load() != 0 {
		t.Errorf("the server has %s, and has made tables %d times", got.Digits(), d.prepared.Load())
	}
}

// TestFailedPreparation checks that a server ends if it cannot update the tables, and leaves the state directory to others.
func TestFailedPreparation(t *testing.T) {
	dir := t.TempDir()
	var d database
	c, refused := d.config(dir, 2), errors.New("refused")
	c.Prepare = func(context.Context) error { return refused }
	turn := &Turn{cfg: c}
	if err := turn.take(t.Context()); !errors.Is(err, refused) {
		t.Errorf("take() = %v", err)
	}
	unlock, err := statedir.Lock(t.Context(), dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
