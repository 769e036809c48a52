package gvisor_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/sandbox"
)

// direct reports whether the driver hands a connection over to the agent of a box.
func (r *rig) direct(t *testing.T, id sandbox.ID) bool {
	t.Helper()
	c, err := r.Dial(t.Context(), id, driver.AgentPort)
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer c.Close()
	d, ok := c.(interface{ Direct() bool })
	return ok && d.Direct()
}

// TestHandedOver: a new box, a box that another driver takes over, and a restored box get their connections directly.
func TestHandedOver(t *testing.T) {
	r := newRig(t)
	spec := newSpec(onDisk)
	g := r.start(t, spec)
	fresh := r.direct(t, g.id)
	r.reopen(t)
	if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
		t.Fatalf("Recover: %v", err)
	}
	g = r.connect(t, g.id, g.handle)
	recovered := r.direct(t, g.id)
	dir := r.checkpoint(t, g, driver.CheckpointOptions{Stop: true})
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	g = r.restore(t, spec, dir)
	if restored := r.direct(t, g.id); !fresh || !recovered || !restored {
		t.Errorf("direct: new box %v, after another driver took it over %v, restored %v, want all", fresh, recovered, restored)
	}
}

// TestForwardedBoxes: a box of a version of Modbox that had only port forwarding, and its checkpoints, work
// with this version.
func TestForwardedBoxes(t *testing.T) {
	for name, opts := range map[string]driver.CheckpointOptions{"save": {}, "stop": {Stop: true}, "layer": {Stop: true, Layer: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.UseForwarding()
			spec := newSpec(onDisk)
			g := r.start(t, spec)
			g.must(fill)
			g.exchange()
			r.reopen(t)
			if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
				t.Fatalf("Recover: %v", err)
			}
			g = r.connect(t, g.id, g.handle)
			if r.direct(t, g.id) {
				t.Error("a connection to a box that takes none is direct")
			}
			dir := r.checkpoint(t, g, opts)
			wantFormat(t, dir, saved.Format, false)
			if err := r.Destroy(t.Context(), g.id); err != nil {
				t.Fatal(err)
			}
			g = r.restore(t, spec, dir)
			g.wantFilled()
			g.exchange()
			wantFormat(t, r.checkpoint(t, g, driver.CheckpointOptions{}), saved.Format, false)
		})
	}
}

// TestHandoverAfterDowngrade: a box that an earlier version of Modbox had meanwhile, which knows no handover, is
// saved in the format for it.
func TestHandoverAfterDowngrade(t *testing.T) {
	r := newRig(t)
	spec := newSpec(onDisk)
	g := r.start(t, spec)
	if err := r.ForgetHandover(g.id); err != nil {
		t.Fatal(err)
	}
	r.reopen(t)
	if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
		t.Fatal(err)
	}
	g = r.connect(t, g.id, g.handle)
	g.exchange()
	dir := r.checkpoint(t, g, driver.CheckpointOptions{})
	wantFormat(t, dir, formatNow(), false)
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	r.restore(t, spec, dir).exchange()
}

// exchange writes a file into the box, and reads it again.
func (g *guest) exchange() {
	g.t.Helper()
	const size = 20 * mib
	want, got := sha256.New(), sha256.New()
	content := io.TeeReader(io.LimitReader(patterns{}, size), want)
	if _, err := g.agent.WriteFile(g.t.Context(), "/tmp/exchange", content, agentapi.WriteOptions{Size: size}); err != nil {
		g.t.Fatalf("WriteFile: %v", err)
	}
	r, _, err := g.agent.ReadFile(g.t.Context(), "/tmp/exchange", 0, -1)
	if err != nil {
		g.t.Fatalf("ReadFile: %v", err)
	}
	defer r.Close()
	if n, err := io.Copy(got, r); err != nil || n != size || fmt.Sprint(want.Sum(nil)) != fmt.Sprint(got.Sum(nil)) {
		g.t.Errorf("read %d bytes, %v, want those that were written", n, err)
	}
	g.must("rm /tmp/exchange")
}

// patterns is a reader of pages that differ.
type patterns struct{}

var pages byte

func (patterns) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = pages
		if i%4096 == 0 {
			pages++
		}
	}
	return len(p), nil
}

