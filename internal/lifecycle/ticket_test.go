package lifecycle

import (
	"errors"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestTicketsComeBack: what is given back is there again, also when others asked meanwhile.
func TestTicketsComeBack(t *testing.T) {
	g := newGate()
	now := time.Now()
	take := func() func(int) {
		t.Helper()
		giveBack, err := g.tickets("w", 1, 2, now)
		if err != nil {
			t.Fatal(err)
		}
		return giveBack
	}
	none := func(wait time.Duration) {
		t.Helper()
		_, err := g.tickets("w", 1, 2, now)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.QuotaExceeded || e.RetryAfter.Round(time.Millisecond) != wait {
			t.Fatalf("a third ticket: %v, want none for %s", err, wait)
		}
	}
	one, two := take(), take()
	now = now.Add(time.Second)
	none(29 * time.Second)
	one(1)
	two(1)
	take()
	take()
	none(30 * time.Second)
	now = now.Add(20 * time.Second)
	none(10 * time.Second)
	now = now.Add(10*time.Second + time.Millisecond)
	take()(1)
	g.tidy(now)
	take()
	now = now.Add(time.Hour)
	g.tidy(now)
	if len(g.doors) != 0 {
		t.Errorf("%d workspaces are remembered", len(g.doors))
	}
}
