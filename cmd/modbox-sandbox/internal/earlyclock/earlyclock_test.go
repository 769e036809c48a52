package earlyclock

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	sentrytime "gvisor.dev/gvisor/pkg/sentry/time"
)

func TestPace(t *testing.T) {
	p := new(pace)
	for _, c := range []struct {
		at   time.Duration
		want bool
	}{
		{0, false}, {apart - time.Microsecond, false}, {apart + 1, true}, {apart + 2, false}, {2 * apart, false},
		{2*apart + 1, true}, {4 * apart, true}, {5 * apart, true}, {6 * apart, false}, {60 * apart, false},
	} {
		if got := p.due(c.at); got != c.want {
			t.Errorf("a reading at %v: %v, want %v", c.at, got, c.want)
		}
	}
}

// clocks count comparisons.
type clocks struct{ compared chan struct{} }

func (c clocks) Update(bool) (r sentrytime.UpdateResult) {
	c.compared <- struct{}{}
	return r
}
func (clocks) GetTime(sentrytime.ClockID) (int64, error) { return 0, nil }
func (clocks) MonotonicRawEnabled() bool                 { return false }

// Another gVisor may start comparisons in another way.
func TestCompare(t *testing.T) {
	if err := find(); err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := pgalloc.NewMemoryFile(f, pgalloc.MemoryFileOpts{})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Destroy()
	page, err := memory.Allocate(hostarch.PageSize, pgalloc.AllocOpts{Kind: 0})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.DecRef(page)
	synctest.Test(t, func(t *testing.T) {
		c := clocks{make(chan struct{}, 8)}
		k := kernel.NewTimekeeper()
		k.SetClocks(c, kernel.NewVDSOParamPage(memory, page))
		defer k.Destroy()
		<-c.compared // the first
		start := time.Now()
		compare(k)
		<-c.compared
		if late := time.Since(start); late != 0 {
			t.Errorf("the comparison was %v late", late)
		}
		k.Pause()
		compare(k) // it has no timer
	})
}
