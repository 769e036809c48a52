package gvisor_test

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// classes are both kinds of writable layers.
var classes = map[string]sandbox.Resources{"memory": inMemory, "disk": onDisk}

func TestDiskLimitIsExact(t *testing.T) {
	for name, res := range classes {
		t.Run(name, func(t *testing.T) {
			g := newRig(t).start(t, newSpec(res))
			out, code := g.sh("dd if=/dev/zero of=/fill bs=64k")
			if code == 0 || !strings.Contains(out, "No space left on device") {
				t.Errorf("filling the disk: exit code %d, output %q", code, out)
			}
			if got, want := g.must("stat -c %s /fill"), strconv.FormatInt(res.DiskBytes, 10); got != want {
				t.Errorf("the file has %s bytes, want %s", got, want)
			}
			g.must("rm /fill && echo again > /again && cat /again")
		})
	}
}

// All places that a guest can write to, other than the memory of processes, are limited, and all of
// them together leave the box alive.
func TestFilesCannotFillMemory(t *testing.T) {
	for name, res := range classes {
		t.Run(name, func(t *testing.T) {
			g := newRig(t).start(t, newSpec(res))
			for _, dir := range []string{"/tmp", "/dev/shm", "/dev", "/run", "/var", "/"} {
				out, code := g.sh(fmt.Sprintf("dd if=/dev/zero of=%s/fill bs=64k", strings.TrimSuffix(dir, "/")))
				if code == 0 || !strings.Contains(out, "No space left on device") {
					t.Errorf("filling %s: exit code %d, output %q", dir, code, out)
				}
			}
			if out := g.must("echo alive"); out != "alive" {
				t.Errorf("echo: %q", out)
			}
		})
	}
}

func TestTmpLimit(t *testing.T) {
	// See layout: an eighth of the memory, or half of the disk.
	for name, want := range map[string]int64{"memory": inMemory.MemoryBytes / 8, "disk": onDisk.DiskBytes / 2} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t).start(t, newSpec(classes[name]))
			g.sh("dd if=/dev/zero of=/tmp/fill bs=64k")
			if got := g.must("stat -c %s /tmp/fill"); got != strconv.FormatInt(want, 10) {
				t.Errorf("/tmp holds %s bytes, want %d", got, want)
			}
		})
	}
}

func TestMoreThanMemoryOnDisk(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(sandbox.Resources{MemoryBytes: 128 * mib, CPUMilli: 2000, DiskBytes: 2048 * mib}))
	g.must("dd if=/dev/zero of=/large bs=1M count=1024")
	if got := g.must("stat -c %s /large"); got != strconv.Itoa(1024*mib) {
		t.Errorf("the file has %s bytes", got)
	}
	if out := g.must("dd if=/large of=/dev/null bs=1M && dd if=/large bs=1M skip=1008 | md5sum"); !strings.Contains(out, "2c7ab85a893283e98c931e9511add182") {
		t.Errorf("the last 16 MiB of zeros read back as %q", out)
	}
	s, err := r.Stats(t.Context(), g.id)
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	if s.DiskBytes < 1024*mib || s.MemoryBytes > s.MemoryLimit {
		t.Errorf("Stats = %+v, want at least a gigabyte of disk and no more memory than allowed", s)
	}
}

func TestProcessLimitHoldsForRoot(t *testing.T) {
	r := newRig(t)
	spec := newSpec(inMemory)
	spec.MaxProcesses = 60
	g := r.start(t, spec)
	out, _ := g.sh("(for i in $(seq 200); do sleep 600 >/dev/null 2>&1 & done); kill -9 -1") // a shell that cannot fork ends
	if !strings.Contains(out, "can't fork") && !strings.Contains(out, "temporarily unavailable") {
		t.Errorf("starting 200 processes under a limit of 60: %q", out)
	}
	// A killed process counts until PID 1 has reaped it.
	eventually(t, "a process starts when the others are gone", func() error {
		out, _, err := g.try("echo alive", "")
		if err == nil && out != "alive" {
			t.Errorf("echo: %q", out)
		}
		return err
	})
}

// TestThreadsOfTheAgent makes the agent need threads while root has as many processes as it may have.
func TestThreadsOfTheAgent(t *testing.T) {
	r := newRig(t)
	spec := newSpec(inMemory)
	spec.MaxProcesses = 60
	g := r.start(t, spec)
	g.must("dd if=/dev/zero of=/tmp/large bs=1M count=8 2>/dev/null")
	out, _ := g.sh("for i in $(seq 200); do sleep 600 >/dev/null 2>&1 & done")
	if !strings.Contains(out, "can't fork") && !strings.Contains(out, "temporarily unavailable") {
		t.Errorf("starting 200 processes under a limit of 60: %q", out)
	}
	var calls sync.WaitGroup
	for range 64 {
		calls.Go(func() {
			body, _, err := g.agent.ReadFile(t.Context(), "/tmp/large", 0, -1)
			if err != nil {
				t.Errorf("ReadFile: %v", err)
				return
			}
			defer body.Close()
			if n, err := io.Copy(io.Discard, body); err != nil || n != 8*mib {
				t.Errorf("read %d bytes, %v", n, err)
			}
		})
	}
	read := make(chan struct{})
	var commands sync.WaitGroup
	for range 4 {
		commands.Go(func() {
			for {
				select {
				case <-read:
					return
				default:
				}
				// Most are refused. A command that starts while the agent gets a thread has no more rights than others.
				if out, code, err := g.try("ulimit -u", ""); err == nil && (code != 0 || out != "60") {
					t.Errorf("the limit of processes in a command is %q (exit code %d), want 60", out, code)
				}
			}
		})
	}
	calls.Wait()
	close(read)
	commands.Wait()
	g.mustRun()
}

