package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/modbox/modbox/internal/driver"
)

const (
	boxAddress  = "10.9.0.2"
	peerAddress = "10.9.0.1"
	farAddress  = "203.0.113.9" // by the default route
)

// peer is the other end of an interface: a machine with a web server on every address, which
// returns its name.
type peer struct {
	stack *stack.Stack
	fd    int
}

// plug gives a box an interface to a new peer.
func (r *rig) plug(t *testing.T, g *guest, name string) *peer {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	nic := driver.NIC{
		File: os.NewFile(uintptr(fds[1]), "nic"), MTU: 32000,
		MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, GatewayMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		Address: netip.MustParsePrefix(boxAddress + "/24"), Gateway: netip.MustParseAddr(peerAddress),
	}
	p := newPeer(t, fds[0], nic, name)
	if err := r.Plug(t.Context(), g.id, nic); err != nil {
		t.Fatalf("Plug: %v", err)
	}
	if _, err := nic.File.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Plug leaves the file open: %v", err)
	}
	return p
}

func newPeer(t *testing.T, fd int, nic driver.NIC, name string) *peer {
	t.Helper()
	p := &peer{fd: fd, stack: stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})}
	ep, err := fdbased.New(&fdbased.Options{
		FDs: []int{fd}, MTU: uint32(nic.MTU), EthernetHeader: true, Address: tcpip.LinkAddress(nic.GatewayMAC),
		TXChecksumOffload: true, RXChecksumOffload: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.stack.CreateNIC(1, ep); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{peerAddress, farAddress} {
		if err := p.stack.AddProtocolAddress(1, tcpip.ProtocolAddress{
			Protocol:          ipv4.ProtocolNumber,
			AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(netip.MustParseAddr(address).As4()), PrefixLen: 24},
		}, stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
	}
	p.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	l, lerr := gonet.ListenTCP(p.stack, tcpip.FullAddress{Port: 80}, ipv4.ProtocolNumber)
	if lerr != nil {
		t.Fatal(lerr)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			io.CopyN(w, zeros{}, 20*mib)
			return
		}
		io.WriteString(w, name)
	})}
	go server.Serve(l)
	t.Cleanup(func() {
		server.Close()
		p.hangUp()
	})
	return p
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// hangUp closes the peer's side as the end of a server does.
func (p *peer) hangUp() {
	if p.fd >= 0 {
		unix.Shutdown(p.fd, unix.SHUT_RDWR)
		p.stack.Destroy()
		unix.Close(p.fd)
		p.fd = -1
	}
}

// dial connects to the box's address.
func (p *peer) dial(t *testing.T, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	return gonet.DialContextTCP(ctx, p.stack, tcpip.FullAddress{Addr: tcpip.AddrFrom4(netip.MustParseAddr(boxAddress).As4()), Port: port}, ipv4.ProtocolNumber)
}

// wantNetwork checks that the box reaches the peer of that name, directly and by its default route,
// that the peer reaches the box, and that the loopback works.
func (g *guest) wantNetwork(p *peer, name string) {
	g.t.Helper()
	for _, address := range []string{peerAddress, farAddress} {
		if out, code := g.sh("timeout 120 wget -q -O - http://" + address + "/"); code != 0 || out != name {
			g.t.Errorf("wget from %s: %q, code %d, want %q", address, out, code, name)
		}
	}
	if out := g.must("timeout 120 wget -q -O - http://" + peerAddress + "/large | wc -c"); out != fmt.Sprint(20*mib) {
		g.t.Errorf("the large answer has %s bytes", out)
	}
	g.must("pidof httpd >/dev/null || httpd -p 8080 -h /etc; timeout 120 wget -q -O - http://127.0.0.1:8080/passwd >/dev/null")
	c, err := p.dial(g.t, 8080)
	if err != nil {
		g.t.Errorf("the box is not reached by its address: %v", err)
		return
	}
	c.Close()
}

func (g *guest) wantNoNetwork() {
	g.t.Helper()
	if out, code := g.sh("timeout 5 wget -q -O - http://" + peerAddress + "/"); code == 0 {
		g.t.Errorf("wget without a network: %q", out)
	}
	g.must("pidof httpd >/dev/null || httpd -p 8080 -h /etc; timeout 120 wget -q -O - http://127.0.0.1:8080/passwd >/dev/null")
}

func TestNetwork(t *testing.T) {
	r := newRig(t)
	spec := newSpec(inMemory)
	g := r.start(t, spec)
	g.wantNoNetwork()
	if err := r.Unplug(t.Context(), g.id); err != nil {
		t.Errorf("Unplug without an interface: %v", err)
	}
	p := r.plug(t, g, "one")
	g.wantNetwork(p, "one")
	if out := g.must("cat /proc/net/dev"); !strings.Contains(out, "eth0:") {
		t.Errorf("interfaces: %q", out)
	}
	// Replaced while it is in use, by a server that was restarted.
	g.must("(while test ! -e /stop; do wget -q -O - http://" + peerAddress + "/large; done) >/dev/null 2>&1 &")
	p.hangUp()
	r.reopen(t)
	if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
		t.Fatalf("Recover: %v", err)
	}
	g = r.connect(t, g.id, g.handle)
	g.must("touch /stop; while killall wget 2>/dev/null; do usleep 10000; done")
	p = r.plug(t, g, "two")
	g.wantNetwork(p, "two")
	g.wantIdle(r)
	// Kept by a box that goes on after a checkpoint, and missing in a restored box.
	dir := r.checkpoint(t, g, driver.CheckpointOptions{})
	g.wantNetwork(p, "two")
	fork := r.restore(t, newSpec(inMemory), dir)
	fork.wantNoNetwork()
	forkPeer := r.plug(t, fork, "three")
	fork.wantNetwork(forkPeer, "three")
	g.wantNetwork(p, "two")
	if err := r.Unplug(t.Context(), g.id); err != nil {
		t.Errorf("Unplug: %v", err)
	}
	g.wantNoNetwork()
	p = r.plug(t, g, "four")
	g.wantNetwork(p, "four")
}

// wantIdle checks that an idle box uses no CPU.
func (g *guest) wantIdle(r *rig) {
	g.t.Helper()
	eventually(g.t, "the box is idle", func() error {
		before, err := r.Stats(g.t.Context(), g.id)
		if err != nil {
			return err
		}
		g.must("sleep 1")
		after, err := r.Stats(g.t.Context(), g.id)
		if err != nil {
			return err
		}
		if used := after.CPUNanos - before.CPUNanos; used > int64(500*time.Millisecond) {
			return fmt.Errorf("it took %v of CPU in a second", time.Duration(used))
		}
		return nil
	})
}
