package savedbox_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/driver/remote/remotetest"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/savedbox"
	"github.com/modbox/modbox/internal/usage"
)

// link is a network between a worker and its server that can be down.
type link struct {
	to      string
	running sync.WaitGroup

	mu    sync.Mutex
	down  bool              // guarded by mu
	conns map[net.Conn]bool // guarded by mu
}

// listen makes a link to an address, and returns the address of its other end.
func (l *link) listen(t *testing.T, to string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.to, l.conns = to, map[net.Conn]bool{}
	l.running.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			l.running.Go(func() { l.carry(in) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); l.set(true); l.running.Wait() })
	return listener.Addr().String()
}

// set takes the link down, which ends its connections, or up.
func (l *link) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for c := range l.conns {
		if down {
			_ = c.Close()
		}
	}
}

// add notes a connection, unless the link is down.
func (l *link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = !l.down
	return !l.down
}

func (l *link) carry(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer out.Close()
	if !l.add(in) || !l.add(out) {
		return
	}
	l.running.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
	_, _ = io.Copy(in, out)
}

// outage is a driver whose worker is lost as soon as a box is restored, until the box is destroyed.
type outage struct {
	*remote.Driver
	link    *link
	outages int // still to come
	made    int // boxes without memory
}

func (d *outage) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Handle, error) {
	h, err := d.Driver.Restore(ctx, spec, dir)
	if d.outages > 0 {
		d.outages--
		d.link.set(true)
	}
	return h, err
}

func (d *outage) Destroy(ctx context.Context, id sandbox.ID) error {
	d.link.set(false)
	return d.Driver.Destroy(ctx, id)
}

func (d *outage) Create(context.Context, driver.Spec) (driver.Handle, error) {
	d.made++
	return nil, sandbox.Errorf(sandbox.Unavailable, "no box can be made")
}

// TestMemorySurvivesOutages checks that a worker which is lost before the agent of a restored box is configured, for longer than a start may take and more
// than once, does not look like a memory of no use.
func TestMemorySurvivesOutages(t *testing.T) {
	dir, err := os.MkdirTemp("", "box") // shorter than t.TempDir: sockets may live below
	if err != nil {
		t.Fatal(err)
	}
	host := fake.NewHost(dir)
	t.Cleanup(func() {
		if err := errors.Join(host.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	content := make([]byte, 64<<10)
	sum := sha256.Sum256(content)
	images := &service{slots: fairsem.NewBrief(1), rootfs: filepath.Join(t.TempDir(), stack.FileName("sha256:"+hex.EncodeToString(sum[:])))}
	if err := os.WriteFile(images.rootfs, content, 0o600); err != nil {
		t.Fatal(err)
	}
	network := &link{}
	rig := remotetest.New(t, func() (driver.Driver, error) { return fake.New(host), nil }, fake.New(host), func(address string) string {
		return network.listen(t, address)
	})
	d := &outage{Driver: rig.Control().Driver, link: network}
	images.driver = d
	group := background.New()
	group.Start()
	t.Cleanup(group.Cancel)
	store, err := checkpoint.Open(filepath.Join(t.TempDir(), "saved"), nil, d, nil, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	id := sandbox.NewID()
	agent := agentapi.NewClient(func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, id, driver.AgentPort) })
	defer agent.Close()
	b := box.New(group, id, agent)
	t.Cleanup(b.Cancel)
	sb := sandbox.Sandbox{ID: id, State: sandbox.Running, Workspace: "w", Saved: sandbox.NewCheckpointID()}
	b.Set(sb)
	if _, err := rig.Control().Create(t.Context(), images.Spec(&sb, images.rootfs)); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	path := store.Path(id, sb.Saved)
	if err := savedbox.NewSaver(d, store, nil, nil, time.Millisecond).Save(b, path, driver.CheckpointOptions{Stop: true, Layer: true}); err != nil {
		t.Fatal(err)
	}
	reviver := func(startTimeout time.Duration) *savedbox.Reviver {
		return savedbox.NewReviver(startTimeout, savedbox.ReviverDeps{
			Host: images, Saved: store, Driver: d, Images: images, Usage: usage.New(nil, d, slog.Default()), Logger: slog.Default(), Context: group.Context(),
			Environments: environment.New(environment.Config{}, nil, nil, nil),
		})
	}
	if err := reviver(time.Minute).Destroy(b); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.outages = 2
		back, err := reviver(500*time.Millisecond).BringBackOrAnew(b, path, "", sandbox.MemoryPrefer)
		if sandbox.CodeOf(err) != sandbox.Unavailable || d.made > 0 {
			t.Fatalf("BringBackOrAnew without its worker = %+v, %v; %d boxes begin anew", back, err, d.made)
		}
		network.set(false)
		if err := reviver(time.Minute).Destroy(b); err != nil {
			t.Fatal(err)
		}
	}
	d.outages = 0
	if back, err := reviver(time.Minute).BringBackOrAnew(b, path, "", sandbox.MemoryPrefer); err != nil || back.Lost != "" {
		t.Errorf("BringBackOrAnew afterwards = %+v, %v", back, err)
	}
}
