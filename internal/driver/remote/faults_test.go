package remote_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/sandbox"
)

// breaks are the ways in which a connection breaks.
var breaks = map[string]func(*relay){
	"Cut":             (*relay).cut,
	"HalfClosedIn":    func(r *relay) { r.halfClose(true) },
	"HalfClosedOut":   func(r *relay) { r.halfClose(false) },
	"BlockedThenLost": func(r *relay) { r.block(); r.cut(); r.pass() },
}

// TestABrokenConnection checks that boxes and waits survive, that connections into boxes end, and that calls work again.
func TestABrokenConnection(t *testing.T) {
	for name, breakIt := range breaks {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d := r.Control()
			id := r.started(t)
			inside, err := r.host.Listen(id, 8080)
			if err != nil {
				t.Fatal(err)
			}
			defer inside.Close()
			conn, err := d.Dial(within(t), id, 8080)
			if err != nil {
				t.Fatalf("Dial() = %v", err)
			}
			defer conn.Close()
			waiting := make(chan struct{})
			r.host.SetFaults(fake.Faults{Wait: func(context.Context, sandbox.ID) error { waiting <- struct{}{}; return nil }})
			ended := make(chan error, 1)
			go func() {
				exit, err := d.Wait(within(t), id)
				if err == nil && exit.Cause != sandbox.CauseOOM {
					err = errors.New("the exit is another")
				}
				ended <- err
			}()
			<-waiting
			breakIt(r.relay)
			<-waiting // of the same call, on the next connection
			if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read() of a lost connection = %v", err)
			}
			for range 5 {
				r.relay.cut()
				if _, err := d.Stats(within(t), id); err != nil {
					t.Errorf("Stats() = %v", err)
				}
				if ids, err := d.List(within(t)); err != nil || !slices.Contains(ids, id) {
					t.Errorf("List() = %v, %v", ids, err)
				}
				select { // of the connections that were cut
				case <-waiting:
				case <-within(t).Done():
					t.Fatal("the wait does not go on")
				}
			}
			r.wantAnswer(t, id)
			r.host.End(id, driver.Exit{Cause: sandbox.CauseOOM})
			for {
				select {
				case <-waiting:
					continue
				case err := <-ended:
					if err != nil {
						t.Errorf("Wait() = %v", err)
					}
				}
				break
			}
		})
	}
}

// TestNoWorker checks that calls fail, and that Wait does not.
func TestNoWorker(t *testing.T) {
	d := remote.New(remote.Config{Patience: 10 * time.Millisecond})
	_, err := d.List(within(t))
	wantCode(t, "List() without worker", err, sandbox.Unavailable)
	_, err = d.Create(within(t), spec())
	wantCode(t, "Create() without worker", err, sandbox.Unavailable)
	if c := d.Capabilities(); c.Isolated || len(c.Missing) == 0 {
		t.Errorf("Capabilities() without worker = %+v", c)
	}
	ready := make(chan error, 1)
	go func() { ready <- d.Ready(within(t)) }()
	if err := d.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	wantCode(t, "Ready() of a closed driver", <-ready, sandbox.Unavailable)
}

// TestLostAnswers checks that nothing remains of a box whose maker heard nothing.
func TestLostAnswers(t *testing.T) {
	for name, call := range map[string]func(d driver.Checkpointer, s driver.Spec, dir string) error{
		"Create": func(d driver.Checkpointer, s driver.Spec, _ string) error {
			_, err := d.(driver.Driver).Create(context.Background(), s)
			return err
		},
		"Restore": func(d driver.Checkpointer, s driver.Spec, dir string) error {
			_, err := d.Restore(context.Background(), s, dir)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d := r.Control()
			dir := filepath.Join(t.TempDir(), "saved")
			if err := d.Checkpoint(within(t), r.started(t), dir, driver.CheckpointOptions{}); err != nil {
				t.Fatalf("Checkpoint() = %v", err)
			}
			s := spec()
			release, err := d.Stage(within(t), "", s, dir)
			if err != nil {
				t.Fatalf("Stage() = %v", err)
			}
			defer release()
			r.relay.block()
			done := make(chan error, 1)
			go func() { done <- call(d.Driver, s, dir) }()
			beside := fake.New(r.host)
			eventually(t, "the box is made", func() error {
				ids, err := beside.List(within(t))
				if err == nil && !slices.Contains(ids, s.ID) {
					err = errors.New("not yet")
				}
				return err
			})
			r.relay.cut()
			r.relay.pass()
			wantCode(t, name+"() without an answer", <-done, sandbox.Unavailable)
			if ids, err := d.List(within(t)); err != nil || slices.Contains(ids, s.ID) {
				t.Errorf("List() = %v, %v, with what was made", ids, err)
			}
			if err := call(d, s, dir); err != nil {
				t.Errorf("%s() again = %v", name, err)
			}
		})
	}
}

