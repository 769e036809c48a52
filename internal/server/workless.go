package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
)

const (
	// workersCheck is the interval at which the active server looks for workers.
	workersCheck = 5 * time.Second
	// mostDoublings bounds how often [workersLimit] is doubled.
	mostDoublings = 3
)

// workersLimit is the time after which the active server ends if it has had no worker and a standby waits, which may reach the workers. It
// doubles with each server that ends so, until a server has a worker: workers that no server reaches make no server end every few minutes.
var workersLimit = 2 * time.Minute // tests change it

// watchWorkers ends the server when it has had no worker for too long and a standby waits.
func (p *parts) watchWorkers(ctx context.Context, stateDir string, workers func() []fleet.Worker, log *slog.Logger, cu *cleanup.Cleanup) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var task sync.WaitGroup
	task.Go(func() {
		w := openWorkless(stateDir, p.ranges, log)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(workersCheck, workersLimit)):
			}
			if err := w.check(workers()); err != nil {
				select {
				case p.lost <- err:
				default: // it ends for another reason
				}
				return
			}
		}
	})
	cu.Add(func() {
		cancel()
		task.Wait()
	})
}

// workless finds out when a server has had no worker for too long. A file in the state directory has how many servers in a row have ended
// for that.
type workless struct {
	stateDir, path string
	log            *slog.Logger
	since          time.Time // the last time with a worker, or the start
	ended          int       // the content of the file
}

func openWorkless(stateDir string, r sandbox.Ranges, log *slog.Logger) *workless {
	name := statedir.WorklessFile
	if !r.HasRange(0) { // the servers of each part count apart
		name += "." + r.Digits()[:1]
	}
	w := &workless{stateDir: stateDir, path: filepath.Join(stateDir, name), log: log, since: time.Now()}
	text, err := os.ReadFile(w.path)
	if err == nil {
		w.ended, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("it is not known how many servers have ended without a worker", "error", err)
	}
	return w
}

// check returns why the server must end; nil if it may go on.
func (w *workless) check(workers []fleet.Worker) error {
	if slices.ContainsFunc(workers, func(w fleet.Worker) bool { return w.Connected }) {
		w.since = time.Now()
		w.record(0)
		return nil
	}
	limit := workersLimit << min(max(w.ended, 0), mostDoublings)
	if time.Since(w.since) < limit {
		return nil
	}
	waits, err := statedir.Awaited(w.stateDir)
	if err != nil {
		w.log.Error("it is not known whether a standby waits", "error", err)
	}
	if !waits {
		return nil
	}
	w.record(w.ended + 1)
	return fmt.Errorf("no worker was connected for %s, and a standby may reach the workers", limit)
}

// record changes the number of servers that have ended without a worker. If that fails, the next servers do not wait longer.
func (w *workless) record(ended int) {
	if w.ended == ended {
		return
	}
	w.ended = ended
	err := os.WriteFile(w.path, []byte(strconv.Itoa(ended)+"\n"), 0o600)
	if err != nil {
		w.log.Error("it is not recorded how many servers have ended without a worker", "error", err)
	}
}
