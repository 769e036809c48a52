package pressure_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/pressure"
	"github.com/modbox/modbox/internal/sandbox"
)

// host is a machine of 1,000 bytes; each running sandbox uses 100.
type host struct {
	boxes []*box.Box

	mu     sync.Mutex // guards what follows
	used   int64
	works  sandbox.ID // a command runs in it
	slow   sandbox.ID // its pause takes an hour
	asked  []sandbox.ID
	failed error // of reading the memory
	paused []sandbox.ID
}

func (h *host) Boxes() []*box.Box { return h.boxes }

func (h *host) PauseIdle(b *box.Box, _ string, idle func(*sandbox.Sandbox) bool) {
	h.mu.Lock()
	h.asked = append(h.asked, b.ID)
	slow, works := b.ID == h.slow, b.ID == h.works
	h.mu.Unlock()
	if slow {
		time.Sleep(time.Hour)
	}
	sb := b.Sandbox()
	if works || !idle(&sb) {
		return
	}
	h.set(b, sandbox.Paused)
	h.change(func() {
		h.used -= 100
		h.paused = append(h.paused, b.ID)
	})
}

func (h *host) available() (free int64, err error) {
	h.change(func() { free, err = 1000-h.used, h.failed })
	return free, err
}

// change calls f with the lock.
func (h *host) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (*host) set(b *box.Box, state sandbox.State) {
	b.Lock()
	defer b.Unlock()
	b.Set(sandbox.Sandbox{ID: b.ID, State: state})
}

// start makes sandboxes that were used one second after another, the last just now, and a reliever for them.
func start(t *testing.T, ids ...sandbox.ID) (*host, *strings.Builder) {
	group := background.New()
	h, log := &host{used: 100 * int64(len(ids))}, &strings.Builder{}
	for _, id := range ids {
		b := box.New(group, id, agentapi.NewMemory(1<<20).NewClient(nil))
		h.set(b, sandbox.Running)
		time.Sleep(time.Second)
		b.Activity.At(time.Now())
		h.boxes = append(h.boxes, b)
	}
	slices.Reverse(h.boxes) // in no helpful order
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	r := pressure.New(h, pressure.Options{
		Below: 400, Idle: time.Minute, Interval: time.Second, Available: h.available, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	go func() { r.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	return h, log
}

func wantPaused(t *testing.T, h *host, when string, want ...sandbox.ID) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.paused, want) {
		t.Errorf("%s: paused %v, want %v", when, h.paused, want)
	}
}

func TestLongestIdleFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := start(t, "a", "b", "c", "d", "e", "f")
		time.Sleep(2 * time.Minute)
		wantPaused(t, h, "400 of 1000 bytes available")
		h.change(func() { h.used = 650 })
		time.Sleep(2 * time.Second)
		wantPaused(t, h, "350 bytes available, at least 500 wanted", "a", "b")
		time.Sleep(time.Hour)
		wantPaused(t, h, "550 bytes available", "a", "b")
	})
}

func TestUsedSandboxesAreNotPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := start(t, "a", "b", "c")
		h.change(func() { h.used, h.works = 990, "b" })
		time.Sleep(50 * time.Second)
		wantPaused(t, h, "before the time without use has passed")
		end := h.boxes[2].Activity.Begin() // of a call into a
		time.Sleep(time.Minute)
		wantPaused(t, h, "a is used and a command runs in b", "c")
		end()
		time.Sleep(2 * time.Minute)
		wantPaused(t, h, "a is not used any more", "c", "a")
	})
}

func TestAttemptsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := start(t, "a")
		h.change(func() { h.used, h.works = 990, "a" })
		used := h.boxes[0].Sandbox().LastActivityAt
		time.Sleep(10*time.Minute + 30*time.Second)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.asked); n < 9 || n > 10 {
			t.Errorf("%d attempts in ten minutes, want about one a minute", n)
		}
		if at := h.boxes[0].Sandbox().LastActivityAt; !at.Equal(used) {
			t.Errorf("attempts moved the last activity from %v to %v, which would put off the sandbox's own limits", used, at)
		}
	})
}

func TestSlowPauseKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := start(t, "a", "b")
		h.change(func() { h.used, h.slow = 990, "a" })
		time.Sleep(2 * time.Minute)
		wantPaused(t, h, "while a is saved", "b")
		time.Sleep(2 * time.Hour)
	})
}

func TestOwnLimitsKeepTheirMeaning(t *testing.T) {
	for name, tc := range map[string]struct {
		limits sandbox.Timeouts
		paused bool
	}{
		"none":            {sandbox.Timeouts{}, true},
		"pauses":          {sandbox.Timeouts{Idle: time.Hour, OnIdle: sandbox.OnIdlePause}, true},
		"ends":            {sandbox.Timeouts{Idle: time.Hour}, false},
		"not_paused_long": {sandbox.Timeouts{Paused: time.Hour}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := start(t, "a")
				b := h.boxes[0]
				sb := b.Sandbox()
				sb.Timeouts = tc.limits
				b.Lock()
				b.Set(sb)
				b.Unlock()
				h.change(func() { h.used = 990 })
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				h.mu.Lock()
				defer h.mu.Unlock()
				if got := len(h.paused) == 1; got != tc.paused {
					t.Errorf("paused = %t, want %t", got, tc.paused)
				}
			})
		})
	}
}

func TestUnknownMemoryPausesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, log := start(t, "a")
		h.change(func() { h.used, h.failed = 990, errors.New("meminfo is a riddle") })
		time.Sleep(time.Hour)
		wantPaused(t, h, "without the size of the available memory")
		if !strings.Contains(log.String(), "meminfo is a riddle") {
			t.Errorf("the log has no reason: %s", log)
		}
	})
}
