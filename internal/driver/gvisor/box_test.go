package gvisor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

func newSpec(res sandbox.Resources) driver.Spec {
	return driver.Spec{ID: sandbox.NewID(), Hostname: "box", RootFS: built.rootfs, Resources: res}
}

func TestInsideOfABox(t *testing.T) {
	g := newRig(t).start(t, newSpec(inMemory))
	if err := g.agent.Configure(t.Context(), agentapi.Config{}); err != nil { // before that, root cannot reach the agent
		t.Fatal(err)
	}
	for _, c := range []struct{ name, command, want string }{
		{"root", "id -u", "0"},
		{"hostname", "hostname", "box"},
		{"agentIsInit", "readlink /proc/1/exe", "/.modbox/agent"},
		{"noEnvironmentFromOutside", "tr '\\0' '\\n' < /proc/1/environ", "HOME=/root"},
		{"onlyLoopback", "awk -F: 'NR > 2 { print $1 }' /proc/net/dev | tr -d ' '", "lo"},
		{"rootWritable", "echo x > /file && cat /file", "x"},
		{"memoryIsTheLimit", "awk '/MemTotal/ {print $2}' /proc/meminfo", fmt.Sprint(inMemory.MemoryBytes >> 10)},
		{"noRawSockets", "grep CapBnd /proc/self/status | grep -c 00000000a00405fb", "0"},
		{"noHostName", "cat /sys/devices/virtual/dmi/id/product_name", "Modbox"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, _ := g.sh(c.command)
			if out != c.want {
				t.Errorf("%s: %q, want %q", c.command, out, c.want)
			}
		})
	}
}

func TestAgentCannotBeChangedFromInside(t *testing.T) {
	g := newRig(t).start(t, newSpec(inMemory))
	for _, command := range []string{
		"rm -f /.modbox/agent", "echo x > /.modbox/agent", "mv /.modbox /elsewhere", "rm -rf /.modbox",
		"umount /.modbox", "mount -t tmpfs none /.modbox", "chmod 0 /.modbox/agent", "ln -sf /bin/sh /.modbox/agent",
	} {
		g.sh(command + " 2>&1; true")
		if out, code := g.sh("test -x /.modbox/agent && wc -c < /.modbox/agent"); code != 0 || strings.TrimSpace(out) == "0" {
			t.Errorf("after %q: exit code %d, output %q", command, code, out)
		}
	}
	if _, code := g.sh("rm /.modbox/agent"); code == 0 {
		t.Error("the agent could be removed")
	}
}

func TestSetUserID(t *testing.T) {
	g := newRig(t).start(t, newSpec(inMemory))
	if out, code, err := g.try("id -u; euid", "1000:1000"); err != nil || code != 0 || out != "1000\n0" {
		t.Errorf("user 1000 runs a program of root's with set-user-id: exit code %d, error %v, output %q, want 1000 and 0", code, err, out)
	}
}

func TestLoopbackAndTunnel(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(inMemory))
	_, err := r.Dial(t.Context(), g.id, 8080)
	wantCode(t, "Dial to a closed port", err, sandbox.PortClosed)

	g.must("mkdir -p /www && dd if=/dev/urandom of=/www/data bs=64k count=80 2>/dev/null && httpd -p 127.0.0.1:8080 -h /www")
	if out := g.must("wget -q -O - http://127.0.0.1:8080/data | sha256sum; sha256sum < /www/data"); out == "" || strings.Split(out, "\n")[0] != strings.Split(out, "\n")[1] {
		t.Errorf("over the loopback: %q", out)
	}
	conn, err := r.Dial(t.Context(), g.id, 8080)
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /data HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatalf("write: %v", err)
	}
	data, err := io.ReadAll(conn)
	if err != nil || len(data) < 80*64<<10 {
		t.Errorf("read %d bytes, error %v", len(data), err)
	}
}

