package lifecycle_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/netrule"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/sandbox"
)

// gateways is a network that notes which gateways are open.
type gateways struct {
	mu   sync.Mutex
	open map[sandbox.ID][]*gateway
	fail error // of Attach
}

type gateway struct {
	network        *gateways
	id             sandbox.ID
	sent, received int64          // guarded by network.mu
	rules          *netrule.Rules // guarded by network.mu
}

// dialed is the port at which a gateway has a server, which says that it was the gateway.
const dialed = 3000

func (g *gateway) Dial(_ context.Context, port uint16) (net.Conn, error) {
	if port != dialed {
		return nil, syscall.ECONNREFUSED
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		_, _ = there.Write([]byte("gateway"))
	}()
	return here, nil
}

func newGateways() *gateways { return &gateways{open: map[sandbox.ID][]*gateway{}} }

func (n *gateways) Attach(id sandbox.ID, rules *netrule.Rules) (box.Gateway, driver.NIC, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		return nil, driver.NIC{}, n.fail
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, driver.NIC{}, err
	}
	if err := syscall.Close(fds[0]); err != nil {
		return nil, driver.NIC{}, err
	}
	g := &gateway{network: n, id: id, rules: rules}
	n.open[id] = append(n.open[id], g)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	return g, driver.NIC{
		File: os.NewFile(uintptr(fds[1]), "nic"), MAC: mac, GatewayMAC: mac, MTU: 1500,
		Address: netip.MustParsePrefix("10.9.0.2/24"), Gateway: n.Nameserver(),
	}, nil
}

func (n *gateways) Nameserver() netip.Addr { return netip.MustParseAddr("10.9.0.1") }

func (g *gateway) Traffic() (sent, received int64) {
	g.network.mu.Lock()
	defer g.network.mu.Unlock()
	return g.sent, g.received
}

func (g *gateway) Restrict(rules *netrule.Rules) {
	g.network.mu.Lock()
	defer g.network.mu.Unlock()
	g.rules = rules
}

// wantRules checks the rules of the open gateway of a sandbox.
func (n *gateways) wantRules(t *testing.T, id sandbox.ID, allow, deny []string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.open[id]) != 1 {
		t.Errorf("sandbox %s has %d gateways", id, len(n.open[id]))
		return
	}
	var got [2][]string
	if rules := n.open[id][0].rules; rules != nil {
		got = [2][]string{rules.AllowOut(), rules.DenyOut()}
	}
	if diff := cmp.Diff([2][]string{allow, deny}, got); diff != "" {
		t.Errorf("rules of sandbox %s (-want +got):\n%s", id, diff)
	}
}

func (g *gateway) Close() {
	g.network.mu.Lock()
	defer g.network.mu.Unlock()
	g.network.open[g.id] = slices.DeleteFunc(g.network.open[g.id], func(o *gateway) bool { return o == g })
}

// carry has the open gateway of a sandbox carry bytes.
func (n *gateways) carry(id sandbox.ID, sent, received int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.open[id][0]
	g.sent, g.received = g.sent+sent, g.received+received
}

func (n *gateways) setFail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = err
}

// want checks that a sandbox has exactly one open gateway and an interface, or neither.
func (n *gateways) want(t *testing.T, h *host, id sandbox.ID, connected bool) {
	t.Helper()
	n.mu.Lock()
	open := len(n.open[id])
	n.mu.Unlock()
	_, plugged := h.NIC(id)
	if want := map[bool]int{true: 1}[connected]; open != want || plugged != connected {
		t.Errorf("sandbox %s has %d gateways, an interface: %v; want connected: %v", id, open, plugged, connected)
	}
}

// withNetwork makes an environment whose servers have a network.
func withNetwork(t *testing.T) (*env, *gateways) {
	e := newEnv(t)
	n := newGateways()
	e.gateways = n
	return e, n
}

func switched(on bool) network.Change { return network.Change{Enabled: &on} }

