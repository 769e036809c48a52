package remote_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/driver/remote/remotetest"
	"github.com/modbox/modbox/internal/sandbox"
)

// hostile is a driver whose answers break the contract.
type hostile struct {
	*fake.Driver
	handle driver.Handle // of new boxes; nil for the right one
}

func (h *hostile) Create(ctx context.Context, s driver.Spec) (driver.Handle, error) {
	right, err := h.Driver.Create(ctx, s)
	if h.handle != nil {
		right = h.handle
	}
	return right, err
}

func (h *hostile) Start(context.Context, sandbox.ID) error {
	return sandbox.Wrap(sandbox.Conflict, errors.New(strings.Repeat("p", 1<<20)), "%s", strings.Repeat("m\n", 1<<20))
}

func (h *hostile) Wait(context.Context, sandbox.ID) (driver.Exit, error) {
	return driver.Exit{Cause: "made_up", Detail: strings.Repeat("d\n", 10<<10)}, nil
}

func (h *hostile) Usage(context.Context, sandbox.ID) (driver.Usage, error) {
	return driver.Usage{CPU: -1, MemoryBytes: -1}, nil
}

func (h *hostile) Stats(context.Context, sandbox.ID) (sandbox.Stats, error) {
	return sandbox.Stats{MemoryBytes: -1, CPUNanos: -1, Processes: 7}, nil
}

// TestAnswersBeyondTheContract checks that the control plane bounds the answers of a worker.
func TestAnswersBeyondTheContract(t *testing.T) {
	host := fake.NewHost(t.TempDir())
	t.Cleanup(func() { _ = host.Close() })
	h := &hostile{Driver: fake.New(host)}
	r := remotetest.New(t, func() (driver.Driver, error) { return h, nil }, fake.New(host), func(address string) string { return address })
	d, s := r.Control(), spec()
	if _, err := d.Create(within(t), s); err != nil {
		t.Fatal(err)
	}
	var coded *sandbox.Error
	if err := d.Start(within(t), s.ID); !errors.As(err, &coded) || coded.Code != sandbox.Conflict {
		t.Errorf("Start() = %.100v, want the worker's error", err)
	} else if len(coded.Message) > sandbox.MessageMax || strings.Contains(coded.Message, "\n") {
		t.Errorf("the message of Start() has %d bytes", len(coded.Message))
	}
	exit, err := d.Wait(within(t), s.ID)
	if err != nil || exit.Cause != sandbox.CauseExited || len(exit.Detail) > sandbox.MessageMax || strings.Contains(exit.Detail, "\n") {
		t.Errorf("Wait() = cause %q, detail of %d bytes, %v", exit.Cause, len(exit.Detail), err)
	}
	if u, err := d.Usage(within(t), s.ID); err != nil || u != (driver.Usage{}) {
		t.Errorf("Usage() = %+v, %v, want zeros", u, err)
	}
	if st, err := d.Stats(within(t), s.ID); err != nil || st.MemoryBytes != 0 || st.CPUNanos != 0 || st.Processes != 7 {
		t.Errorf("Stats() = %+v, %v, want no negative numbers", st, err)
	}
	h.handle = make(driver.Handle, 4<<10+1)
	other := spec()
	_, err = d.Create(within(t), other)
	wantCode(t, "Create() with a handle that is too long", err, sandbox.Internal)
	if ids, err := d.List(within(t)); err != nil || slices.Contains(ids, other.ID) {
		t.Errorf("List() = %v, %v, with the box of that handle", ids, err)
	}
}
