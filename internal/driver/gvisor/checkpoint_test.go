package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/sandbox"
)

// checkpoint saves a box and returns the directory.
func (r *rig) checkpoint(t *testing.T, g *guest, opts driver.CheckpointOptions) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "saved")
	if err := r.Checkpoint(t.Context(), g.id, dir, opts); err != nil {
		t.Fatalf("Checkpoint: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("beside the checkpoint: %v, %v", entries, err)
	}
	if err := r.CanRestore(dir); err != nil {
		t.Errorf("CanRestore: %v", err)
	}
	return dir
}

// restore makes a box from a checkpoint.
func (r *rig) restore(t *testing.T, spec driver.Spec, dir string) *guest {
	t.Helper()
	h, err := r.Restore(t.Context(), spec, dir)
	if err != nil {
		t.Fatalf("Restore: %v", err)
	}
	return r.connect(t, spec.ID, h)
}

// fill creates what identifies a restored box: files of every kind, a server, and a process that
// counts and has a removed file open.
const fill = `
mkdir -p /data/deep && echo file > /data/deep/file && ln /data/deep/file /data/link && ln -s deep /data/sym
dd if=/dev/urandom of=/data/big bs=1M count=8 2>/dev/null; md5sum /data/big > /data/sum
dd if=/dev/urandom of=/tmp/big bs=1M count=4 2>/dev/null; md5sum /tmp/big > /tmp/sum
echo shm > /dev/shm/file; rm /etc/group; echo changed >> /etc/passwd
httpd -p 127.0.0.1:8080 -h /data
(exec 3<>/tmp/unlinked; rm /tmp/unlinked; n=0; while true; do n=$((n+1)); echo $n > /data/count; usleep 1000; done) >/dev/null 2>&1 &
`

// wantFilled checks that the box is as fill left it.
func (g *guest) wantFilled() {
	g.t.Helper()
	g.must(`md5sum -c /data/sum && md5sum -c /tmp/sum`)
	out := g.must(`cat /data/sym/file /dev/shm/file; stat -c %h /data/link; test -e /etc/group || echo gone; tail -n 1 /etc/passwd; wget -q -O - http://127.0.0.1:8080/link`)
	if want := "file\nshm\n2\ngone\nchanged\nfile"; out != want {
		g.t.Errorf("in the box: %q, want %q", out, want)
	}
	if out := g.must(`ls -l /proc/*/fd 2>/dev/null | grep -c unlinked`); out == "0" {
		g.t.Error("nobody has the removed file open")
	}
	g.wantCounting()
}

// count returns the number that the counting process has reached.
func (g *guest) count() int {
	g.t.Helper()
	n := 0
	eventually(g.t, "there is a count", func() (err error) { // the file is empty at times
		n, err = strconv.Atoi(g.must("cat /data/count"))
		return err
	})
	return n
}

// wantCounting checks that the counting process goes on.
func (g *guest) wantCounting() {
	g.t.Helper()
	before := g.count()
	eventually(g.t, "the count goes on", func() error {
		if n := g.count(); n <= before {
			return fmt.Errorf("it is %d, was %d", n, before)
		}
		return nil
	})
}

func TestPauseAndResume(t *testing.T) {
	for name, res := range classes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			spec := newSpec(res)
			g := r.start(t, spec)
			g.must(fill)
			g.wantFilled()
			last := g.count()
			dir := r.checkpoint(t, g, driver.CheckpointOptions{Stop: true})
			exit, err := r.Wait(t.Context(), g.id)
			if err != nil || exit.Cause != sandbox.CauseDestroyed {
				t.Errorf("Wait after the stop = %+v, %v", exit, err)
			}
			if err := r.Destroy(t.Context(), g.id); err != nil {
				t.Fatalf("Destroy: %v", err)
			}
			g = r.restore(t, spec, dir)
			g.wantFilled()
			if n := g.count(); n < last {
				t.Errorf("the count is %d, was %d before", n, last)
			}
			if s, err := r.Stats(t.Context(), g.id); err != nil || s.DiskBytes < 8*mib {
				t.Errorf("Stats = %+v, %v, want at least 8 MiB of disk", s, err)
			}
			// Once more, for a box that was restored, with a restart of the server before.
			r.reopen(t)
			if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
				t.Fatalf("Recover: %v", err)
			}
			dir = r.checkpoint(t, g, driver.CheckpointOptions{Stop: true})
			if err := r.Destroy(t.Context(), g.id); err != nil {
				t.Fatalf("Destroy: %v", err)
			}
			r.restore(t, spec, dir).wantFilled()
		})
	}
}