// The interface is the way to what listens there; the agent knows all others.
func TestDialTakesTheInterface(t *testing.T) {
	e, _ := withNetwork(t)
	s := e.start()
	plain := s.run(lifecycle.CreateRequest{Name: "plain"})
	sb := s.run(lifecycle.CreateRequest{Name: "net", Network: sandbox.Network{Enabled: true}})
	agents := listen(t)
	for _, tc := range []struct {
		id   sandbox.ID
		port uint16
		want string
	}{{sb.ID, dialed, "gateway"}, {sb.ID, agents, "agent"}, {plain.ID, agents, "agent"}} {
		conn, err := s.Guest().Dial(t.Context(), tc.id, tc.port)
		if err != nil {
			t.Fatalf("Dial(%d) = %v", tc.port, err)
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != tc.want {
			t.Errorf("port %d says %q, %v, want %q", tc.port, got, err, tc.want)
		}
		conn.Close()
	}
	if _, err := s.Guest().Dial(t.Context(), plain.ID, dialed); sandbox.CodeOf(err) != sandbox.PortClosed {
		t.Errorf("Dial() of the interface's port in a sandbox without one = %v", err)
	}
}

// listen serves "agent" at a port of the host, which the fake driver takes for the sandbox's.
func listen(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("agent"))
			c.Close()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestNetworkFollowsTheSandbox(t *testing.T) {
	e, n := withNetwork(t)
	s := e.start()
	plain := s.run(lifecycle.CreateRequest{Name: "plain"})
	n.want(t, e.host, plain.ID, false)
	sb := s.run(lifecycle.CreateRequest{Name: "net", Network: sandbox.Network{Enabled: true, Ports: []uint16{3000}}})
	n.want(t, e.host, sb.ID, true)
	if sb.Port() != 3000 {
		t.Errorf("its URL leads to %d, want the published port", sb.Port())
	}
	resolv := filepath.Join(e.host.Root(sb.ID), "etc/resolv.conf")
	if data, err := os.ReadFile(resolv); err != nil || string(data) != "nameserver 10.9.0.1\n" {
		t.Errorf("resolv.conf is %q, %v", data, err)
	}

	s.pause("net")
	n.want(t, e.host, sb.ID, false)
	s.resume("net")
	n.want(t, e.host, sb.ID, true)

	if _, err := s.Checkpoints().Create(t.Context(), e.caller, "net", "cp"); err != nil {
		t.Fatal(err)
	}
	n.want(t, e.host, sb.ID, true)
	if _, err := s.Checkpoints().Restore(t.Context(), e.caller, "net", "cp"); err != nil {
		t.Fatal(err)
	}
	n.want(t, e.host, sb.ID, true)

	forks, err := s.Fork(t.Context(), e.caller, "net", lifecycle.ForkRequest{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	n.want(t, e.host, sb.ID, true)
	n.want(t, e.host, forks[0].Sandbox.ID, true)
	if diff := cmp.Diff(sb.Network, forks[0].Sandbox.Network); diff != "" {
		t.Errorf("network of the fork (-want +got):\n%s", diff)
	}

	s.kill()
	s = e.start()
	n.want(t, e.host, sb.ID, true)
	s.destroy("net")
	n.want(t, e.host, sb.ID, false)
	s.stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.open[forks[0].Sandbox.ID]) != 0 {
		t.Error("a closed server leaves a gateway open")
	}
}

// A sandbox whose memory is given up has its network, and is measured, all the same.
func TestNetworkOfASandboxStartedAnew(t *testing.T) {
	e, n := withNetwork(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "p", Network: sandbox.Network{Enabled: true}})
	s.pause("p")
	if _, err := s.Resume(t.Context(), e.caller, "p", lifecycle.ResumeRequest{Memory: sandbox.MemoryDiscard}); err != nil {
		t.Fatal(err)
	}
	n.want(t, e.host, sb.ID, true)
	e.host.SetUsage(sb.ID, driver.Usage{CPU: time.Second, MemoryBytes: 1})
	if u, err := s.Usage(t.Context(), e.caller, "p"); err != nil || u.CPU != time.Second {
		t.Errorf("Usage() = %+v, %v, want a second of CPU", u, err)
	}
}

func TestSetNetwork(t *testing.T) {
	e, n := withNetwork(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "s"})
	set := func(change network.Change, want sandbox.Network) {
		t.Helper()
		got, err := s.Networks().Set(t.Context(), e.caller, "s", change)
		if diff := cmp.Diff(want, got.Network); err != nil || diff != "" {
			t.Errorf("SetNetwork(): %v (-want +got):\n%s", err, diff)
		}
	}
	for range 2 {
		set(switched(true), sandbox.Network{Enabled: true})
		n.want(t, e.host, sb.ID, true)
	}
	set(network.Change{Ports: &[]uint16{80, 81}}, sandbox.Network{Enabled: true, Ports: []uint16{80, 81}})
	n.want(t, e.host, sb.ID, true)
	for range 2 {
		set(switched(false), sandbox.Network{Ports: []uint16{80, 81}})
		n.want(t, e.host, sb.ID, false)
	}
	s.pause("s")
	set(switched(true), sandbox.Network{Enabled: true, Ports: []uint16{80, 81}})
	n.want(t, e.host, sb.ID, false)
	if got := s.resume("s"); !got.Network.Enabled {
		t.Errorf("resumed with network %+v", got.Network)
	}
	n.want(t, e.host, sb.ID, true)
	count := 0
	for _, typ := range s.eventTypes("s") {
		if typ == sandbox.EventNetwork {
			count++
		}
	}
	if count != 4 {
		t.Errorf("%d events of the network, want one for each of 4 changes", count)
	}

	_, err := s.Networks().Set(t.Context(), e.caller, "s", network.Change{Ports: &[]uint16{80, 80}})
	var coded *sandbox.Error
	if !errors.As(err, &coded) || coded.Code != sandbox.Invalid || coded.Field != "ports" {
		t.Errorf("a port twice: %v, want invalid ports", err)
	}
	if _, err := s.Networks().Set(t.Context(), e.caller, "none", switched(true)); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("of no sandbox: %v", err)
	}
	s.destroy("s")
	if _, err := s.Networks().Set(t.Context(), e.caller, string(sb.ID), switched(true)); sandbox.CodeOf(err) != sandbox.Ended {
		t.Errorf("of an ended sandbox: %v", err)
	}
}

