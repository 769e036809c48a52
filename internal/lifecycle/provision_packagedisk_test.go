package lifecycle_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestInstallsReserveDiskFromEachOther: the boxes of two installs of one workspace have no
// more disk together than its quota leaves, and their disk is used while they run.
func TestInstallsReserveDiskFromEachOther(t *testing.T) {
	// Two sandboxes of 2 GiB, a box with what it has beyond them at most, and 4 GiB.
	const mib, sandboxes, most = int64(1 << 20), int64(4096 << 20), int64((4096 + 14336 + 4096) << 20)
	wait, open := barrier(t)
	e, calls := withTools(t, map[string]string{"npm": wait})
	e.cfg.MaxBuilds = 2
	e.cfg.Quota = quota.Limits{quota.LimitDisk: most}
	s := e.start()
	var made []sandbox.ID
	for _, name := range []string{"x", "y"} {
		made = append(made, s.create(lifecycle.CreateRequest{NpmPackages: []string{name}}).ID)
	}
	eventually(t, "both installs run", func() bool { return len(calls()) == 2 })
	var disk int64
	for _, box := range s.workboxes() {
		disk += box.DiskBytes
	}
	if disk > most || disk < most-2048*mib {
		t.Errorf("two installs have %d MiB of disk together, want as much as the quota of %d leaves", disk/mib, most/mib)
	}
	if used := s.used().Disk; used.Sandboxes != sandboxes || used.Builds != disk-sandboxes {
		t.Errorf("used while they run: %+v, want %d by builds", used, disk-sandboxes)
	}
	_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{})
	wantRefused(t, "a sandbox beside them", err, quota.LimitDisk)
	open()
	open()
	for _, id := range made {
		s.reach(string(id), sandbox.Running)
	}
	if used := s.used().Disk; used.Builds != 0 {
		t.Errorf("used afterwards: %+v, want nothing by builds", used)
	}
}

// TestInstallsWaitForDiskOfOthers: a sandbox whose packages find no disk because of another
// install is not refused, and does not fail: its install begins when the other one is over.
func TestInstallsWaitForDiskOfOthers(t *testing.T) {
	wait, open := barrier(t)
	e, calls := withTools(t, map[string]string{"npm": wait})
	e.cfg.MaxBuilds = 2
	e.cfg.Quota = quota.Limits{quota.LimitDisk: 18 << 30} // two sandboxes of 2 GiB, and 14 GiB for boxes
	s := e.start()
	first := s.create(lifecycle.CreateRequest{NpmPackages: []string{"x"}})
	eventually(t, "the first install runs", func() bool { return calls()[0] != "" })
	second := s.create(lifecycle.CreateRequest{NpmPackages: []string{"y"}})
	eventually(t, "the second install waits", func() bool {
		events, err := s.Events(t.Context(), s.caller, string(second.ID), sandbox.EventFilter{})
		return err == nil && slices.ContainsFunc(events.Items, func(e sandbox.Event) bool {
			return strings.Contains(e.Message, "other builds of the workspace use its disk")
		})
	})
	if boxes, used := s.workboxes(), s.used().Disk; len(boxes) != 1 || boxes[0].DiskBytes != 16<<30 || used.Builds != 14<<30 {
		t.Errorf("boxes %+v with %d bytes beyond their sandboxes, want one of 16 GiB with 14 GiB", boxes, used.Builds)
	}
	open()
	s.reach(string(first.ID), sandbox.Running)
	eventually(t, "the second install runs", func() bool { return len(calls()) == 2 })
	open()
	s.reach(string(second.ID), sandbox.Running)
	if boxes, used := s.workboxes(), s.used().Disk; len(boxes) != 2 || used.Builds != 0 {
		t.Errorf("boxes %+v, and %d bytes reserved afterwards, want two and none", boxes, used.Builds)
	}
}

// TestDiskOfInstallsOfAKilledServer is nobody's after a restart.
func TestDiskOfInstallsOfAKilledServer(t *testing.T) {
	wait, _ := barrier(t)
	e, calls := withTools(t, map[string]string{"npm": wait})
	e.cfg.Quota = quota.Limits{quota.LimitDisk: 8 << 30}
	s := e.start()
	sb := s.create(lifecycle.CreateRequest{NpmPackages: []string{"x"}})
	eventually(t, "npm runs", func() bool { return calls()[0] != "" })
	if used := s.used().Disk; used.Builds != 6<<30 {
		t.Errorf("used while it installs: %+v, want 6 GiB by builds", used)
	}
	s.kill()
	s = e.start()
	eventually(t, "npm runs again", func() bool { return len(calls()) == 2 })
	if used := s.used().Disk; used.Builds != 6<<30 {
		t.Errorf("used while it installs again: %+v, want 6 GiB by builds", used)
	}
	s.destroy(string(sb.ID))
	eventually(t, "nothing is used", func() bool { used := s.used().Disk; return used.Total() == 0 })
}
