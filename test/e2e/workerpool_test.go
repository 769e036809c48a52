package e2e_test

import (
	"fmt"
	"testing"

	"github.com/modbox/modbox/client"
)

// TestPoolGivesWay checks that a box of the pool gives way to a sandbox that has no space on the worker beside it, and that the other stays.
func TestPoolGivesWay(t *testing.T) {
	s, workers := startWithWorkers(t, 1, "--pool-size", "2", "--capacity-memory-overcommit", "0.5", "--sandbox-max-memory", "1Ti", "--quota-memory", "0")
	w := workers[0]
	memory := func() (promised, most int64) {
		list, err := s.Workers.List().Collect(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("workers %+v, %v", list, err)
		}
		return list[0].MemoryPromisedBytes, list[0].MemoryPromisedMaxBytes
	}
	s.AwaitMetric("modbox_pool_boxes", 2)
	pool := w.boxes()
	promised, most := memory()
	size := (most - promised*3/4) >> 20 << 20 // less than beside one of them, and more than beside both
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec", Resources: client.Resources{Memory: fmt.Sprint(size)}})
	left := 0
	for _, id := range pool {
		if w.has(id) {
			left++
		}
	}
	if !w.has(sb.ID) || left != 1 {
		t.Errorf("the worker has the sandbox: %v, and %d boxes of the pool, want it and one", w.has(sb.ID), left)
	}
	if promised, most := memory(); promised > most {
		t.Errorf("%d bytes are promised of %d", promised, most)
	}
}
