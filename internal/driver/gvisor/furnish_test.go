package gvisor_test

import (
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/gvisortest"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestLateImageNeedsIdentity: gVisor cannot restore an image that was mounted after the start, unless the
// agent has given it an identity, when it makes the root. When this test fails, gVisor does that itself: then
// remove package lateimage, and what the agent does with it.
func TestLateImageNeedsIdentity(t *testing.T) {
	gvisortest.Need(t)
	r := newRig(t)
	spec := newSpec(onDisk)
	rootfs := spec.RootFS
	spec.RootFS = ""
	g := r.start(t, spec)
	if n, err := r.Furnish(t.Context(), g.id, rootfs); n != 1 || err != nil {
		t.Fatalf("Furnish = %d, %v, want 1 layer", n, err)
	}
	dir := filepath.Join(t.TempDir(), "save") // without configuring the agent
	if err := r.Checkpoint(t.Context(), g.id, dir, driver.CheckpointOptions{Stop: true}); err != nil {
		t.Fatalf("Checkpoint: %v", err)
	}
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	spec.RootFS = rootfs
	if _, err := r.Restore(t.Context(), spec, dir); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("Restore = %v, want code unsupported", err)
	}
}

// TestFurnishedBoxes: boxes of each class that began blank have their limits, and are restored, twice.
func TestFurnishedBoxes(t *testing.T) {
	gvisortest.Need(t)
	for name, res := range classes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			spec := newSpec(res)
			rootfs := spec.RootFS
			spec.RootFS = ""
			g := r.start(t, spec)
			n, err := r.Furnish(t.Context(), g.id, rootfs)
			if err != nil {
				t.Fatalf("Furnish: %v", err)
			}
			if err := g.agent.Configure(t.Context(), agentapi.Config{Hostname: "claimed", Layers: n}); err != nil {
				t.Fatalf("Configure: %v", err)
			}
			same := r.start(t, newSpec(res))
			if got, want := g.must(capabilities), same.must(capabilities); got != want {
				t.Errorf("capabilities in the box:\n%s\nwant, as in another:\n%s", got, want)
			}
			const limits = "df -k / /tmp /dev/shm /dev | awk '{print $2, $NF}'; awk '{print $2, $3, $4}' /proc/mounts | sed 's/ifd=[0-9]*/ifd=N/' | sort; awk '/^MemTotal/ {print $2}' /proc/meminfo; ls -A / | sort"
			if got, want := g.must(limits), same.must(limits); got != want {
				t.Errorf("in the box:\n%s\nwant, as in another:\n%s", got, want)
			}
			g.must(fill)
			spec.RootFS = rootfs
			wantFormat(t, r.checkpoint(t, same, driver.CheckpointOptions{}), formatNow(), false)
			for range 2 {
				dir := r.checkpoint(t, g, driver.CheckpointOptions{Stop: true})
				wantFormat(t, dir, formatNow(), true)
				if err := r.Destroy(t.Context(), g.id); err != nil {
					t.Fatal(err)
				}
				r.reopen(t)
				g = r.restore(t, spec, dir)
				g.wantFilled()
			}
			if out := g.must("hostname"); out != "claimed" {
				t.Errorf("hostname = %q, want claimed", out)
			}
		})
	}
}

// wantFormat checks the format of a checkpoint. Versions without blank boxes know formats 1 and 2 only,
// versions that hand no connections over 1 to 3.
func wantFormat(t *testing.T, dir string, want int, framed bool) {
	t.Helper()
	if m, err := saved.ReadManifest(dir); err != nil || m.Format != want || m.Framed != framed {
		t.Errorf("the checkpoint has format %d, framed %v, %v, want %d, %v", m.Format, m.Framed, err, want, framed)
	}
}
