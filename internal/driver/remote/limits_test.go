package remote_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/sandbox"
)

// Limits of connections into boxes.
const maxDials, maxBoxDials = 1536, 256

// dialMany begins n connections to a port of a box, which do not end before ctx does.
func (r *rig) dialMany(ctx context.Context, id sandbox.ID, port uint16, n int) <-chan error {
	results := make(chan error, n)
	for range n {
		go func() {
			c, err := r.Control().Dial(ctx, id, port)
			if err == nil {
				c.Close()
			}
			results <- err
		}()
	}
	return results
}

// TestTooManyConnections checks that connections into boxes have limits, for a box and for all, and that they keep
// no box from its agent, its interface, its watcher, and its end.
func TestTooManyConnections(t *testing.T) {
	for name, ports := range map[string]struct{ full, free uint16 }{
		"Servers": {8080, driver.AgentPort}, "Agents": {driver.AgentPort, 8080},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d := r.Control()
			beside := r.started(t)
			inside, err := r.host.Listen(beside, 8080)
			if err != nil {
				t.Fatal(err)
			}
			defer inside.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var ids []sandbox.ID
			var results []<-chan error
			for range maxDials / maxBoxDials {
				ids = append(ids, r.started(t))
			}
			r.host.SetFaults(fake.Faults{Dial: func(ctx context.Context, id sandbox.ID) error {
				if id != beside {
					return fake.Hang(ctx, id)
				}
				return nil
			}})
			for _, id := range ids {
				began := r.dialMany(ctx, id, ports.full, maxBoxDials+10)
				for range 10 {
					wantCode(t, "Dial() beyond the limit of a box", <-began, sandbox.Unavailable)
				}
				results = append(results, began)
			}
			_, err = d.Dial(within(t), beside, ports.full)
			wantCode(t, "Dial() beyond the limit", err, sandbox.Unavailable)
			var c net.Conn
			if c, err = d.Dial(within(t), beside, ports.free); err != nil {
				t.Errorf("Dial() of the other kind = %v", err)
			} else {
				c.Close()
			}
			r.wantFrames(t, beside, r.plug(t, beside))
			ended := make(chan error, 1)
			go func() {
				_, err := d.Wait(within(t), ids[0])
				ended <- err
			}()
			if err := d.Destroy(within(t), ids[0]); err != nil {
				t.Errorf("Destroy() = %v", err)
			}
			if err := <-ended; err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
				t.Errorf("Wait() = %v", err)
			}
			cancel()
			for _, began := range results {
				for range maxBoxDials {
					if err := <-began; err == nil {
						t.Error("Dial() that was canceled succeeded")
					}
				}
			}
			if c, err = d.Dial(within(t), beside, ports.full); err != nil {
				t.Errorf("Dial() after the others = %v", err)
			} else {
				c.Close()
			}
		})
	}
}

// TestReserveSave checks that a box with a place is saved while all places are taken, and that another waits for a place before its save.
func TestReserveSave(t *testing.T) {
	r := newRig(t)
	d := r.Control()
	id, other := r.started(t), r.started(t)
	var releases []func()
	for range remote.Saves {
		release, err := d.ReserveSave(within(t), id, "")
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	ctx, cancel := context.WithCancel(within(t))
	began := make(chan error, 2)
	go func() {
		_, err := d.ReserveSave(ctx, other, "")
		began <- err
	}()
	go func() {
		began <- d.Checkpoint(ctx, other, filepath.Join(t.TempDir(), "saved"), driver.CheckpointOptions{})
	}()
	eventually(t, "the other box waits", func() error {
		if d.SavesWaiting() != 2 {
			return errors.New("not yet")
		}
		return nil
	})
	for range 2 {
		if err := d.Checkpoint(within(t), id, filepath.Join(t.TempDir(), "saved"), driver.CheckpointOptions{}); err != nil {
			t.Errorf("Checkpoint() of a box with a place = %v", err)
		}
	}
	cancel()
	for range 2 {
		if err := <-began; !errors.Is(err, context.Canceled) {
			t.Errorf("without a place: %v", err)
		}
	}
	for _, release := range releases {
		release()
		release()
	}
	if err := d.Checkpoint(within(t), other, filepath.Join(t.TempDir(), "saved"), driver.CheckpointOptions{}); err != nil {
		t.Errorf("Checkpoint() = %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.ReserveSave(within(t), id, ""); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("ReserveSave() of a closed driver = %v", err)
	}
}
