package e2e_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// nameserver answers every question about a name in .test with an address, and returns its own address.
func nameserver(t *testing.T, address string) string {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := dns.NewServeMux()
	mux.HandleFunc("test.", func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			a.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(address)}}
		}
		_ = w.WriteMsg(a)
	})
	server := &dns.Server{PacketConn: conn, Handler: mux}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ActivateAndServe() // ends with the connection
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return conn.LocalAddr().String()
}

// echoing starts a server that returns what it gets, on every address of the host, and returns its port.
func echoing(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// longConnection reports the end of a connection that waits for data.
const longConnection = `
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b"hello")
assert s.recv(5) == b"hello"
open("/tmp/connected", "w").close()
try:
    s.settimeout(120)
    word = "alive" if s.recv(1) else "closed"
except TimeoutError: word = "silent"
except OSError: word = "cut"
open("/tmp/end.new", "w").write(word)
import os
os.rename("/tmp/end.new", "/tmp/end")
`

func TestNetworkRules(t *testing.T) {
	host, port, raw := outward(t), listen(t), echoing(t)
	s := testserver.Start(t, "--network-allow-cidrs", host, "--network-resolvers", nameserver(t, host))
	get := func(ref, address string) (string, int) {
		t.Helper()
		res := s.Bash(ref, fmt.Sprintf("curl -sS -m 120 http://%s:%d/", address, port), 3*time.Minute)
		return string(res.Stdout), res.ExitCode
	}
	reaches := func(when, ref, address string) {
		t.Helper()
		if out, code := get(ref, address); out != "the host" {
			t.Errorf("%s: %s: code %d, %q, want an answer", when, address, code, out)
		}
	}
	fails := func(when, ref, address string, want ...int) {
		t.Helper()
		out, code := get(ref, address)
		if !slices.Contains(want, code) {
			t.Errorf("%s: %s: code %d, %q, want one of %d", when, address, code, out, want)
		}
	}
	const unresolved, refused, empty, reset = 6, 7, 52, 56 // curl's codes
	rules := client.Network{Enabled: true, AllowOut: []string{"allowed.test", "*.beneath.test"}}
	sb := s.MustCreate(client.CreateOptions{Image: codeExec, Network: rules})
	if got := sb.Network; strings.Join(got.AllowOut, " ") != "allowed.test *.beneath.test" || strings.Join(got.DenyOut, " ") != "0.0.0.0/0" {
		t.Errorf("network of the new sandbox: %+v", got)
	}
	allRules := func(when, ref string) {
		t.Helper()
		reaches(when, ref, "allowed.test")
		reaches(when, ref, "a.b.beneath.test")
		fails(when, ref, "denied.test", unresolved)
		fails(when, ref, "beneath.test", unresolved)
		fails(when, ref, host, empty, reset) // its address, which an allowed name led to, by another name
	}
	fails("before a name was resolved", sb.ID, host, refused)
	allRules("new", sb.ID)

	// The other sandbox has the address from the first and not from its own resolver.
	other := s.MustCreate(client.CreateOptions{Image: codeExec, Network: rules})
	line := fmt.Sprintf("curl -sS -m 120 --resolve allowed.test:%d:%s http://allowed.test:%d/", port, host, port)
	if res := s.Bash(other.ID, line, 3*time.Minute); res.ExitCode != refused {
		t.Errorf("an address that another sandbox resolved: code %d, %q %q, want a refusal", res.ExitCode, res.Stdout, res.Stderr)
	}
	reaches("after its own question", other.ID, "allowed.test")

	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	allRules("after a pause", sb.ID)
	if _, err := s.Sandboxes.PauseWithoutMemory(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	allRules("after a pause without memory", sb.ID)
	children, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil || children[0].Err != nil {
		t.Fatal(err, children)
	}
	allRules("fork", children[0].Sandbox.ID)
	s.Kill()
	s.Launch()
	allRules("after a crash of the server", sb.ID)

	if _, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, "/tmp/long.py", strings.NewReader(longConnection), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	line = fmt.Sprintf("setsid nohup python3 /tmp/long.py allowed.test %d >/tmp/long.out 2>&1 & for i in $(seq 2400); do test -e /tmp/connected && exit; sleep 0.05; done; cat /tmp/long.out; exit 1", raw)
	if res := s.Bash(sb.ID, line, 3*time.Minute); res.ExitCode != 0 {
		t.Fatalf("long connection: %s", res.Stdout)
	}
	if out, errOut, code := run(t, s, "", "network", "rules", sb.ID, "--allow-out", "denied.test"); code != 0 {
		t.Fatalf("modbox network rules = %d %q %q", code, out, errOut)
	}
	if res := s.Bash(sb.ID, "until test -e /tmp/end; do sleep 0.05; done; cat /tmp/end", 3*time.Minute); string(res.Stdout) != "cut" {
		t.Errorf("the connection to a name that is not allowed any more is %q, want cut", res.Stdout)
	}
	reaches("after the change", sb.ID, "denied.test")
	fails("after the change", sb.ID, "allowed.test", unresolved)
	if out, errOut, code := run(t, s, "", "network", "rules", sb.ID, "--deny-out", host); code != 0 {
		t.Fatalf("modbox network rules = %d %q %q", code, out, errOut)
	}
	fails("with its address denied", sb.ID, host, refused)
	if _, errOut, code := run(t, s, "", "network", "rules", sb.ID, "--deny-out", "evil.test"); code == 0 || !strings.Contains(errOut, "deny_out[0]") {
		t.Errorf("a denied name: code %d, %q, want an error that names deny_out[0]", code, errOut)
	}
	if out, errOut, code := run(t, s, "", "network", "rules", sb.ID, "--all"); code != 0 {
		t.Fatalf("modbox network rules = %d %q %q", code, out, errOut)
	}
	reaches("without rules", sb.ID, host)
}
