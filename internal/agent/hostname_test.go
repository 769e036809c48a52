package agent_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agentapi"
)

func TestHostname(t *testing.T) {
	const localhost = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	e := start(t)
	configure := func(name string) {
		t.Helper()
		if err := e.Configure(t.Context(), agentapi.Config{Hostname: name}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(hostname, hosts string) {
		t.Helper()
		if got := e.get(t, "etc/hostname"); got != hostname+"\n" {
			t.Errorf("hostname is %q, want %q", got, hostname)
		}
		if got := e.get(t, "etc/hosts"); got != hosts {
			t.Errorf("hosts is %q, want %q", got, hosts)
		}
	}
	configure("local") // a prefix of localhost
	want("local", localhost+"127.0.1.1\tlocal\n")
	configure("child")
	want("child", localhost+"127.0.1.1\tchild\n")
	mine := "192.0.2.1 db # no child\n127.0.1.1 child alias\n127.0.0.1 localhost"
	e.put(t, "etc/hosts", mine)
	configure("child")
	want("child", mine+"\n")
	configure("other")
	want("other", mine+"\n127.0.1.1\tother\n")
	configure("db")
	want("db", mine+"\n")

	if err := unix.Unlink(filepath.Join(e.root, "etc/hostname")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(e.root, "etc/hostname"), 0o644); err != nil {
		t.Fatal(err)
	}
	configure("db") // does not block on the guest's pipe
	want("db", mine+"\n")
}
