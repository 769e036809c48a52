package cgroup_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/driver/gvisor/cgroup"
)

func TestContainer(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		limit int64
		held  int64
	}{
		"version 2":           {map[string]string{"memory.max": "1000\n", "memory.stat": "anon 300\nfile 500\nshmem 20\n", "memory.events": "oom 9\noom_kill 4\n"}, 1000, 320},
		"version 1":           {map[string]string{"memory/memory.limit_in_bytes": "1000\n", "memory/memory.stat": "cache 500\nrss 1\ntotal_rss 300\ntotal_shmem 20\n", "memory/memory.oom_control": "under_oom 0\noom_kill 4\n"}, 1000, 320},
		"version 2, no limit": {map[string]string{"memory.max": "max\n"}, 0, 0},
		"version 1, no limit": {map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0, 0},
		"none":                {nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range test.files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := cgroup.ContainerAt(dir)
			if got := c.Limit(); got != test.limit {
				t.Errorf("Limit() = %d, want %d", got, test.limit)
			}
			if test.limit == 0 {
				return
			}
			if got := c.Kills(); got != 4 {
				t.Errorf("Kills() = %d, want 4", got)
			}
			if got, err := c.Unreclaimable(); got != test.held || err != nil {
				t.Errorf("Held() = %d, %v, want %d", got, err, test.held)
			}
		})
	}
}