func TestNothingIsLeft(t *testing.T) {
	for name, res := range classes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.start(t, newSpec(res))
			conn, err := r.Dial(t.Context(), g.id, driver.AgentPort)
			if err != nil {
				t.Fatalf("Dial: %v", err)
			}
			g.must("trap '' TERM; for i in 1 2 3; do setsid sleep 600 >/dev/null 2>&1 & done")
			if err := r.Destroy(t.Context(), g.id); err != nil {
				t.Fatalf("Destroy: %v", err)
			}
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("a connection into the box still works")
			}
			for _, left := range leftovers(t, r.cfg) {
				t.Errorf("left on the host: %s", left)
			}
			if err := r.Destroy(t.Context(), g.id); err != nil {
				t.Errorf("Destroy again: %v", err)
			}
		})
	}
}

func TestRecover(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(onDisk))
	g.must("echo kept > /kept; setsid sleep 600 >/dev/null 2>&1 &")
	unused := newSpec(inMemory)
	unusedHandle, err := r.Create(t.Context(), unused)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}

	r.reopen(t)
	_, err = r.Stats(t.Context(), g.id)
	wantCode(t, "Stats before Recover", err, sandbox.NotFound)
	if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
		t.Fatalf("Recover: %v", err)
	}
	if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
		t.Errorf("Recover again: %v", err)
	}
	wantCode(t, "Recover of a box that was never started", r.Recover(t.Context(), unused.ID, unusedHandle), sandbox.NotFound)
	wantCode(t, "Recover of nonsense", r.Recover(t.Context(), sandbox.NewID(), driver.Handle("{}")), sandbox.Invalid)
	wantCode(t, "Recover of another's handle", r.Recover(t.Context(), sandbox.NewID(), g.handle), sandbox.NotFound)

	again := r.connect(t, g.id, g.handle)
	if out := again.must("cat /kept"); out != "kept" {
		t.Errorf("cat /kept = %q", out)
	}
	wantCode(t, "Start of a recovered box", r.Start(t.Context(), g.id), sandbox.Conflict)
	ids, err := r.List(t.Context())
	if err != nil || len(ids) != 2 {
		t.Errorf("List = %v, %v; want both boxes", ids, err)
	}
	for _, id := range []sandbox.ID{g.id, unused.ID} {
		if err := r.Destroy(t.Context(), id); err != nil {
			t.Errorf("Destroy(%s): %v", id, err)
		}
	}
}

func TestEndOfTheProcessIsSeen(t *testing.T) {
	for _, recovered := range []bool{false, true} {
		t.Run(fmt.Sprintf("recovered=%t", recovered), func(t *testing.T) {
			r := newRig(t)
			g := r.start(t, newSpec(inMemory))
			if recovered {
				r.reopen(t)
				if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
					t.Fatalf("Recover: %v", err)
				}
			}
			pids := processesOf(r.cfg)
			if len(pids) == 0 {
				t.Fatal("the box has no process")
			}
			for _, pid := range pids {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			exit, err := r.Wait(ctx, g.id)
			if err != nil || exit.Cause != sandbox.CauseExited || exit.Detail == "" {
				t.Errorf("Wait = %+v, %v; want %s", exit, err, sandbox.CauseExited)
			}
			_, err = r.Dial(t.Context(), g.id, driver.AgentPort)
			wantCode(t, "Dial", err, sandbox.Unavailable)
			_, err = r.Stats(t.Context(), g.id)
			wantCode(t, "Stats", err, sandbox.Unavailable)
		})
	}
}

// killAgent is a shell command that ends PID 1 by a signal to one of its other threads: gVisor
// refuses signals that name PID 1 itself (package initguard).
const killAgent = `kill -9 $(ls /proc/1/task | grep -vx 1 | head -n 1); sleep 600`

