package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// wantStatus waits until a worker has a status.
func (r *rig) wantStatus(t *testing.T, name string, want worker.Status) {
	t.Helper()
	eventually(t, "the worker has another status", func() error {
		if w, err := r.driver().Worker(name); err != nil || w.Status != want {
			return fmt.Errorf("it is %+v, %w, want status %s", w, err, want)
		}
		return nil
	})
}

// TestLostWorker checks that the boxes of a worker are lost that is away for too long, also for the next server, and that the worker joins again
// without boxes.
func TestLostWorker(t *testing.T) {
	r := newRig(t, brief, 8*gib, gib)
	r.lost = 6 * time.Second
	r.reopen(t, r.driver())
	a := r.machines[0]
	s, h := r.started(t, gib)
	r.wantOn(t, s.ID, "a")
	kept, keptHandle := r.started(t, 7*gib) // so that the next is on the other
	r.wantOn(t, kept.ID, "a")
	other, otherHandle := r.started(t, gib/4)
	r.wantOn(t, other.ID, "b")
	waited := make(chan driver.Exit, 1)
	go func() {
		exit, err := r.driver().Wait(within(t), s.ID)
		if err != nil {
			t.Errorf("Wait() = %v", err)
		}
		waited <- exit
	}()
	r.leave(t, a)
	if exit := <-waited; !exit.Lost || !strings.Contains(exit.Detail, "the worker a of the sandbox is lost") {
		t.Errorf("Wait() = %+v, want that the box is lost", exit)
	}
	r.wantStatus(t, "a", worker.Lost)
	if _, err := r.driver().Dial(within(t), s.ID, driver.AgentPort); sandbox.CodeOf(err) != sandbox.Unavailable || errors.Is(err, driver.ErrAway) {
		t.Errorf("Dial() = %v, want that the worker is lost", err)
	}
	if err := r.driver().Destroy(within(t), s.ID); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
	if _, err := r.driver().Use(within(t), "a", worker.Draining); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("Use() of a lost worker = %v, want conflict", err)
	}
	r.wantAnswer(t, other.ID)

	r.reopen(t, r.driver())
	for id, h := range map[sandbox.ID]driver.Handle{s.ID: h, kept.ID: keptHandle} {
		if err := r.driver().Recover(within(t), id, h); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("Recover() of a box on a lost worker = %v, want not found", err)
		}
	}
	if err := r.driver().Recover(within(t), other.ID, otherHandle); err != nil {
		t.Errorf("Recover() = %v", err)
	}
	a.start(t)
	eventually(t, "the worker is back", func() error { return wantConnected(r.control.Load(), 2) })
	r.wantStatus(t, "a", worker.Ready)
	if ids, err := fake.New(a.host).List(within(t)); err != nil || len(ids) != 0 {
		t.Errorf("the worker that is back has the boxes %q, %v", ids, err)
	}
	again, _ := r.started(t, gib)
	r.wantOn(t, again.ID, "a")
	r.wantAnswer(t, other.ID)
}

// TestLostWorkerIsRemoved checks that a lost worker that is removed does not come back.
func TestLostWorkerIsRemoved(t *testing.T) {
	r := newRig(t, brief, 8*gib, gib)
	r.lost = 6 * time.Second
	r.reopen(t, r.driver())
	s, _ := r.started(t, gib)
	r.wantOn(t, s.ID, "a")
	r.leave(t, r.machines[0])
	r.wantStatus(t, "a", worker.Lost)
	if _, err := r.driver().Remove(within(t), "a", true); err != nil {
		t.Fatal(err)
	}
	if list := r.driver().Workers(); len(list) != 1 {
		t.Errorf("Workers() = %+v", list)
	}
	r.machines[0].start(t)
	r.wantRefused(t, r.machines[0])
}