func TestServerWithoutNetwork(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	_, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Network: sandbox.Network{Enabled: true}})
	if sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("Create with network: %v, want unsupported", err)
	}
	s.run(lifecycle.CreateRequest{Name: "s", Network: sandbox.Network{Ports: []uint16{80}}})
	if _, err := s.Networks().Set(t.Context(), e.caller, "s", switched(true)); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("SetNetwork: %v, want unsupported", err)
	}
	if _, err := s.Networks().Set(t.Context(), e.caller, "s", switched(false)); err != nil {
		t.Errorf("SetNetwork to what is: %v", err)
	}
}

// A network that is not available ends a sandbox that is being made, and is tried again for a
// running sandbox.
func TestNetworkFails(t *testing.T) {
	e, n := withNetwork(t)
	e.cfg.SweepInterval = 10 * time.Millisecond
	s := e.start()
	n.setFail(errors.New("out of files"))
	sb := s.create(lifecycle.CreateRequest{Name: "new", Network: sandbox.Network{Enabled: true}})
	if sb = s.reach(string(sb.ID), sandbox.Failed); sb.Cause.Code != sandbox.CauseStart {
		t.Errorf("cause %v, want start", sb.Cause)
	}
	sb = s.run(lifecycle.CreateRequest{Name: "s"})
	if _, err := s.Networks().Set(t.Context(), e.caller, "s", switched(true)); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("SetNetwork: %v, want unavailable", err)
	}
	n.setFail(nil)
	eventually(t, "the sweep has connected it", func() bool {
		_, plugged := e.host.NIC(sb.ID)
		return plugged
	})
	e.host.SetFaults(fake.Faults{Unplug: fake.Fail(errors.New("no"))})
	if _, err := s.Networks().Set(t.Context(), e.caller, "s", switched(false)); err != nil {
		t.Errorf("switching it off: %v", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.open[sb.ID]) != 0 {
		t.Error("the gateway is open although the network is off")
	}
}