// Unlike Linux, gVisor lets root in the box kill PID 1 by a signal to a thread of it.
func TestEndOfTheAgentEndsTheBox(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(inMemory))
	if out, code, err := g.try("kill -9 1", "1000:1000"); err != nil || code == 0 {
		t.Errorf("user 1000 kills the agent: exit code %d, error %v, output %q", code, err, out)
	}
	if out, code, err := g.try("kill -9 1", ""); err != nil || code == 0 {
		t.Errorf("root kills the agent by its process id: exit code %d, error %v, output %q", code, err, out)
	}
	if out, code, err := g.try(killAgent, ""); err == nil {
		t.Errorf("the agent lives on: exit code %d, output %q", code, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	exit, err := r.Wait(ctx, g.id)
	if err != nil || exit.Cause != sandbox.CauseExited {
		t.Errorf("Wait = %+v, %v; want %s", exit, err, sandbox.CauseExited)
	}
}

// TestFailureIsLogged ends the first process of a box by its own fault. gVisor has written something then, as it does when it
// fails itself.
func TestFailureIsLogged(t *testing.T) {
	r := newRig(t)
	if err := r.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	var log bytes.Buffer
	r.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	r.open(t)
	g := r.start(t, newSpec(inMemory))
	if err := os.WriteFile(filepath.Join(r.cfg.RunDir, "boxes", string(g.id), "boot.log"), []byte("panic: no reason\n"), 0); err != nil {
		t.Fatal(err)
	}
	for _, pid := range processesOf(r.cfg) { // gVisor forwards signals to the first process
		if err := syscall.Kill(pid, syscall.SIGABRT); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if exit, err := r.Wait(ctx, g.id); err != nil || !exit.Fault {
		t.Errorf("Wait = %+v, %v; want a fault", exit, err)
	}
	for _, want := range []string{string(g.id), "status 2", "panic: no reason", "SIGABRT: abort"} {
		if said := log.String(); !strings.Contains(said, want) {
			t.Errorf("the log is %q, want %q in it", said, want)
		}
	}
}

func TestCreatesAtOnce(t *testing.T) {
	r := newRig(t)
	const boxes = 20
	var all sync.WaitGroup
	for range boxes {
		all.Go(func() {
			spec := newSpec(inMemory)
			spec.Resources.MemoryBytes = 128 * mib
			if _, err := r.Create(t.Context(), spec); err != nil {
				t.Errorf("Create: %v", err)
				return
			}
			if err := r.Start(t.Context(), spec.ID); err != nil {
				t.Errorf("Start: %v", err)
			}
		})
	}
	all.Wait()
	ids, err := r.List(t.Context())
	if err != nil || len(ids) != boxes {
		t.Errorf("List: %d boxes, error %v; want %d", len(ids), err, boxes)
	}
	// Descriptors that are open for a moment while a box is made must not be inherited by another.
	// A box closes the connection of its last control call shortly after it has answered.
	eventually(t, "all processes hold the same number of sockets", func() error {
		held := map[int]int{}
		for _, pid := range processesOf(r.cfg) {
			held[sockets(t, pid)]++
		}
		if len(held) != 1 {
			return fmt.Errorf("processes by number of sockets they hold: %v", held)
		}
		return nil
	})
	for _, id := range ids {
		r.connect(t, id, nil)
	}
}

// sockets counts the sockets a process holds.
func sockets(t *testing.T, pid int) int {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

func TestCreateIsUndone(t *testing.T) {
	t.Run("cancelled", func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Create(ctx, newSpec(onDisk)); !errors.Is(err, context.Canceled) {
			t.Errorf("Create: %v, want context.Canceled", err)
		}
		if ids, err := r.List(t.Context()); err != nil || len(ids) != 0 {
			t.Errorf("List = %v, %v", ids, err)
		}
	})
	t.Run("cancelledMeanwhile", func(t *testing.T) {
		r := newRig(t)
		for i := range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*5*time.Millisecond)
			spec := newSpec(onDisk)
			if _, err := r.Create(ctx, spec); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Create: %v", err)
			} else if err == nil {
				err = r.Destroy(t.Context(), spec.ID)
				if err != nil {
					t.Errorf("Destroy: %v", err)
				}
			}
			cancel()
		}
		if ids, err := r.List(t.Context()); err != nil || len(ids) != 0 {
			t.Errorf("List = %v, %v", ids, err)
		}
	})
	t.Run("notASandboxProgram", func(t *testing.T) {
		r := newRig(t)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		good := r.cfg.SandboxBinary
		r.cfg.SandboxBinary = "/bin/false"
		r.open(t)
		if _, err := r.Create(t.Context(), newSpec(onDisk)); err == nil {
			t.Error("Create succeeded with /bin/false")
		}
		if ids, err := r.List(t.Context()); err != nil || len(ids) != 0 {
			t.Errorf("List = %v, %v", ids, err)
		}
		r.cfg.SandboxBinary = good
	})
	t.Run("notAnImage", func(t *testing.T) {
		r := newRig(t)
		spec := newSpec(onDisk)
		spec.RootFS = filepath.Join(t.TempDir(), "garbage")
		if err := os.WriteFile(spec.RootFS, make([]byte, 1<<20), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Create(t.Context(), spec); err != nil {
			t.Fatalf("Create: %v", err)
		}
		wantCode(t, "Start", r.Start(t.Context(), spec.ID), sandbox.Unavailable)
	})
}