// buildStubborn builds the agent of testdata/stubborn.
func buildStubborn(t *testing.T, deaf bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent")
	flags := "-s -w"
	if deaf {
		flags += " -X main.deaf=yes"
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", flags, "-o", path, "./testdata/stubborn")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// TestStubbornAgents: a box cannot be saved while its agent keeps connections open, and cannot be called while
// its agent takes no connection. The calls end in time, and the box can be destroyed.
func TestStubbornAgents(t *testing.T) {
	for name, deaf := range map[string]bool{"keeps": false, "deaf": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.cfg.AgentBinary, r.cfg.AnswerTimeout = buildStubborn(t, deaf), 300*time.Millisecond
			r.reopen(t)
			spec := newSpec(inMemory)
			if _, err := r.Create(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			if err := r.Start(t.Context(), spec.ID); err != nil {
				t.Fatal(err)
			}
			const dials = 30 // more than a socket queues
			var last error
			for range dials {
				c, err := r.Dial(t.Context(), spec.ID, driver.AgentPort)
				if last = err; err != nil {
					break
				}
				defer c.Close()
			}
			if deaf && sandbox.CodeOf(last) != sandbox.AgentUnreachable || !deaf && last != nil {
				t.Errorf("Dial = %v, deaf agent: %v", last, deaf)
			}
			if !deaf {
				for name, opts := range map[string]driver.CheckpointOptions{"save": {}, "stop": {Stop: true}, "layer": {Stop: true, Layer: true}} {
					err := r.Checkpoint(t.Context(), spec.ID, filepath.Join(t.TempDir(), "saved"), opts)
					if sandbox.CodeOf(err) != sandbox.AgentUnreachable {
						t.Errorf("Checkpoint, %s = %v, want AgentUnreachable", name, err)
					}
				}
				files := driver.CheckpointOptions{FilesOnly: true}
				if err := r.Checkpoint(t.Context(), spec.ID, filepath.Join(t.TempDir(), "saved"), files); err != nil {
					t.Errorf("Checkpoint of the files = %v", err)
				}
				r.wantFewKept(t, spec.ID)
				if _, err := r.Stats(t.Context(), spec.ID); err != nil {
					t.Errorf("Stats of the box that goes on = %v", err)
				}
			}
			if err := r.Destroy(t.Context(), spec.ID); err != nil {
				t.Errorf("Destroy: %v", err)
			}
			if _, err := r.Dial(t.Context(), spec.ID, driver.AgentPort); sandbox.CodeOf(err) != sandbox.NotFound {
				t.Errorf("Dial after the end = %v", err)
			}
		})
	}
}

// wantFewKept checks that an agent that never reads cannot keep the bytes of many connections that are closed here. Those
// without bytes do not count.
func (r *rig) wantFewKept(t *testing.T, id sandbox.ID) {
	t.Helper()
	for range 100 {
		c, err := r.Dial(t.Context(), id, driver.AgentPort)
		if err != nil {
			t.Fatalf("Dial of a box whose agent has nothing to read = %v", err)
		}
		c.Close()
	}
	for range 100 {
		c, err := r.Dial(t.Context(), id, driver.AgentPort)
		if sandbox.CodeOf(err) == sandbox.AgentUnreachable {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	t.Error("an agent keeps the bytes of 100 closed connections")
}

// TestSaveAfterRefusal: the agent closes the connection of an upload that it refused later than the caller has its
// answer. A box that is saved at once is saved nevertheless.
func TestSaveAfterRefusal(t *testing.T) {
	for name, opts := range map[string]driver.CheckpointOptions{"save": {}, "stop": {Stop: true}, "layer": {Stop: true, Layer: true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			spec := newSpec(onDisk)
			g := r.start(t, spec)
			g.must("touch /file")
			const size = 30 * mib
			content := io.LimitReader(patterns{}, size)
			_, err := g.agent.WriteFile(t.Context(), "/file/child", content, agentapi.WriteOptions{Size: size})
			if err == nil || errors.Is(err, agentapi.ErrUnreachable) {
				t.Errorf("WriteFile = %v, want that the agent refuses", err)
			}
			// An answer that nobody reads does not prevent it either.
			g.must("truncate -s 30M /large")
			answer, _, err := g.agent.ReadFile(t.Context(), "/large", 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			answer.Close()
			dir := r.checkpoint(t, g, opts)
			if err := r.Destroy(t.Context(), g.id); err != nil {
				t.Fatal(err)
			}
			r.restore(t, spec, dir).exchange()
		})
	}
}

// TestSaveAfterStuckTunnel: a box is saved while its agent has data for a server in it that reads nothing, from a tunnel
// that is open, and from a tunnel that was closed.
func TestSaveAfterStuckTunnel(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(onDisk))
	g.must("nc -ll -p 8000 -e sleep 10000 >/dev/null 2>&1 &")
	for _, closed := range []bool{false, true} {
		c, err := r.Dial(t.Context(), g.id, 8000)
		for sandbox.CodeOf(err) == sandbox.PortClosed && t.Context().Err() == nil { // it does not listen yet
			time.Sleep(10 * time.Millisecond)
			c, err = r.Dial(t.Context(), g.id, 8000)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetWriteDeadline(time.Now().Add(time.Second))
		for {
			if _, err := c.Write(make([]byte, 1<<20)); err != nil {
				break
			}
		}
		if closed {
			c.Close()
		}
		r.checkpoint(t, g, driver.CheckpointOptions{})
	}
}

// TestTransferCutBySave: a file that is being written while its box is saved is not there afterwards, neither in the
// box nor in a copy of it.
func TestTransferCutBySave(t *testing.T) {
	for name, size := range map[string]int64{"shared": 0, "own": -1} { // connection
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			spec := newSpec(onDisk)
			g := r.start(t, spec)
			content, more := io.Pipe()
			written := make(chan error, 1)
			go func() {
				_, err := g.agent.WriteFile(t.Context(), "/cut", content, agentapi.WriteOptions{Size: size})
				written <- err
			}()
			if _, err := more.Write(make([]byte, 4*mib)); err != nil {
				t.Fatal(err)
			}
			dir := r.checkpoint(t, g, driver.CheckpointOptions{})
			if err := <-written; !errors.Is(err, agentapi.ErrUnreachable) {
				t.Errorf("WriteFile = %v, want that the connection broke", err)
			}
			_ = more.Close()
			g.exchange()
			g.wantUncut()
			if err := r.Destroy(t.Context(), g.id); err != nil {
				t.Fatal(err)
			}
			g = r.restore(t, spec, dir)
			g.wantUncut()
			g.exchange()
		})
	}
}

// TestTransferCutByServer: a file that is being written when its server ends is not in the box, and the next
// server transfers others.
func TestTransferCutByServer(t *testing.T) {
	for name, size := range map[string]int64{"shared": 0, "own": -1} { // connection
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.start(t, newSpec(onDisk))
			content, more := io.Pipe()
			defer more.Close()
			written := make(chan error, 1)
			go func() {
				_, err := g.agent.WriteFile(t.Context(), "/cut", content, agentapi.WriteOptions{Size: size})
				written <- err
			}()
			if _, err := more.Write(make([]byte, 4*mib)); err != nil {
				t.Fatal(err)
			}
			r.reopen(t)
			if err := <-written; err == nil {
				t.Error("WriteFile = nil, want that the connection broke")
			}
			if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
				t.Fatal(err)
			}
			g = r.connect(t, g.id, g.handle)
			g.wantUncut()
			g.exchange()
		})
	}
}

