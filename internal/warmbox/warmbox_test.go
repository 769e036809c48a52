package warmbox

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// machine has free disk, and has promised nothing.
type machine struct{ Host }

func (machine) CheckFree(int64) error { return nil }

func (machine) Promised(context.Context) (quota.Promise, error) { return quota.Promise{}, nil }

// TestAdmit: boxes that are being made count for the capacity as boxes of the pool do.
func TestAdmit(t *testing.T) {
	work := background.New()
	defer work.Cancel()
	kind := pool.Kind{Digest: "data", Resources: sandbox.Resources{MemoryBytes: 10, DiskBytes: 10}}
	boxes := pool.New[Box](5, false)
	k := New(Config{Promise: quota.Promise{MemoryBytes: 30}}, Deps{Pool: boxes, Host: machine{}, Store: machine{}, Work: work})
	boxes.Add(&pool.Box[Box]{Kind: kind})
	var releases []func()
	for range 2 {
		release, ok := k.Admit(kind)
		if !ok {
			t.Fatal("a box that fits was not admitted")
		}
		releases = append(releases, release)
	}
	if _, ok := k.Admit(kind); ok {
		t.Error("a box that does not fit was admitted")
	}
	releases[0]()
	releases[0]()
	release, ok := k.Admit(kind)
	if !ok {
		t.Fatal("a box was not admitted in the place of another")
	}
	if _, ok := k.Admit(kind); ok {
		t.Error("a second box was admitted in the place of another")
	}
	releases[1]()
	release()
	if len(k.making) > 0 {
		t.Errorf("boxes count that are not made any more: %v", k.making)
	}
}

// TestAwaitCalm: a server that always starts sandboxes makes a box after a while, and a server that closes makes none.
func TestAwaitCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := background.New()
		k := New(Config{}, Deps{Pool: pool.New[Box](5, false), Host: busy{}, Work: work})
		begin := time.Now()
		if calm := k.AwaitCalm(); !calm || time.Since(begin) < calmMax || time.Since(begin) > 2*calmMax {
			t.Errorf("after %v a box may be made: %v", time.Since(begin), calm)
		}
		work.Cancel()
		if k.AwaitCalm() {
			t.Error("a server that closes makes a box")
		}
	})
}

// busy always starts sandboxes.
type busy struct{ Host }

func (busy) Starting() int { return 1 }
