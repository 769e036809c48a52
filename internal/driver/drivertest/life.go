package drivertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

func testCapabilities(t *testing.T, h *host) {
	c := h.Driver.Capabilities()
	if c.Name == "" {
		t.Error("the driver has no name")
	}
	if limits := c.Memory && c.CPU && c.Processes && c.Disk; !limits && len(c.Missing) == 0 {
		t.Errorf("%+v lacks limits without saying so in Missing", c)
	}
}

func testLife(t *testing.T, h *host) {
	b := h.start(t)
	info, err := b.client.Health(within(t))
	if err != nil || info.Configured != h.Blank {
		t.Errorf("Health() = %+v, %v, want a fresh agent", info, err)
	}
	out, exit, err := output(b.run(t, "eat", "1000"))
	if err != nil || out != "eaten 1000\n" || exit == nil || exit.Code != 0 {
		t.Errorf("guest printed %q and ended with %+v, %v", out, exit, err)
	}
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
	if slices.Contains(h.list(within(t), t), b.id) {
		t.Error("List() shows a destroyed box")
	}
	_, err = h.Driver.Dial(within(t), b.id, driver.AgentPort)
	wantCode(t, "Dial() of a destroyed box", err, sandbox.NotFound)
}

func testCreateTwice(t *testing.T, h *host) {
	b := h.create(t)
	_, err := h.Driver.Create(within(t), b.spec)
	wantCode(t, "the second Create()", err, sandbox.Exists)
	if err := h.Driver.Start(within(t), b.id); err != nil {
		t.Fatalf("Start() of the first = %v", err)
	}
	b.connect(t)
	_, err = h.Driver.Create(within(t), b.spec)
	wantCode(t, "Create() of a started box", err, sandbox.Exists)
	if _, err := b.client.Health(within(t)); err != nil {
		t.Errorf("the first box is harmed: %v", err)
	}
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Driver.Create(within(t), b.spec); err != nil {
		t.Errorf("Create() after Destroy() = %v", err)
	}
}

func testCreateInvalid(t *testing.T, h *host) {
	for name, spoil := range map[string]func(*driver.Spec){
		"NoHostname":      func(s *driver.Spec) { s.Hostname = "" },
		"BadHostname":     func(s *driver.Spec) { s.Hostname = "a b" },
		"RelativeRootFS":  func(s *driver.Spec) { s.RootFS = "image" },
		"NoMemory":        func(s *driver.Spec) { s.Resources.MemoryBytes = 0 },
		"NoDisk":          func(s *driver.Spec) { s.Resources.DiskBytes = 0 },
		"NoCPU":           func(s *driver.Spec) { s.Resources.CPUMilli = 0 },
		"NegativeProcess": func(s *driver.Spec) { s.MaxProcesses = -1 },
		"BadID":           func(s *driver.Spec) { s.ID = "../../x" },
	} {
		t.Run(name, func(t *testing.T) {
			spec := h.Spec()
			spoil(&spec)
			_, err := h.Driver.Create(within(t), spec)
			wantCode(t, "Create()", err, sandbox.Invalid)
			var e *sandbox.Error
			if errors.As(err, &e) && e.Field == "" {
				t.Errorf("Create() = %v names no field", err)
			}
		})
	}
}

func testCreateRunsNothing(t *testing.T, h *host) {
	b := h.create(t)
	_, err := h.Driver.Dial(within(t), b.id, driver.AgentPort)
	wantCode(t, "Dial() of a box that is not started", err, sandbox.Conflict)
	if !slices.Contains(h.list(within(t), t), b.id) {
		t.Error("List() does not show a created box")
	}
}

func testStartTwice(t *testing.T, h *host) {
	b := h.start(t)
	wantCode(t, "the second Start()", h.Driver.Start(within(t), b.id), sandbox.Conflict)
	if _, err := b.client.Health(within(t)); err != nil {
		t.Errorf("the box is harmed: %v", err)
	}
}