func TestStats(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(inMemory))
	g.must("dd if=/dev/zero of=/eight bs=1M count=8; sleep 600 >/dev/null 2>&1 &")
	s, err := r.Stats(t.Context(), g.id)
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	if s.MemoryLimit != inMemory.MemoryBytes || s.DiskLimit != inMemory.DiskBytes || s.CPULimitMilli != inMemory.CPUMilli {
		t.Errorf("limits: %+v", s)
	}
	if s.MemoryBytes < 8*mib || s.CPUNanos == 0 || s.DiskBytes < 8*mib || s.Processes < 2 || s.HostPSSBytes < mib {
		t.Errorf("Stats = %+v, want something everywhere", s)
	}
}

// capabilities prints the different sets of capabilities that the threads of PID 1 and a command have.
const capabilities = "cat /proc/1/task/*/status /proc/self/status | grep -E 'Cap(Inh|Prm|Eff)' | sort -u"

// TestAgentSetsTheHostName tells an agent its host name after the start, as for pooled boxes, which
// are made before their sandbox. Only the agent can set the name, and has no capability for it.
// TestFullStderr fills the agent's stderr, which the host keeps in memory.
func TestFullStderr(t *testing.T) {
	g := newRig(t).start(t, newSpec(inMemory))
	if out, code := g.sh("head -c 1000000 /dev/zero > /proc/1/fd/2"); code == 0 {
		t.Errorf("the stderr of the agent takes a megabyte: %q", out)
	}
	if got := g.must("stat -L -c %s /proc/1/fd/2"); got != "4096" {
		t.Errorf("the stderr of the agent has %s bytes, want 4096", got)
	}
}

func TestAgentSetsTheHostName(t *testing.T) {
	g := newRig(t).start(t, newSpec(inMemory))
	const want = "CapEff:\t00000000a80405fb\nCapInh:\t0000000000000000\nCapPrm:\t00000000a80405fb"
	if got, _ := g.sh(capabilities); got != want {
		t.Errorf("capabilities before the agent was configured:\n%s\nwant:\n%s", got, want)
	}
	if err := g.agent.Configure(t.Context(), agentapi.Config{Hostname: "other"}); err != nil {
		t.Fatal(err)
	}
	if out, _ := g.sh("hostname"); out != "other" {
		t.Errorf("hostname: %q, want other", out)
	}
	if out, code := g.sh("hostname mine"); code == 0 {
		t.Errorf("a command has set the host name: %s", out)
	}
	if out, _ := g.sh("hostname"); out != "other" {
		t.Errorf("hostname: %q, want other", out)
	}
}
