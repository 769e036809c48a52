package capacity_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/capacity"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

const gib = 1 << 30

// policy is the policy of the default settings.
var policy = capacity.Policy{
	MemoryOvercommit: -1, DiskOvercommit: -1, MemoryReserve: -1, MaxSandboxes: 1000,
	Sandbox: sandbox.Resources{MemoryBytes: gib / 2, CPUMilli: 1000, DiskBytes: 2 * gib},
	Build:   sandbox.Resources{MemoryBytes: 2 * gib, CPUMilli: 2000, DiskBytes: 16 * gib},
}

func TestPromise(t *testing.T) {
	for name, tc := range map[string]struct {
		machine capacity.Machine
		change  func(*capacity.Policy)
		want    quota.Promise
	}{
		"large":      {machine: capacity.Machine{MemoryBytes: 64 * gib, DiskBytes: 500 * gib}, want: quota.Promise{MemoryBytes: 248 * gib, DiskBytes: 2000 * gib}},
		"small":      {machine: capacity.Machine{MemoryBytes: 2 * gib, DiskBytes: 20 * gib}, want: quota.Promise{MemoryBytes: 12 * gib, DiskBytes: 80 * gib}},
		"set":        {machine: capacity.Machine{MemoryBytes: gib / 4, DiskBytes: gib}, change: func(p *capacity.Policy) { p.MemoryOvercommit, p.DiskOvercommit = 4, 4 }, want: quota.Promise{MemoryBytes: gib / 4, DiskBytes: 4 * gib}},
		"no limits":  {machine: capacity.Machine{MemoryBytes: gib, DiskBytes: gib}, change: func(p *capacity.Policy) { p.MemoryOvercommit, p.DiskOvercommit = 0, 0 }},
		"no reserve": {machine: capacity.Machine{MemoryBytes: 2 * gib, DiskBytes: gib}, change: func(p *capacity.Policy) { p.MemoryReserve, p.MemoryOvercommit, p.DiskOvercommit = 0, 1.5, 1 }, want: quota.Promise{MemoryBytes: 3 * gib, DiskBytes: gib}},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy
			if tc.change != nil {
				tc.change(&p)
			}
			if got := tc.machine.Promise(p); got != tc.want {
				t.Errorf("Promise = %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestQuotaLeavesHalfToOthersAndHasTwentySandboxes(t *testing.T) {
	for _, tc := range []struct {
		machine capacity.Machine
		want    quota.Limits
	}{
		{capacity.Machine{MemoryBytes: 64 * gib, DiskBytes: 500 * gib, Cores: 16}, quota.Limits{
			quota.LimitSandboxes: 500, quota.LimitMemory: 124 * gib, quota.LimitCPU: 1_024_000, quota.LimitDisk: 1000 * gib, quota.LimitArchive: 10_000 * gib, quota.LimitCreates: 9600,
		}},
		{capacity.Machine{MemoryBytes: 2 * gib, DiskBytes: 20 * gib, Cores: 1}, quota.Limits{
			quota.LimitSandboxes: 500, quota.LimitMemory: 12 * gib, quota.LimitCPU: 64_000, quota.LimitDisk: 56 * gib, quota.LimitArchive: 560 * gib, quota.LimitCreates: 600,
		}},
	} {
		got := tc.machine.Quota(policy)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("quota on %+v (-want +got):\n%s", tc.machine, diff)
		}
		used := quota.Use{}
		if err := got.Admits(used, policy.Sandbox, 20); err != nil {
			t.Errorf("20 sandboxes on %+v: %v", tc.machine, err)
		}
	}
}

func TestDetectLooksAtTheNearestParent(t *testing.T) {
	dir := t.TempDir()
	want, err := capacity.Detect(dir)
	if err != nil || want.MemoryBytes < 1<<20 || want.DiskBytes < 1<<20 || want.Cores < 1 {
		t.Fatalf("Detect = %+v, %v", want, err)
	}
	if got, err := capacity.Detect(filepath.Join(dir, "not", "there")); err != nil || got != want {
		t.Errorf("of a directory that is not there: %+v, %v, want %+v", got, err, want)
	}
}
