package warmbox

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/sandbox"
)

// bringer is a driver whose transfers end with their contexts.
type bringer struct {
	driver.Driver
	began, ended chan string // boxes and root filesystems
}

func (d bringer) Bring(ctx context.Context, id sandbox.ID, rootfs string) error {
	d.began <- fmt.Sprint(id, " ", rootfs)
	<-ctx.Done()
	d.ended <- fmt.Sprint(id, " ", rootfs)
	return context.Cause(ctx)
}

func (d bringer) MayFurnish(rootfs string) bool { return rootfs != "huge" }

// Destroy waits for the end of a transfer.
func (d bringer) Destroy(_ context.Context, id sandbox.ID) error {
	select {
	case what := <-d.ended:
		d.ended <- what
	case <-time.After(time.Minute):
		d.ended <- fmt.Sprint(id, " is destroyed during its transfer")
	}
	return nil
}

// TestBlankBoxesGetTheLikelyImage: the files of the image in most demand are brought once to the host of a blank box, until the box is destroyed or
// a sandbox of another image gets it.
func TestBlankBoxesGetTheLikelyImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := background.New()
		work.Start()
		d := bringer{began: make(chan string, 10), ended: make(chan string, 10)}
		boxes := pool.New[Box](5, true)
		host := maker{work: work}
		k := New(Config{}, Deps{Pool: boxes, Host: host, Images: host, Driver: d, Work: work, Logger: slog.New(slog.DiscardHandler)})
		defer func() { work.Cancel(); synctest.Wait() }()
		large := sandbox.Resources{MemoryBytes: 1 << 30}
		add := func(id sandbox.ID, kind pool.Kind) *pool.Box[Box] {
			time.Sleep(time.Second)
			b := &pool.Box[Box]{Kind: kind, Started: time.Now(), Value: Box{Box: host.NewBox(id), stop: func() {}, bringing: &bringing{}}}
			boxes.Add(b)
			return b
		}
		received := func(c chan string) (list []string) {
			synctest.Wait()
			for len(c) > 0 {
				list = append(list, <-c)
			}
			return list
		}
		want := func(what string, got []string, want ...string) {
			t.Helper()
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		plan := func() []string {
			boxes.Plan(time.Now(), pool.Kind{}, pool.Kind{Resources: large})
			for _, b := range boxes.Boxes() {
				k.bring(b)
			}
			return received(d.began)
		}
		add("first", pool.Kind{})
		add("large", pool.Kind{Resources: large})
		want("without demand", plan())
		for digest, creates := range map[string]int{"often": 4, "less": 3} {
			for range creates {
				boxes.Created("w", pool.Kind{Digest: digest})
			}
		}
		want("with demand", plan(), "first often")
		want("the next time", plan())
		reserve := func(digest string, id sandbox.ID) *pool.Reservation[Box] {
			t.Helper()
			r := k.Reserve(t.Context(), "w", pool.Kind{Digest: digest})
			if r == nil || r.Box().Value.ID != id {
				t.Fatalf("reserved %v, want box %s", r, id)
			}
			return r
		}
		if r := k.Reserve(t.Context(), "w", pool.Kind{Digest: "huge"}); r != nil {
			t.Errorf("a sandbox whose image has no space in it gets box %s", r.Box().Value.ID)
		}
		r := reserve("often", "first")
		want("ended for a sandbox of the image", received(d.ended))
		k.bring(r.Box())
		r.Cancel()
		reserve("less", "first").Commit()
		want("ended for a sandbox of another image", received(d.ended), "first often")
		second := add("second", pool.Kind{})
		want("another box", plan(), "second often")
		boxes.Remove(second)
		k.Destroy(second)
		want("ended for a box that is destroyed", received(d.ended), "second often")
		third := add("third", pool.Kind{})
		boxes.Remove(third) // after bring has seen it
		k.bring(third)
		received(d.began)
		want("of a box that has left the pool", received(d.ended), "third often")
	})
}

// TestMayFurnish: a blank box gets any image for which its host has space, also an image that cannot be read: the create says why.
func TestMayFurnish(t *testing.T) {
	for digest, want := range map[string]bool{"small": true, "huge": false, "gone": true} {
		k := New(Config{}, Deps{Images: maker{}, Driver: bringer{}, Work: background.New()})
		if got := k.mayFurnish(t.Context(), pool.Kind{Digest: digest}); got != want {
			t.Errorf("mayFurnish(%s) = %v, want %v", digest, got, want)
		}
	}
}