// A checkpoint becomes several boxes at once, each with its own identity and limits, while the
// saved box goes on.
func TestForks(t *testing.T) {
	for name, res := range classes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			parent := r.start(t, newSpec(res))
			parent.must(fill)
			dir := r.checkpoint(t, parent, driver.CheckpointOptions{})
			parent.agent.Close()
			parent = r.connect(t, parent.id, parent.handle)
			parent.wantFilled()

			const forks = 4
			var specs [forks]driver.Spec
			var handles [forks]driver.Handle
			var wg sync.WaitGroup
			for i := range forks {
				specs[i] = newSpec(res)
				specs[i].Hostname = fmt.Sprintf("fork-%d", i)
				specs[i].Resources.MemoryBytes += int64(i) * 64 * mib
				specs[i].Resources.CPUMilli -= int64(i) * 250
				wg.Go(func() {
					var err error
					if handles[i], err = r.Restore(t.Context(), specs[i], dir); err != nil {
						t.Errorf("Restore: %v", err)
					}
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
			random := map[string]bool{}
			for i, spec := range specs {
				g := r.connect(t, spec.ID, handles[i])
				g.wantFilled()
				if out := g.must("hostname"); out != spec.Hostname {
					t.Errorf("hostname = %q, want %q", out, spec.Hostname)
				}
				if out := g.must("awk '/^MemTotal/ {print $2}' /proc/meminfo"); out != strconv.FormatInt(spec.Resources.MemoryBytes>>10, 10) {
					t.Errorf("fork %d has %s KiB of memory, want %d", i, out, spec.Resources.MemoryBytes>>10)
				}
				g.must("echo mine > /data/deep/file")
				random[g.must("head -c 16 /dev/urandom | md5sum")] = true
				now, err := strconv.ParseInt(g.must("date +%s"), 10, 64)
				if off := time.Since(time.Unix(now, 0)); err != nil || off.Abs() > time.Minute {
					t.Errorf("the wall clock is off by %v, %v", off, err)
				}
				s, err := r.Stats(t.Context(), spec.ID)
				if err != nil || s.MemoryLimit != spec.Resources.MemoryBytes || s.CPULimitMilli != spec.Resources.CPUMilli {
					t.Errorf("Stats = %+v, %v", s, err)
				}
			}
			if len(random) != forks {
				t.Errorf("%d forks have %d random numbers", forks, len(random))
			}
			parent.wantFilled()
		})
	}
}

func TestRestoredDiskKeepsItsLimit(t *testing.T) {
	for name, res := range classes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.start(t, newSpec(res))
			dir := r.checkpoint(t, g, driver.CheckpointOptions{})
			spec := newSpec(res)
			spec.Resources.DiskBytes *= 2
			_, err := r.Restore(t.Context(), spec, dir)
			wantCode(t, "Restore with another disk", err, sandbox.Invalid)
			g = r.restore(t, newSpec(res), dir)
			if out, code := g.sh("dd if=/dev/zero of=/fill bs=64k"); code == 0 || !strings.Contains(out, "No space left on device") {
				t.Errorf("filling the disk: exit code %d, output %q", code, out)
			}
			if got, want := g.must("stat -c %s /fill"), strconv.FormatInt(res.DiskBytes, 10); got != want {
				t.Errorf("the file has %s bytes, want %s", got, want)
			}
		})
	}
}

func TestCheckpointThatFails(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(inMemory))
	g.must(fill)
	again := func() {
		t.Helper()
		g.agent.Close()
		g = r.connect(t, g.id, g.handle)
		g.wantFilled()
	}
	for _, stop := range []bool{false, true} {
		opts := driver.CheckpointOptions{Stop: stop}
		parent := t.TempDir()
		if err := r.Checkpoint(t.Context(), g.id, filepath.Join(parent, "no", "such"), opts); err == nil {
			t.Error("Checkpoint into a directory that is not there succeeded")
		}
		again()
		if err := os.Mkdir(filepath.Join(parent, "taken"), 0o700); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "Checkpoint over another", r.Checkpoint(t.Context(), g.id, filepath.Join(parent, "taken"), opts), sandbox.Exists)
		again()
		for after := time.Millisecond; after < 100*time.Millisecond; after *= 2 {
			dir := filepath.Join(parent, after.String())
			ctx, cancel := context.WithTimeout(t.Context(), after)
			err := r.Checkpoint(ctx, g.id, dir, opts)
			cancel()
			if err == nil {
				break
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Checkpoint = %v, want the context's error", err)
			}
			again()
		}
		if !stop {
			continue
		}
		left, _ := filepath.Glob(filepath.Join(parent, ".new-*"))
		if len(left) > 0 {
			t.Errorf("left in the directory: %v", left)
		}
	}
}

// A box from before an upgrade has another version of gVisor: its checkpoint could not be restored,
// so it is not stopped.
func TestPauseOfAnOldBoxIsRefused(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(inMemory))
	g.must(fill)
	if err := r.SetGVisor(g.id, "v0.0.1"); err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	err := r.Checkpoint(t.Context(), g.id, filepath.Join(parent, "saved"), driver.CheckpointOptions{Stop: true, Layer: true})
	wantCode(t, "Checkpoint of an old box", err, sandbox.Unsupported)
	if !strings.Contains(err.Error(), "v0.0.1") {
		t.Errorf("Checkpoint = %v, want one that names the version", err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left of a refused checkpoint: %v, %v", left, err)
	}
	g.agent.Close()
	r.connect(t, g.id, g.handle).wantFilled()
}

