package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store/storetest"
)

// limitVariable is workersLimit of the server of TestServerProcess.
const limitVariable = "MODBOX_TEST_WORKERS_LIMIT"

// shorten sets workersLimit for a test.
func shorten(t *testing.T, limit time.Duration) {
	before := workersLimit
	workersLimit = limit
	t.Cleanup(func() { workersLimit = before })
}

// standby waits for the lock of a state directory until the test ends, and returns when others see that.
func standby(t *testing.T, stateDir string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if held, err := statedir.Await(ctx, stateDir, stateDir); err == nil {
			held.Release()
			t.Error("the standby has the lock")
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	for {
		if waits, err := statedir.Awaited(stateDir); waits || err != nil {
			return
		}
	}
}

// TestWorkless checks when a server without a worker ends.
func TestWorkless(t *testing.T) {
	dir := t.TempDir()
	unlock, err := statedir.Lock(t.Context(), dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock) // after the end of the standby, which would take the lock
	log := slog.New(slog.DiscardHandler)
	away, there := []fleet.Worker{{}}, []fleet.Worker{{}, {Connected: true}}
	old := func() *workless { // a server that has had no worker for long
		w := openWorkless(dir, sandbox.AllRanges, log)
		w.since = w.since.Add(-24 * time.Hour)
		return w
	}
	if err := old().check(away); err != nil {
		t.Errorf("without a standby: %v", err)
	}
	standby(t, dir)
	if err := old().check(there); err != nil {
		t.Errorf("with a worker: %v", err)
	}
	w := old()
	if err := w.check(there); err != nil {
		t.Error(err)
	}
	if err := w.check(away); err != nil {
		t.Errorf("shortly after a worker was there: %v", err)
	}
	limits := []time.Duration{1, 2, 4, 8, 8, 8}
	for n, times := range limits { // each is the next server
		w := openWorkless(dir, sandbox.AllRanges, log)
		w.since = time.Now().Add(time.Minute - times*workersLimit)
		if err := w.check(away); err != nil {
			t.Errorf("server %d ends too early: %v", n, err)
		}
		w.since = w.since.Add(-time.Minute)
		if err := w.check(nil); err == nil {
			t.Errorf("server %d keeps its turn", n)
		}
		if text, err := os.ReadFile(filepath.Join(dir, statedir.WorklessFile)); string(text) != strconv.Itoa(n+1)+"\n" {
			t.Errorf("after server %d the file has %q, %v", n, text, err)
		}
	}
	if err := old().check(there); err != nil {
		t.Error(err)
	}
	w = openWorkless(dir, sandbox.AllRanges, log)
	w.since = w.since.Add(-workersLimit)
	if err := w.check(away); err == nil {
		t.Error("the limit has not become small again after there was a worker")
	}
}

// TestWatchWorkers checks that the server ends by itself only if a standby waits.
func TestWatchWorkers(t *testing.T) {
	shorten(t, time.Millisecond)
	dir := t.TempDir()
	unlock, err := statedir.Lock(t.Context(), dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock) // after the end of the standby, which would take the lock
	p := parts{lost: make(chan error, 1), ranges: sandbox.AllRanges}
	cu := cleanup.Make(func() {})
	defer cu.Clean()
	var looks atomic.Int64
	enough := make(chan struct{})
	p.watchWorkers(t.Context(), dir, func() []fleet.Worker {
		if looks.Add(1) == 10 {
			close(enough)
		}
		return nil
	}, slog.New(slog.DiscardHandler), &cu)
	<-enough
	select {
	case err := <-p.lost:
		t.Errorf("the server ends without a standby: %v", err)
	default:
	}
	standby(t, dir)
	if err := <-p.lost; err == nil {
		t.Error("the server ends without a reason")
	}
}

// TestTurnWithoutWorkersOnPostgres checks that a server which no worker reaches leaves its turn to a standby, when it starts and later.
func TestTurnWithoutWorkersOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	a, b := newReplica(t, "a", stateDir, url), newReplica(t, "b", stateDir, url)
	for _, r := range []*replica{a, b} {
		r.environ = append(r.environ, limitVariable+"=6s") // longer than the pauses of a worker that is not connected
	}
	a.launch()
	a.until("it has its turn", func() bool {
		log, _ := os.ReadFile(a.log.Name())
		return strings.Contains(string(log), "this server has its turn")
	})
	workerDir := t.TempDir()
	_, stop := startFakeWorker(t, workerDir, stateDir, b.workers)
	b.launch()
	b.active() // a has ended
	if state, err := a.cmd.Process.Wait(); err != nil || state.Success() {
		t.Errorf("the first server: %v, %v", state, err)
	}
	a.cmd = nil
	a.launch()
	a.waits()
	stop()
	startFakeWorker(t, workerDir, stateDir, a.workers)
	a.active()
	if state, err := b.cmd.Process.Wait(); err != nil || state.Success() {
		t.Errorf("the second server: %v, %v", state, err)
	}
	b.cmd = nil
}