func TestOutOfMemoryEndsTheProcessOnly(t *testing.T) {
	r := newRig(t)
	if !r.Capabilities().Memory {
		t.Skip("this host does not limit memory")
	}
	g := r.start(t, newSpec(onDisk))
	const hog = `awk 'BEGIN { s = "................................"; while (1) s = s s }'`
	if out, code := g.sh(hog); code != 137 {
		t.Errorf("using up the memory: exit code %d, want 137; output %q", code, out)
	}
	if err := g.echoes(); err != nil {
		t.Errorf("after a process was ended for memory, none can be started: %v", err)
	}
}

// echoes returns once a command ran, or with an error when the box has ended. gVisor releases the
// memory of a killed process shortly after its end: until then there is no memory for another,
// which is killed also.
func (g *guest) echoes() (err error) {
	g.t.Helper()
	eventually(g.t, "a process starts when the memory is free again", func() error {
		var out string
		var code int
		if out, code, err = g.try("echo alive", ""); err == nil && (code != 0 || out != "alive") {
			return fmt.Errorf("exit code %d, output %q", code, out)
		}
		return nil
	})
	return err
}

func TestFileLimit(t *testing.T) {
	g := newRig(t).start(t, newSpec(inMemory))
	if got := g.must("ulimit -n"); got != "65536" {
		t.Errorf("ulimit -n = %s, want 65536", got)
	}
}

func TestCPULimit(t *testing.T) {
	res := inMemory
	res.CPUMilli = 250
	r := newRig(t)
	if !r.Capabilities().CPU {
		t.Skip("this host does not limit CPU")
	}
	g := r.start(t, newSpec(res))
	before, err := r.Stats(t.Context(), g.id)
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	g.sh("timeout 2 sh -c 'while true; do :; done'")
	after, err := r.Stats(t.Context(), g.id)
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	// A bound on the ratio of two clocks, not on time: a busy machine makes it smaller, never
	// larger.
	used, passed := after.CPUNanos-before.CPUNanos, after.Time.Sub(before.Time).Nanoseconds()
	if used > passed/2 {
		t.Errorf("used %d ns of CPU in %d ns with a quarter of a core", used, passed)
	}
}

// When the kernel kills gVisor itself, because the guest used the memory through it and the host
// does not permit to protect it, the end has the right cause.
func TestOutOfMemoryAsAWhole(t *testing.T) {
	r := newRig(t)
	if !r.Capabilities().Memory {
		t.Skip("this host does not limit memory")
	}
	g := r.start(t, newSpec(onDisk))
	// The process is killed, or gets no memory and gives up, or the box ends.
	_, code, err := g.try("tail /dev/zero", "")
	if err == nil && code != 0 && g.echoes() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	exit, err := r.Wait(ctx, g.id)
	if err != nil || exit.Cause != sandbox.CauseOOM {
		t.Errorf("Wait = %+v, %v; want %s", exit, err, sandbox.CauseOOM)
	}
}

// Without its helper gVisor cannot start processes: the box must end.
func TestEndsWithItsHelper(t *testing.T) {
	r := newRig(t)
	if !r.Capabilities().Memory {
		t.Skip("this host does not limit memory")
	}
	kill := func(id sandbox.ID) {
		t.Helper()
		if err := r.KillHelper(id); err != nil {
			t.Fatalf("KillHelper: %v", err)
		}
	}
	ends := func(id sandbox.ID) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		if exit, err := r.Wait(ctx, id); err != nil || exit.Cause != sandbox.CauseExited {
			t.Errorf("Wait = %+v, %v; want %s", exit, err, sandbox.CauseExited)
		}
	}
	made, spec := r.start(t, newSpec(inMemory)), newSpec(inMemory)
	restored := r.restore(t, spec, r.checkpoint(t, made, driver.CheckpointOptions{}))
	for _, g := range []*guest{made, restored} {
		if err := g.echoes(); err != nil {
			t.Fatalf("before its helper was ended: %v", err)
		}
	}
	kill(restored.id)
	ends(restored.id)

	r.reopen(t)
	if err := r.Recover(t.Context(), made.id, made.handle); err != nil {
		t.Fatalf("Recover: %v", err)
	}
	kill(made.id)
	ends(made.id)
}
