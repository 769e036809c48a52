package config

import (
	"net"
	"os"
	"testing"
)

// TestReplicaAddress checks the address at which other servers reach a server.
func TestReplicaAddress(t *testing.T) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	all, own := &net.TCPAddr{IP: net.IPv6unspecified, Port: 7071}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7071}
	for _, test := range []struct {
		setting string
		at      net.Addr
		want    string
	}{
		{"", own, "10.0.0.1:7071"},
		{"", all, name + ":7071"},
		{"server-1", all, "server-1:7071"},
		{"server-1:17071", all, "server-1:17071"},
		{"fd00::7", all, "[fd00::7]:7071"},
		{"[fd00::7]:17071", own, "[fd00::7]:17071"},
		{"10.0.0.2", own, "10.0.0.2:7071"},
	} {
		r := Replica{Active: 1, Address: test.setting}
		if got := r.At(test.at); got != test.want {
			t.Errorf("%q at %s is %s, want %s", test.setting, test.at, got, test.want)
		}
		r.validate(func(name, format string, args ...any) { t.Errorf("%s: "+format, append([]any{name}, args...)...) })
	}
	for _, wrong := range []string{"http://server-1", "a b", "a:b:c", "[fd00::7]"} {
		refused := false
		Replica{Active: 1, Address: wrong}.validate(func(string, string, ...any) { refused = true })
		if !refused {
			t.Errorf("the address %q was accepted", wrong)
		}
	}
}

func TestReplicaActive(t *testing.T) {
	for active, want := range map[int]bool{-1: false, 0: false, 1: true, 2: true, 3: false, 4: true, 8: true, 16: true, 32: false} {
		ok := true
		Replica{Active: active}.validate(func(string, string, ...any) { ok = false })
		if ok != want {
			t.Errorf("%d active servers are accepted: %t, want %t", active, ok, want)
		}
	}
}