// TestSaveWhileUnpacking: a box is saved at once while its agent unpacks an archive that has arrived already, with more
// files than it can make in the time that it has to hang up.
func TestSaveWhileUnpacking(t *testing.T) {
	archive := manyFiles(t, 50_000)
	for _, name := range []string{"goesOn", "cancelled", "takenOver"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			spec := newSpec(sandbox.Resources{MemoryBytes: 512 * mib, CPUMilli: 200, DiskBytes: 1024 * mib})
			g := r.start(t, spec)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			unpacked := make(chan error, 1)
			go func() {
				unpacked <- g.agent.UnpackArchive(ctx, "/many", bytes.NewReader(archive), agentapi.ArchiveOptions{Format: agentapi.FormatTarGzip})
			}()
			eventually(t, "the agent unpacks", func() error {
				_, err := g.agent.Stat(t.Context(), "/many/0")
				return err
			})
			switch name {
			case "cancelled":
				cancel()
				if err := <-unpacked; !errors.Is(err, context.Canceled) {
					t.Errorf("UnpackArchive = %v, want that it was cancelled", err)
				}
			case "takenOver":
				r.reopen(t)
				if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
					t.Fatal(err)
				}
			}
			dir := r.checkpoint(t, g, driver.CheckpointOptions{})
			if name != "cancelled" {
				if err := <-unpacked; err == nil {
					t.Error("UnpackArchive = nil; is the archive too small for this test?")
				}
			}
			g = r.connect(t, g.id, g.handle)
			g.exchange()
			if err := r.Destroy(t.Context(), g.id); err != nil {
				t.Fatal(err)
			}
			g = r.restore(t, spec, dir)
			g.exchange()
			if _, err := g.agent.Stat(t.Context(), "/many/49999"); err == nil {
				t.Error("the archive was unpacked completely")
			}
		})
	}
}

// manyFiles returns a compressed archive of n small files.
func manyFiles(t *testing.T, n int) []byte {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for i := range n {
		if err := w.WriteHeader(&tar.Header{Name: strconv.Itoa(i), Mode: 0o600, Size: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte{'x'}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// wantUncut checks that nothing of the file that was being written is in the box.
func (g *guest) wantUncut() {
	g.t.Helper()
	eventually(g.t, "nothing of the file is left", func() error {
		if out := g.must("ls -A / | grep -e cut -e modbox- || true"); out != "" {
			return errors.New(out)
		}
		return nil
	})
}
