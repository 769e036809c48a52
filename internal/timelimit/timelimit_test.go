package timelimit_test

import (
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/timelimit"
)

func TestDueAndNext(t *testing.T) {
	at := time.Now()
	after := func(d time.Duration) time.Time { return at.Add(d) }
	for name, tt := range map[string]struct {
		sb   sandbox.Sandbox
		next time.Time
		code sandbox.CauseCode
	}{
		"none": {sandbox.Sandbox{CreatedAt: at, State: sandbox.Running}, time.Time{}, ""},
		"ttl":  {sandbox.Sandbox{CreatedAt: at, State: sandbox.Paused, TTL: time.Hour}, after(time.Hour), sandbox.CauseTTL},
		"changed ttl": {
			sandbox.Sandbox{CreatedAt: at, State: sandbox.Provisioning, TTL: time.Hour, TTLFrom: after(time.Minute)}, after(time.Hour + time.Minute), sandbox.CauseTTL,
		},
		"idle before ttl": {
			sandbox.Sandbox{CreatedAt: at, LastActivityAt: at, State: sandbox.Running, TTL: time.Hour, Timeouts: sandbox.Timeouts{Idle: time.Minute, Paused: time.Second}},
			after(time.Minute), sandbox.CauseIdle,
		},
		"paused": {
			sandbox.Sandbox{CreatedAt: at, LastActivityAt: at, PausedAt: at, State: sandbox.Paused, Timeouts: sandbox.Timeouts{Idle: time.Second, Paused: time.Minute}},
			after(time.Minute), sandbox.CausePausedTTL,
		},
	} {
		if next := timelimit.Next(&tt.sb); !next.Equal(tt.next) {
			t.Errorf("%s: Next = %s, want %s", name, next, tt.next)
		}
		if code := timelimit.Due(&tt.sb, tt.next.Add(-1)); code != "" {
			t.Errorf("%s: Due just before = %q, want none", name, code)
		}
		if code := timelimit.Due(&tt.sb, tt.next); code != tt.code {
			t.Errorf("%s: Due = %q, want %q", name, code, tt.code)
		}
	}
}

func TestCheckTTL(t *testing.T) {
	b := timelimit.Bounds{TTL: sandbox.TTLMin, Idle: sandbox.IdleMin}
	for d, ok := range map[time.Duration]bool{
		0: true, sandbox.TTLMin: true, sandbox.TTLMax: true, -time.Second: false, sandbox.TTLMin - 1: false, sandbox.TTLMax + 1: false,
	} {
		if err := b.CheckTTL(d); (err == nil) != ok || err != nil && sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("CheckTTL(%s) = %v, want ok %v", d, err, ok)
		}
	}
}
