package control

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// passed is a context whose deadline has passed before it ends, as on a loaded machine, where
// timers are late.
type passed struct{ context.Context }

func (passed) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

func TestConnectTakesALateTimerForNoEnd(t *testing.T) {
	dir := t.TempDir()
	listener, err := Bind(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := unix.Listen(int(listener.Fd()), 1); err != nil {
		t.Fatal(err)
	}
	conn, err := connect(passed{t.Context()}, dir)
	if err != nil {
		t.Fatalf("connect() with a deadline that has passed, in a context that has not ended = %v", err)
	}
	conn.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := connect(ended, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("connect() in a context that has ended = %v, want its error", err)
	}
}
