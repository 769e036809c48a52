package remote_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestCreateOfABoxThatExists checks that a Create that gets no answer does not destroy the box of another.
func TestCreateOfABoxThatExists(t *testing.T) {
	r := newRig(t)
	d := r.Control()
	s := spec()
	if _, err := d.Create(within(t), s); err != nil {
		t.Fatal(err)
	}
	r.host.SetFaults(fake.Faults{Create: func(ctx context.Context, _ sandbox.ID) error {
		r.relay.cut()
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	_, err := d.Create(within(t), s)
	wantCode(t, "Create() of a box that exists", err, sandbox.Exists)
	if ids, err := d.List(within(t)); err != nil || !slices.Contains(ids, s.ID) {
		t.Errorf("List() = %v, %v, without the box", ids, err)
	}
}

// TestUnclearBeforeCalls checks that a box that may have been made is destroyed before calls use the next
// connection: afterwards the box could be another, of the same id.
func TestUnclearBeforeCalls(t *testing.T) {
	r := newRig(t)
	d := r.Control()
	s := spec()
	early := make(chan error, 1)
	r.host.SetFaults(fake.Faults{
		Create: func(ctx context.Context, _ sandbox.ID) error {
			r.relay.cut()
			for !d.IsUnclear(s.ID) { // the worker connects again afterwards
				time.Sleep(time.Millisecond)
			}
			return errors.New("the connection was cut")
		},
		Destroy: func(context.Context, sandbox.ID) error {
			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := d.List(short)
			early <- err
			return nil
		},
	})
	_, err := d.Create(within(t), s)
	wantCode(t, "Create() that is cut off", err, sandbox.Unavailable)
	if err := <-early; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("List() before the Destroy of what may have been made = %v", err)
	}
	r.host.SetFaults(fake.Faults{})
	if _, err := d.Create(within(t), s); err != nil {
		t.Errorf("Create() again = %v", err)
	}
	r.relay.cut()
	if ids, err := d.List(within(t)); err != nil || !slices.Contains(ids, s.ID) {
		t.Errorf("List() = %v, %v, without the box", ids, err)
	}
}
