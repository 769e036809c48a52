package lifecycle

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/telemetry"
	"github.com/modbox/modbox/internal/warmbox"
)

// noPool is a pool that is turned off.
type noPool struct{ telemetry.Pool }

func (noPool) Size() int { return 0 }

// TestTurnsAreAwaitedForLimitedTime: a new sandbox fails when no other boot ends for long.
func TestTurnsAreAwaitedForLimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, err := telemetry.New(nil, nil, noPool{})
		if err != nil {
			t.Fatal(err)
		}
		slots := fairsem.NewBrief(1)
		release, err := slots.Acquire(t.Context(), "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		group := background.New()
		defer group.Cancel()
		starter := &starter{cfg: &Config{}, slots: slots, metrics: metrics, warm: warmbox.New(warmbox.Config{}, warmbox.Deps{Work: group})}
		b := &entry{Box: box.New(group, "box", agentapi.NewClient(nil))}
		defer b.Cancel()
		begin := time.Now()
		b.Set(sandbox.Sandbox{Workspace: "b"})
		err = starter.startBox(b, nil, "")
		var f *failure
		if !errors.As(err, &f) || f.cause.Code != sandbox.CauseStart || time.Since(begin) != queueTimeout {
			t.Errorf("startBox after %s = %v", time.Since(begin), err)
		}
		if slots.Waiting() != 0 {
			t.Errorf("%d sandboxes wait", slots.Waiting())
		}
		release()
	})
}
