package quota

import (
	"errors"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestTokensComeBack: tokens that are given back are there again, also when others asked meanwhile.
func TestTokensComeBack(t *testing.T) {
	var b buckets
	now := time.Now()
	take := func() func(int) {
		t.Helper()
		giveBack, err := b.take("w", 1, 2, now)
		if err != nil {
			t.Fatal(err)
		}
		return giveBack
	}
	none := func(wait time.Duration) {
		t.Helper()
		_, err := b.take("w", 1, 2, now)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.QuotaExceeded || e.RetryAfter.Round(time.Millisecond) != wait {
			t.Fatalf("a third token: %v, want none for %s", err, wait)
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
	b.tidy(now)
	take()
	now = now.Add(time.Hour)
	b.tidy(now)
	if len(b.of) != 0 {
		t.Errorf("%d workspaces are remembered", len(b.of))
	}
}