func TestUsage(t *testing.T) {
	e, n := withNetwork(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "s", Network: sandbox.Network{Enabled: true}})
	usage := func() sandbox.Usage {
		t.Helper()
		u, err := s.Usage(t.Context(), e.caller, string(sb.ID))
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	want := func(what string, cpu time.Duration, sent, received int64) {
		t.Helper()
		u := usage()
		if u.CPU != cpu || u.SentBytes != sent || u.ReceivedBytes != received || u.Running <= 0 || u.At.IsZero() {
			t.Errorf("%s: %+v, want %v of CPU, %d and %d bytes", what, u, cpu, sent, received)
		}
	}
	e.host.SetUsage(sb.ID, driver.Usage{CPU: 10 * time.Second, MemoryBytes: 1 << 30})
	n.carry(sb.ID, 100, 1000)
	want("running", 10*time.Second, 100, 1000)
	first := usage()
	if per := float64(first.MemoryByteSeconds) / first.Running.Seconds(); per < 0.99*(1<<30) || per > 1.01*(1<<30) {
		t.Errorf("%d byte-seconds of memory in %v, want 1 GiB all the time", first.MemoryByteSeconds, first.Running)
	}

	s.pause("s")
	want("paused", 10*time.Second, 100, 1000)
	if paused := usage(); paused.Running != usage().Running {
		t.Error("a paused sandbox goes on using")
	}
	s.resume("s")
	e.host.SetUsage(sb.ID, driver.Usage{CPU: 3 * time.Second, MemoryBytes: 1 << 20})
	n.carry(sb.ID, 1, 2)
	want("resumed", 13*time.Second, 101, 1002)

	s.stop()
	s = e.start()
	e.host.SetUsage(sb.ID, driver.Usage{CPU: 4 * time.Second, MemoryBytes: 1 << 20})
	n.carry(sb.ID, 10, 20)
	want("after an orderly restart", 14*time.Second, 111, 1022)

	before := usage()
	s.kill()
	s = e.start()
	e.host.SetUsage(sb.ID, driver.Usage{CPU: 5 * time.Second, MemoryBytes: 1 << 20})
	want("after a kill, which forgets the network's last bytes", 15*time.Second, 101, 1002)
	if u := usage(); u.Running <= before.Running {
		t.Errorf("it had run for %v before the kill, and for %v after it", before.Running, u.Running)
	}

	s.destroy("s")
	want("ended", 15*time.Second, 101, 1002)
	s.stop()
	s = e.start()
	want("ended, after a restart", 15*time.Second, 101, 1002)
	if _, err := s.Usage(t.Context(), e.caller, "none"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Usage() of none: %v", err)
	}
}

// The next server estimates the usage that a killed server has not recorded.
func TestUsageOfAYoungSandboxSurvivesAKill(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "s"})
	s.kill()
	s = e.start()
	e.host.SetUsage(sb.ID, driver.Usage{CPU: time.Second, MemoryBytes: 1})
	u, err := s.Usage(t.Context(), e.caller, "s")
	if err != nil || u.CPU != time.Second || u.Running <= 0 {
		t.Errorf("Usage() = %+v, %v", u, err)
	}
}

func (d *faultyDriver) Plug(ctx context.Context, id sandbox.ID, nic driver.NIC) error {
	return d.Driver.(driver.Networker).Plug(ctx, id, nic)
}

func (d *faultyDriver) Unplug(ctx context.Context, id sandbox.ID) error {
	return d.Driver.(driver.Networker).Unplug(ctx, id)
}

func (d *faultyDriver) Usage(ctx context.Context, id sandbox.ID) (driver.Usage, error) {
	return d.Driver.(driver.Meter).Usage(ctx, id)
}

// NoteUsage is no step of its own, but a dead server makes none.
func (s *faultyStore) NoteUsage(ctx context.Context, usage map[sandbox.ID]sandbox.Usage) error {
	if s.faults.isDead() {
		return errDead
	}
	return s.storeRows.NoteUsage(ctx, usage)
}
