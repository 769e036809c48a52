package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// fromPool creates sandboxes until one was given a box of the pool, and returns it.
func fromPool(t *testing.T, s *testserver.Server, o client.CreateOptions) *client.Sandbox {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for time.Now().Before(deadline) {
		sb := s.MustCreate(o)
		if s.FromPool(sb.ID) {
			return sb
		}
		if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("no sandbox was given a box of the pool in five minutes")
	return nil
}

func TestSandboxFromThePool(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "1")
	o := client.CreateOptions{
		Name: "warm", Image: "modbox/base", Resources: client.Resources{Memory: "256Mi", CPU: "500m", Disk: "64Mi"},
		Env: map[string]string{"WHO": "me"}, TTL: 10 * time.Minute,
	}
	sb := fromPool(t, s, o)
	if sb.Resources.Memory != "256Mi" {
		t.Errorf("resources %+v, want those that were asked for", sb.Resources)
	}
	res := s.Bash(sb.ID, `echo "$WHO $(hostname) $MODBOX_SANDBOX_NAME"; awk '/MemTotal/ { print $2 <= 262144 }' /proc/meminfo
		dd if=/dev/zero of=/big bs=1M count=80 2>/dev/null || echo full; grep -h CapEff /proc/1/status /proc/self/status | sort -u | wc -l`, time.Minute)
	lines := strings.Split(strings.TrimSpace(string(res.Stdout)), "\n")
	if len(lines) != 4 || lines[0] != "me warm warm" || lines[1] != "1" || lines[2] != "full" || lines[3] != "1" {
		t.Errorf("in the sandbox: %q, want its environment, host name and limits, and an agent with the capabilities of all", res.Stdout)
	}

	// Killed with a box in the pool; the next server has none and must not leave it.
	fromPool(t, s, client.CreateOptions{Image: o.Image, Resources: o.Resources, TTL: o.TTL})
	s.Kill()
	s.SetArgs("--pool-size", "0")
	s.Launch()
	res = s.Bash(sb.ID, "echo $WHO", time.Minute)
	if string(res.Stdout) != "me\n" {
		t.Errorf("after a restart: %+v", res)
	}
	for other, err := range s.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sandboxes.Delete(t.Context(), other.ID); err != nil {
			t.Fatal(err)
		}
	}
	if left := s.Left(""); len(left) > 0 {
		t.Errorf("left of the pool:\n%s", strings.Join(left, "\n"))
	}
}

// fromBlank creates a sandbox of an image that nobody has asked for before, so that it can have no box of
// the pool but a blank one.
func fromBlank(t *testing.T, s *testserver.Server, o client.CreateOptions) *client.Sandbox {
	t.Helper()
	s.AwaitBlankBox()
	sb := s.MustCreate(o)
	if !s.FromPool(sb.ID) {
		t.Fatalf("sandbox %s was given no box of the pool", sb.ID)
	}
	return sb
}

// TestSandboxFromABlankBox: a sandbox whose box was started before its image was known is like any other.
func TestSandboxFromABlankBox(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "3")
	sb := fromBlank(t, s, client.CreateOptions{
		Name: "any", Image: "modbox/base", Env: map[string]string{"WHO": "me"}, TTL: 20 * time.Minute, Network: client.Network{Enabled: true},
	})
	must := func(ref, line, want string) {
		t.Helper()
		if res := s.Bash(ref, line, 5*time.Minute); res.ExitCode != 0 || strings.TrimSpace(string(res.Stdout)) != want {
			t.Errorf("%s\nended with %d and printed %q, want %q\n%s", line, res.ExitCode, res.Stdout, want, lastOf(res.Stderr))
		}
	}
	must(sb.ID, `echo "$WHO $(hostname) $MODBOX_SANDBOX_NAME"; cat /etc/resolv.conf`, "me any any\nnameserver 10.0.0.1")
	// Files, mounts and limits are as in another sandbox, which has no box of the pool.
	other := s.MustCreate(client.CreateOptions{
		Name: "other", Image: "modbox/base", Resources: client.Resources{Memory: "777Mi"}, TTL: 20 * time.Minute, Network: client.Network{Enabled: true},
	})
	// /dev/shm has a part of the memory, which differs.
	const look = `ls -A /; awk '{ print $2, $3, $4 }' /proc/mounts | sed 's/ifd=[0-9]*/ifd=N/; /^.dev.shm /s/size=[0-9]*k/size=N/' | sort; stat -c '%n %a %U %G' / /tmp /dev/shm /etc /root; ls /.modbox
		grep -h Cap /proc/1/status /proc/self/status; ulimit -a; find /usr /etc -xdev -type f ! -path /etc/hosts ! -path /etc/hostname -newermt 2000-01-01 | sort | xargs -d '\n' md5sum | md5sum`
	want := s.Bash(other.ID, look, 5*time.Minute)
	must(sb.ID, look, strings.TrimSpace(string(want.Stdout)))
	// The system call for layers, which the agent used, is not for others.
	must(sb.ID, `command -v mount unshare >/dev/null || exit 9; mount -t modbox-image none /.modbox && echo mounted
		unshare -rm mount -t modbox-image none /.modbox && echo mounted; unshare -rm true && echo unshared; /.modbox/agent -h 2>&1 | grep -q layers && echo there`, "unshared\nthere")
	// The disk limit holds.
	must(sb.ID, `df --output=size / | tail -1`, strings.TrimSpace(string(s.Bash(other.ID, `df --output=size / | tail -1`, time.Minute).Stdout)))
	must(sb.ID, `set -e; echo kept > /root/kept; rm /etc/issue; mv /etc/profile /etc/moved; echo x >> /etc/bash.bashrc
		(setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i > /root/count.new; mv /root/count.new /root/count; sleep 0.05; done' >/dev/null 2>&1 </dev/null &)
		until test -e /root/count; do sleep 0.05; done`, "")
	const state = `cat /root/kept; test ! -e /etc/issue && test -e /etc/moved && test ! -e /etc/profile && tail -1 /etc/bash.bashrc
		a=$(cat /root/count); until test "$(cat /root/count)" -gt "$a"; do sleep 0.05; done; if pgrep -f 'count[.]new' >/dev/null; then echo runs; else echo ended; fi`
	must(sb.ID, state, "kept\nx\nruns")

	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Launch()
	must(sb.ID, state, "kept\nx\nruns") // resumes it
	must(sb.ID, `cat /etc/resolv.conf`, "nameserver 10.0.0.1")
	s.Kill() // while it runs
	s.Launch()
	must(sb.ID, state, "kept\nx\nruns")
	forks, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	must(forks[0].Sandbox.ID, state, "kept\nx\nruns")
	sn, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "saved"})
	if err != nil {
		t.Fatal(err)
	}
	// The snapshot is a layer over the image: a blank box gets both.
	copied := fromBlank(t, s, client.CreateOptions{Snapshot: sn.ID, TTL: 20 * time.Minute})
	const files = `cat /root/kept; test ! -e /etc/issue && test -e /etc/moved && test ! -e /etc/profile && tail -1 /etc/bash.bashrc; if pgrep -f 'count[.]new' >/dev/null; then echo runs; else echo ended; fi`
	must(copied.ID, files+`; echo more > /root/more`, "kept\nx\nended")
	if _, err := s.Sandboxes.Pause(t.Context(), copied.ID); err != nil {
		t.Fatal(err)
	}
	must(copied.ID, files+`; cat /root/more`, "kept\nx\nended\nmore")
	// Nothing of one is in another.
	must(other.ID, `test ! -e /root/kept && test -e /etc/issue && echo clean`, "clean")
}