func testUnknownBox(t *testing.T, h *host) {
	id := sandbox.NewID()
	wantCode(t, "Start()", h.Driver.Start(within(t), id), sandbox.NotFound)
	_, err := h.Driver.Wait(within(t), id)
	wantCode(t, "Wait()", err, sandbox.NotFound)
	_, err = h.Driver.Dial(within(t), id, driver.AgentPort)
	wantCode(t, "Dial()", err, sandbox.NotFound)
	_, err = h.Driver.Stats(within(t), id)
	wantCode(t, "Stats()", err, sandbox.NotFound)
	if err := h.Driver.Destroy(within(t), id); err != nil {
		t.Errorf("Destroy() = %v, want nil", err)
	}
}

func testDestroyInEveryState(t *testing.T, h *host) {
	created, started := h.create(t), h.start(t)
	started.run(t, "sleep")
	boxes := []*box{created, started}
	if h.Driver.Capabilities().Isolated {
		ended := h.start(t)
		ended.killInit(t)
		if _, err := h.Driver.Wait(within(t), ended.id); err != nil {
			t.Fatalf("Wait() = %v", err)
		}
		boxes = append(boxes, ended)
	}
	for _, b := range boxes {
		for range 2 {
			if err := h.Driver.Destroy(within(t), b.id); err != nil {
				t.Errorf("Destroy() = %v", err)
			}
		}
	}
}

func testDestroyEndsConnections(t *testing.T, h *host) {
	b := h.start(t)
	port, _ := b.serve(t, "echo")
	conn := b.dial(t, port)
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	if _, err := conn.Read(one); err != nil {
		t.Fatalf("Read() = %v", err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(one)
		read <- err
	}()
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Fatalf("Destroy() = %v", err)
	}
	select {
	case err := <-read:
		if err == nil {
			t.Error("Read() got a byte from a destroyed box")
		}
	case <-within(t).Done():
		t.Error("Read() goes on after Destroy()")
	}
}

func testWaitForDestroy(t *testing.T, h *host) {
	b := h.start(t)
	type end struct {
		exit driver.Exit
		err  error
	}
	const waiters = 4
	ends := make(chan end, waiters)
	ready := make(chan struct{}, waiters)
	for range waiters {
		go func() {
			ready <- struct{}{}
			exit, err := h.Driver.Wait(within(t), b.id)
			ends <- end{exit, err}
		}()
	}
	for range waiters {
		<-ready
	}
	// Wait calls that begin after Destroy find no box: both answers are correct.
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Fatalf("Destroy() = %v", err)
	}
	for range waiters {
		e := <-ends
		if e.err == nil && e.exit.Cause != sandbox.CauseDestroyed {
			t.Errorf("Wait() = %+v, want cause %q", e.exit, sandbox.CauseDestroyed)
		}
		if e.err != nil && sandbox.CodeOf(e.err) != sandbox.NotFound {
			t.Errorf("Wait() = %v", e.err)
		}
	}
}

func testWaitContext(t *testing.T, h *host) {
	b := h.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.Driver.Wait(ctx, b.id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait() = %v, want the context's error", err)
	}
	if _, err := b.client.Health(within(t)); err != nil {
		t.Errorf("the box is harmed: %v", err)
	}
}

// killInit kills the agent from inside the box.
func (b *box) killInit(t *testing.T) {
	t.Helper()
	out, exit, err := output(b.run(t, "killinit"))
	if err == nil && exit != nil && exit.Code != 0 {
		t.Fatalf("the agent cannot be killed from inside: %q", out)
	}
}

