package network

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/netrule"
	"github.com/modbox/modbox/internal/sandbox"
)

// plugs is a driver that takes every interface, and makes the other end of it.
type plugs struct{ driver.Driver }

func (plugs) Capabilities() driver.Capabilities                  { return driver.Capabilities{Network: true} }
func (plugs) Plug(context.Context, sandbox.ID, driver.NIC) error { return nil }
func (plugs) Unplug(context.Context, sandbox.ID) error           { return nil }
func (plugs) Nameserver() netip.Addr                             { return netip.Addr{} }
func (plugs) Attach(sandbox.ID, *netrule.Rules) (box.Gateway, driver.NIC, error) {
	return struct{ box.Gateway }{}, driver.NIC{}, nil
}

// agents notes whether an operation has the box whose agent is configured.
type agents chan bool

func (a agents) Refresh(_ context.Context, b *box.Box) error {
	a <- b.Busy()
	return nil
}

// TestReadoptConfiguresAsAnOperation: a box that is readopted may be paused and started anew before its agent is configured, and the new
// agent takes no files after a configuration.
func TestReadoptConfiguresAsAnOperation(t *testing.T) {
	boxes, work := background.New(), background.New()
	boxes.Start()
	work.Start()
	configured := make(agents, 2)
	s := New(0, Deps{Agents: configured, Driver: plugs{}, Gateways: plugs{}, Work: work, Logger: slog.Default()})
	begin := func(id sandbox.ID) *box.Box {
		b := box.New(boxes, id, agentapi.NewClient(nil))
		t.Cleanup(b.Cancel)
		b.Set(sandbox.Sandbox{ID: id, State: sandbox.Running, Network: sandbox.Network{Enabled: true}})
		return b
	}
	b := begin("running")
	s.Readopt(t.Context(), b)
	if !<-configured {
		t.Error("the agent was configured beside operations")
	}
	if !b.Link.Connected() {
		t.Error("the box has no interface")
	}

	paused := begin("paused")
	ready, release := make(chan struct{}), make(chan struct{})
	go func() {
		_ = paused.Exclusively(context.Background(), box.Pause, func() error { // it ends
			close(ready)
			<-release
			paused.Lock()
			defer paused.Unlock()
			paused.Set(sandbox.Sandbox{ID: paused.ID, State: sandbox.Paused, Network: sandbox.Network{Enabled: true}})
			return nil
		})
	}()
	<-ready
	s.Readopt(t.Context(), paused)
	close(release)
	work.Stop()
	if err := work.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if len(configured) != 0 {
		t.Error("the agent of a box that was paused meanwhile was configured")
	}
}
