package bench

import (
	"context"
	"fmt"
	"time"
)

// IdleTime is the usual time in which idle sandboxes are measured. It includes the work that follows their
// starts and the requests for their statistics, so it is long.
const IdleTime = time.Minute

// idle measures n idle sandboxes: the proportional memory of the host processes of a sandbox, and
// the part of a core that all sandboxes and the server take.
func (m *Server) idle(ctx context.Context, n int, watch time.Duration) (pss int64, cpu float64, err error) {
	ids := make([]string, n)
	defer func() {
		for _, id := range ids {
			if id != "" {
				_ = m.Remove(context.WithoutCancel(ctx), id) // its ttl ends it otherwise
			}
		}
	}()
	for i := range ids {
		if ids[i], err = m.Start(ctx); err != nil {
			return 0, 0, err
		}
	}
	if err := Settle(ctx); err != nil {
		return 0, 0, err
	}
	used, _, err := m.used(ctx, ids)
	if err != nil {
		return 0, 0, err
	}
	server, err := m.metric(ctx, "process_cpu_seconds_total") // after asking, which costs more than being idle
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	select {
	case <-time.After(watch):
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	passed := time.Since(begin)
	serverNow, err := m.metric(ctx, "process_cpu_seconds_total")
	if err != nil {
		return 0, 0, err
	}
	usedNow, total, err := m.used(ctx, ids)
	if err != nil {
		return 0, 0, err
	}
	return total / int64(n), (serverNow - server + (usedNow - used).Seconds()) / passed.Seconds(), nil
}

// used returns what sandboxes have used of the CPU, and their memory, in bytes.
func (m *Server) used(ctx context.Context, ids []string) (cpu time.Duration, pss int64, err error) {
	for _, id := range ids {
		st, err := m.c.Sandboxes.Stats(ctx, id)
		if err != nil {
			return 0, 0, err
		}
		if st.HostPSSBytes == 0 {
			return 0, 0, fmt.Errorf("stats of %s tell no host memory", id)
		}
		cpu += time.Duration(st.CPUNanos)
		pss += st.HostPSSBytes
	}
	return cpu, pss, nil
}