func testEndFromInside(t *testing.T, h *host) {
	if !h.Driver.Capabilities().Isolated {
		t.Skip("not isolated: killing PID 1 in the box would affect this machine")
	}
	b := h.start(t)
	type end struct {
		exit driver.Exit
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		exit, err := h.Driver.Wait(within(t), b.id) // fails when it takes too long
		ended <- end{exit, err}
	}()
	b.killInit(t)
	e := <-ended
	if e.err != nil || e.exit.Cause != sandbox.CauseExited {
		t.Errorf("Wait() = %+v, %v, want cause %q", e.exit, e.err, sandbox.CauseExited)
	}
	if exit, err := h.Driver.Wait(within(t), b.id); err != nil || exit.Cause != sandbox.CauseExited {
		t.Errorf("Wait() after the end = %+v, %v", exit, err)
	}
	_, err := h.Driver.Dial(within(t), b.id, 80)
	wantCode(t, "Dial() of an ended box", err, sandbox.Unavailable)
	_, err = h.Driver.Stats(within(t), b.id)
	wantCode(t, "Stats() of an ended box", err, sandbox.Unavailable)
	if !slices.Contains(h.list(within(t), t), b.id) {
		t.Error("List() does not show an ended box")
	}
	h.restart(t)
	wantCode(t, "Recover() of an ended box", h.Driver.Recover(within(t), b.id, b.handle), sandbox.NotFound)
}

func testList(t *testing.T, h *host) {
	if ids := h.list(within(t), t); len(ids) != 0 {
		t.Fatalf("List() = %v on an empty host", ids)
	}
	want := []sandbox.ID{h.create(t).id, h.create(t).id, h.start(t).id}
	got := h.list(within(t), t)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("List() = %v, want %v", got, want)
	}
}

func testStats(t *testing.T, h *host) {
	b := h.start(t)
	before := time.Now()
	s, err := h.Driver.Stats(within(t), b.id)
	if err != nil {
		t.Fatalf("Stats() = %v", err)
	}
	if s.Time.Before(before.Add(-time.Minute)) || s.Time.After(time.Now().Add(time.Minute)) {
		t.Errorf("Stats().Time = %v, want about now", s.Time)
	}
	r := b.spec.Resources
	if s.MemoryLimit != r.MemoryBytes || s.CPULimitMilli != r.CPUMilli || s.DiskLimit != r.DiskBytes {
		t.Errorf("Stats() = %+v, want the limits of %+v", s, r)
	}
	for name, n := range map[string]int64{
		"MemoryBytes": s.MemoryBytes, "CPUNanos": s.CPUNanos, "DiskBytes": s.DiskBytes, "Processes": s.Processes, "HostPSSBytes": s.HostPSSBytes,
	} {
		if n < 0 {
			t.Errorf("Stats().%s = %d", name, n)
		}
	}
	if c := h.Driver.Capabilities(); c.Memory && s.MemoryBytes == 0 {
		t.Error("Stats().MemoryBytes = 0 where memory is limited")
	}
}

func testCloseEndsCalls(t *testing.T, h *host) {
	b := h.start(t)
	ended := make(chan error, 1)
	waiting := make(chan struct{})
	old := h.Driver
	go func() {
		close(waiting)
		_, err := old.Wait(within(t), b.id)
		ended <- err
	}()
	<-waiting
	<-time.After(20 * time.Millisecond) // most likely Wait is in progress; if not, it must return all the same
	h.restart(t)
	select {
	case err := <-ended:
		wantCode(t, "Wait() of a closed driver", err, sandbox.Unavailable)
	case <-within(t).Done():
		t.Error("Wait() goes on after Close()")
	}
}

func testBoxesAreSeparate(t *testing.T, h *host) {
	a, b := h.start(t), h.start(t)
	if _, err := a.client.WriteFile(within(t), "/modbox-only-a", stringReader("a"), agentapi.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	var e *agentapi.Error
	if _, err := b.client.Stat(within(t), "/modbox-only-a"); !errors.As(err, &e) || e.Code != agentapi.CodeNoFile {
		t.Errorf("a file of one box in the other: %v", err)
	}
	if err := h.Driver.Destroy(within(t), a.id); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Health(within(t)); err != nil {
		t.Errorf("a box does not answer after another was destroyed: %v", err)
	}
}
