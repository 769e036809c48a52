package drivertest

import (
	"slices"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// needsSurvival skips the test when boxes end with the server.
func (h *host) needsSurvival(t *testing.T) {
	t.Helper()
	if !h.Driver.Capabilities().Survives {
		t.Skip("boxes do not survive the server")
	}
}

func testRecover(t *testing.T, h *host) {
	h.needsSurvival(t)
	b := h.start(t)
	s := b.run(t, "sleep")
	if got := line(t, s); got != "sleeping" {
		t.Fatalf("guest printed %q", got)
	}
	id, offset := s.Info().ID, s.Offset()
	h.restart(t)
	for range 2 { // the second does nothing
		if err := h.Driver.Recover(within(t), b.id, b.handle); err != nil {
			t.Fatalf("Recover() = %v", err)
		}
	}
	b.connect(t)
	again, err := b.client.Attach(t.Context(), id, offset)
	if err != nil {
		t.Fatalf("Attach() to a process from before = %v", err)
	}
	if again.Info().Exit != nil {
		t.Errorf("the process has ended: %+v", again.Info().Exit)
	}
	if err := again.Signal(9); err != nil {
		t.Error(err)
	}
	if _, exit, err := output(again); err != nil || exit == nil || exit.Signal != 9 {
		t.Errorf("after the kill: %+v, %v", exit, err)
	}
	wantCode(t, "Start() of a recovered box", h.Driver.Start(within(t), b.id), sandbox.Conflict)
	_, err = h.Driver.Create(within(t), b.spec)
	wantCode(t, "Create() of a recovered box", err, sandbox.Exists)
	if _, err := h.Driver.Stats(within(t), b.id); err != nil {
		t.Errorf("Stats() of a recovered box = %v", err)
	}
	ended := make(chan driver.Exit, 1)
	go func() {
		exit, _ := h.Driver.Wait(within(t), b.id)
		ended <- exit
	}()
	if h.Driver.Capabilities().Isolated {
		b.killInit(t)
		if exit := <-ended; exit.Cause != sandbox.CauseExited {
			t.Errorf("Wait() of a recovered box = %+v", exit)
		}
	}
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Errorf("Destroy() of a recovered box = %v", err)
	}
}

func testRecoverBadHandle(t *testing.T, h *host) {
	h.needsSurvival(t)
	b := h.start(t)
	h.restart(t)
	for _, bad := range []string{"", "nonsense", "\x00\xff", `{"id":"../../etc"}`} {
		wantCode(t, "Recover() with a bad handle", h.Driver.Recover(within(t), b.id, driver.Handle(bad)), sandbox.Invalid)
	}
	wantCode(t, "Recover() of another id", h.Driver.Recover(within(t), sandbox.NewID(), b.handle), sandbox.NotFound)
	if err := h.Driver.Recover(within(t), b.id, b.handle); err != nil {
		t.Errorf("Recover() with the right handle = %v", err)
	}
}

func testRecoverNeverStarted(t *testing.T, h *host) {
	b := h.create(t)
	h.restart(t)
	wantCode(t, "Recover() of a box that was never started", h.Driver.Recover(within(t), b.id, b.handle), sandbox.NotFound)
	if !slices.Contains(h.list(within(t), t), b.id) {
		t.Error("List() does not show its remains")
	}
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Errorf("Destroy() of its remains = %v", err)
	}
}

func testRecoverDestroyed(t *testing.T, h *host) {
	b := h.start(t)
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Fatal(err)
	}
	h.restart(t)
	wantCode(t, "Recover() of a destroyed box", h.Driver.Recover(within(t), b.id, b.handle), sandbox.NotFound)
}

func testNotRecovered(t *testing.T, h *host) {
	h.needsSurvival(t)
	b := h.start(t)
	h.restart(t)
	_, err := h.Driver.Dial(within(t), b.id, driver.AgentPort)
	wantCode(t, "Dial() of a box that was not recovered", err, sandbox.NotFound)
	if !slices.Contains(h.list(within(t), t), b.id) {
		t.Error("List() does not show it")
	}
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
	if slices.Contains(h.list(within(t), t), b.id) {
		t.Error("List() shows it after Destroy()")
	}
}