// When a server dies while a box is frozen, the next server lets the box go on.
func TestFrozenBoxGoesOn(t *testing.T) {
	for _, frozen := range []bool{true, false} {
		t.Run(fmt.Sprintf("frozen=%v", frozen), func(t *testing.T) {
			r := newRig(t)
			g := r.start(t, newSpec(inMemory))
			g.must(fill)
			if err := r.MarkFrozen(t.Context(), g.id, frozen); err != nil {
				t.Fatal(err)
			}
			r.reopen(t)
			if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
				t.Fatalf("Recover: %v", err)
			}
			r.connect(t, g.id, g.handle).wantFilled()
		})
	}
}

// Connecting to a frozen box waits until the box goes on: its agent could not send its settings,
// and a snapshot may take longer than callers wait for those.
func TestDialWaitsForAFrozenBox(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(inMemory))
	if err := r.MarkFrozen(t.Context(), g.id, true); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if c, err := r.Dial(short, g.id, driver.AgentPort); !errors.Is(err, context.DeadlineExceeded) {
		if err == nil {
			c.Close()
		}
		t.Errorf("Dial of a box that is frozen = %v, want it to wait until its context ends", err)
	}
	dialed := make(chan error, 1)
	go func() {
		c, err := r.Dial(t.Context(), g.id, driver.AgentPort)
		if err == nil {
			c.Close()
		}
		dialed <- err
	}()
	if err := r.Release(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-dialed:
		if err != nil {
			t.Errorf("Dial that waited = %v", err)
		}
	case <-time.After(testTimeout):
		t.Error("Dial goes on waiting after the box went on")
	}
	r.connect(t, g.id, g.handle).must("echo alive")
}

// When a box has been saved, gVisor has closed the connections forwarded into it: data of an open
// connection would be saved with the box.
func TestSaveWaitsForItsConnections(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(inMemory))
	const conns = 20
	for range conns {
		c, err := r.Dial(t.Context(), g.id, driver.AgentPort)
		if err != nil {
			t.Fatalf("Dial: %v", err)
		}
		t.Cleanup(func() { c.Close() })
	}
	if err := r.HangUp(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	stacks, err := r.Stacks(t.Context(), g.id)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(stacks, "portforward.doCopy"); n > 0 {
		t.Errorf("after hangUp gVisor still copies %d times in\n%s", n, stacks)
	}
}

func TestDamagedCheckpoints(t *testing.T) {
	r := newRig(t)
	spec := newSpec(inMemory)
	g := r.start(t, spec)
	g.must(fill)
	good := r.checkpoint(t, g, driver.CheckpointOptions{Stop: true})
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	rewrite := func(old, new string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := gvisor.RewriteManifest(dir, old, new); err != nil {
				t.Fatal(err)
			}
		}
	}
	garble := func(file string, at int64) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, file), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte(strings.Repeat("\xff", 512)), at); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		spoil   func(t *testing.T, dir string)
		can     sandbox.Code // the result of CanRestore
		restore sandbox.Code
	}{
		"NoManifest": {func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, "manifest.json"))
			os.Remove(filepath.Join(dir, "manifest.copy.json"))
		}, sandbox.NotFound, sandbox.NotFound},
		"NoState":  {func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "state.img")) }, sandbox.NotFound, sandbox.NotFound},
		"CutPages": {func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, "pages.img"), 4096) }, sandbox.NotFound, sandbox.NotFound},
		"LinkedState": {func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, "state.img"))
			os.Symlink(filepath.Join(good, "state.img"), filepath.Join(dir, "state.img"))
		}, sandbox.NotFound, sandbox.NotFound},
		"OtherGVisor":    {rewrite(`"gvisor":"`, `"gvisor":"x`), sandbox.Unsupported, sandbox.Unsupported},
		"OtherCPU":       {rewrite(`"flags":[`, `"flags":[ "quantum",`), sandbox.Unsupported, sandbox.Unsupported},
		"OtherAgent":     {rewrite(`"agent":"`, `"agent":"0`), sandbox.Unsupported, sandbox.Unsupported},
		"AgentElsewhere": {rewrite(`"agent":"`, `"agent":"../../`), sandbox.Unsupported, sandbox.Unsupported},
		"OtherImage":     {rewrite(`"head":"`, `"head":"0`), "", sandbox.Invalid},
		"GarbledState":   {garble("state.img", 0), "", sandbox.Unsupported},
		"GarbledKernel":  {garble("state.img", 32<<10), "", sandbox.Unsupported},
		"GarbledIndex":   {garble("pages.meta", 0), "", sandbox.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "bad")
			if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, dir)
			wantCode(t, "CanRestore", r.CanRestore(dir), c.can)
			_, err := r.Restore(t.Context(), spec, dir)
			wantCode(t, "Restore", err, c.restore)
			if ids, err := r.List(t.Context()); err != nil || len(ids) > 0 {
				t.Errorf("List after a failed Restore = %v, %v", ids, err)
			}
		})
	}
	r.restore(t, spec, good).wantFilled()
}
