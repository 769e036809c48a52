package egress_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/modbox/modbox/internal/egress"
)

// inNamespace runs the calling test again, in a process with an empty network of its own, and
// reports whether this is that process. It needs no root, but user namespaces.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const env = "MODBOX_TEST_NAMESPACE"
	if os.Getenv(env) == t.Name() {
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skipf("this host grants no user namespaces: %v", err)
	}
	if err != nil {
		t.Fatalf("in a network of its own: %v\n%s", err, out)
	}
	return false
}

// A public address of the host is closed to its sandboxes like all of its addresses; when an
// operator opens it, the host answers echo requests to it.
func TestPublicHost(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	public := netip.MustParsePrefix("8.8.8.8/32")
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(public.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		netlink.LinkSetUp(lo),
		netlink.AddrAdd(lo, addr),
		os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0),
	); err != nil {
		t.Fatal(err)
	}
	if err := testNetwork(t, egress.Config{}).CheckClosed(public.Addr()); !errors.Is(err, egress.ErrClosed) {
		t.Errorf("the host's address: %v, want closed", err)
	}

	_, r := attachRaw(t, egress.Config{AllowCIDRs: []netip.Prefix{public}})
	r.send(r.frame(header.ICMPv4ProtocolNumber, public.Addr(), echoRequest(9, []byte("are you there?"))))
	r.awaitICMP("echo of the host", func(from tcpip.Address, h header.ICMPv4) bool {
		return h.Type() == header.ICMPv4EchoReply && from == tcpip.AddrFrom4(public.Addr().As4()) &&
			h.Ident() == 7 && h.Sequence() == 9 && string(h.Payload()) == "are you there?"
	})
}