// TestRestoreThatIsLate checks the error of a Restore whose context ends: it is the context's, and says whether the worker has answered. Only
// then the checkpoint may be the reason.
func TestRestoreThatIsLate(t *testing.T) {
	r := newRig(t)
	s, dir := r.saved(t, 1)
	d := r.Control().Driver
	release, err := d.Stage(within(t), "", s, dir)
	if err != nil {
		t.Fatalf("Stage() = %v", err)
	}
	defer release()
	r.host.SetFaults(fake.Faults{Restore: func(ctx context.Context, _ sandbox.ID) error { <-ctx.Done(); return context.Cause(ctx) }})
	late := func(when string, want error, unanswered bool, ctx context.Context, cancel context.CancelFunc) {
		t.Helper()
		defer cancel()
		if _, err := d.Restore(ctx, s, dir); !errors.Is(err, want) || errors.Is(err, driver.ErrAway) != unanswered {
			t.Errorf("Restore() %s = %v, want %v, and without an answer of the worker: %t", when, err, want, unanswered)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	late("whose worker answers that the time is over", context.DeadlineExceeded, false, ctx, cancel)
	ctx, cancel = context.WithTimeout(t.Context(), 0)
	late("whose time was over before", context.DeadlineExceeded, true, ctx, cancel)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	late("that was canceled before", context.Canceled, false, ctx, cancel)
}

// TestCutWhileMaking checks that nothing remains of a box whose maker is cut off before it is made.
func TestCutWhileMaking(t *testing.T) {
	r := newRig(t)
	r.host.SetFaults(fake.Faults{Create: func(ctx context.Context, _ sandbox.ID) error {
		r.relay.cut()
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	_, err := r.Control().Create(within(t), spec())
	wantCode(t, "Create() that is cut off", err, sandbox.Unavailable)
	r.host.SetFaults(fake.Faults{Start: func(ctx context.Context, _ sandbox.ID) error {
		r.relay.cut()
		return nil
	}})
	if ids, err := r.Control().List(within(t)); err != nil || len(ids) != 0 {
		t.Errorf("List() = %v, %v, want none", ids, err)
	}
	s := spec()
	if _, err := r.Control().Create(within(t), s); err != nil {
		t.Fatalf("Create() = %v", err)
	}
	wantCode(t, "Start() that is cut off", r.Control().Start(within(t), s.ID), sandbox.Unavailable)
}

// TestWorkerRestarts checks that another process of the worker takes over the boxes that live, and that waits for
// the others end.
func TestWorkerRestarts(t *testing.T) {
	r := newRig(t)
	d := r.Control()
	lives, dies := r.started(t), r.started(t)
	gateway := r.plug(t, lives)
	type end struct {
		exit driver.Exit
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		exit, err := d.Wait(within(t), dies)
		ended <- end{exit, err}
	}()
	r.StopWorker()
	r.host.End(dies, driver.Exit{Cause: sandbox.CauseExited})
	r.StartWorker(t)
	if e := <-ended; e.err != nil || (!e.exit.Lost || e.exit.Cause != sandbox.CauseHostRestart) && e.exit != (driver.Exit{Cause: sandbox.CauseExited}) {
		t.Errorf("Wait() of a box that ended without its worker = %+v, %v", e.exit, e.err)
	}
	_, err := d.Dial(within(t), dies, driver.AgentPort)
	wantCode(t, "Dial() of a box that ended without its worker", err, sandbox.Unavailable)
	r.wantAnswer(t, lives)
	if _, err := d.Stats(within(t), lives); err != nil {
		t.Errorf("Stats() of a box that was taken over = %v", err)
	}
	r.wantFrames(t, lives, gateway)
	for _, id := range []sandbox.ID{lives, dies} {
		if err := d.Destroy(within(t), id); err != nil {
			t.Errorf("Destroy() = %v", err)
		}
	}
	if ids, err := d.List(within(t)); err != nil || len(ids) != 0 {
		t.Errorf("List() = %v, %v, want none", ids, err)
	}
}

// plug gives a box an interface and returns the gateway's end.
func (r *rig) plug(t *testing.T, id sandbox.ID) net.Conn {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Control().Plug(within(t), id, driver.NIC{
		File: os.NewFile(uintptr(fds[1]), "nic"), MTU: 1500,
		MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, GatewayMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		Address: netip.MustParsePrefix("10.9.0.2/24"), Gateway: netip.MustParseAddr("10.9.0.1"),
	}); err != nil {
		t.Fatalf("Plug() = %v", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "gateway")
	defer ours.Close()
	gateway, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gateway.Close() })
	return gateway
}

// wantFrames checks that frames arrive in both directions, perhaps after others were lost.
func (r *rig) wantFrames(t *testing.T, id sandbox.ID, gateway net.Conn) {
	t.Helper()
	out, in := strings.Repeat("o", 1514), strings.Repeat("i", 1514)
	buffer := make([]byte, 2000)
	eventually(t, "a frame arrives at the gateway", func() error {
		box, err := r.host.DialNIC(id)
		if err != nil {
			return err
		}
		defer box.Close()
		if _, err := box.Write([]byte(out)); err != nil {
			return err
		}
		_ = gateway.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := gateway.Read(buffer)
		if err == nil && string(buffer[:n]) != out {
			err = errors.New("the frame is another")
		}
		return err
	})
	eventually(t, "a frame arrives in the box", func() error {
		box, err := r.host.DialNIC(id)
		if err != nil {
			return err
		}
		defer box.Close()
		if _, err := gateway.Write([]byte(in)); err != nil {
			return err
		}
		_ = box.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := box.Read(buffer)
		if err == nil && string(buffer[:n]) != in {
			err = errors.New("the frame is another")
		}
		return err
	})
}

// TestInterface checks that frames pass, again after a connection broke, and that the same interface goes on.
func TestInterface(t *testing.T) {
	r := newRig(t)
	id := r.started(t)
	gateway := r.plug(t, id)
	r.wantFrames(t, id, gateway)
	before, _ := r.host.NIC(id)
	r.relay.cut()
	r.wantFrames(t, id, gateway)
	if after, ok := r.host.NIC(id); !ok || after.File != before.File {
		t.Error("after a connection broke, the box has another interface")
	}
	second := r.plug(t, id)
	r.wantFrames(t, id, second)
	if err := r.Control().Unplug(within(t), id); err != nil {
		t.Errorf("Unplug() = %v", err)
	}
	if _, ok := r.host.NIC(id); ok {
		t.Error("Unplug() left the interface")
	}
	r.relay.cut()
	if _, err := r.Control().List(within(t)); err != nil {
		t.Errorf("List() = %v", err)
	}
	if _, ok := r.host.NIC(id); ok {
		t.Error("the interface is back after a connection broke")
	}
}

// TestAnOlderControlPlane checks that a worker serves no control plane that is older than another that it has served.
func TestAnOlderControlPlane(t *testing.T) {
	r := newRig(t)
	old := r.Control()
	id := r.started(t)
	newer := r.Restart(t, old)
	r.Epoch -= 2
	older := r.NewControl()
	r.Use(older)
	r.relay.cut()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := older.Ready(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Ready() of an older control plane = %v", err)
	}
	r.Use(newer.Driver)
	if ids, err := newer.List(within(t)); err != nil || !slices.Contains(ids, id) {
		t.Errorf("List() = %v, %v", ids, err)
	}
	if err := older.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
}

// TestALayerBreaksOff checks that a layer of which a part arrived is an error.
func TestALayerBreaksOff(t *testing.T) {
	r := newRig(t)
	d := r.Control()
	id := r.started(t)
	agent := agentapi.NewClient(func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, id, driver.AgentPort) })
	defer agent.Close()
	// More than the windows and buffers on the way.
	if _, err := agent.WriteFile(within(t), "/large", io.LimitReader(rand.NewChaCha8([32]byte{1}), 32<<20), agentapi.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- d.WriteLayer(within(t), id, writer)
		writer.Close()
	}()
	if _, err := reader.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	r.relay.cut()
	_, _ = io.Copy(io.Discard, reader)
	wantCode(t, "WriteLayer() that breaks off", <-done, sandbox.Unavailable)
	r.wantAnswer(t, id)
}
