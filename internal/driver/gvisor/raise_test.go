package gvisor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestReadSlotSoon: a call that must not take long does not wait long for a slot.
func TestReadSlotSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{readers: make(chan struct{}, 1)}
		leave, err := h.readSlotSoon(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := h.readSlotSoon(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable || !errors.Is(err, driver.ErrBusy) || time.Since(begin) != slotWait {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.readSlotSoon(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("for a caller who has left: %v", err)
		}
		leave()
		if leave, err = h.readSlotSoon(t.Context()); err != nil {
			t.Fatal(err)
		}
		leave()
	})
}
