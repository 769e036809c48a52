package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/client"
	"golang.org/x/sync/errgroup"
)

// IdleTime is the usual time in which idle sandboxes are measured. It includes the work that follows their
// starts and the requests for their statistics, so it is long.
const IdleTime = time.Minute

// idleStarts bounds the idle sandboxes that start at the same time.
const idleStarts = 4

// idle measures n idle sandboxes: the proportional memory of the host processes of a sandbox, and
// the part of a core that all sandboxes and the server take. Then it calls beside while they are there.
func (m *Server) idle(ctx context.Context, n int, watch time.Duration, beside func() error) (pss int64, cpu float64, err error) {
	ids := make([]string, n)
	defer func() {
		for _, id := range ids {
			if id != "" {
				_ = m.Remove(context.WithoutCancel(ctx), id) // its ttl ends it otherwise
			}
		}
	}()
	var starts errgroup.Group
	starts.SetLimit(idleStarts)
	for i := range ids {
		starts.Go(func() (err error) {
			ids[i], err = m.Start(ctx)
			return err
		})
	}
	if err := starts.Wait(); err != nil {
		return 0, 0, err
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
	return total / int64(n), (serverNow - server + (usedNow - used).Seconds()) / passed.Seconds(), beside()
}

// apiCall is a call of the API that is measured without other sandboxes and beside idle sandboxes.
type apiCall struct {
	what   string
	times  int
	target float64
	run    Op
}

// apiCalls returns the calls that are measured beside idle sandboxes; one of them gets box.
func apiCalls(m *Server, box string) []apiCall {
	return []apiCall{
		{"list sandboxes (a page), API", 200, 0, func(ctx context.Context) (time.Duration, error) { // a page without others has one item
			return Timed(func() error {
				_, err := m.c.Sandboxes.List(client.ListOptions{}).Page(ctx, client.PageOptions{})
				return err
			})
		}},
		{"get a sandbox, API", 200, targetIdleAPI, func(ctx context.Context) (time.Duration, error) {
			return Timed(func() error {
				_, err := m.c.Sandboxes.Get(ctx, box)
				return err
			})
		}},
		{"cold create → it runs, API", 50, targetIdleAPI, func(ctx context.Context) (took time.Duration, err error) {
			id := ""
			if took, err = Timed(func() (err error) { id, err = m.Start(ctx); return err }); id != "" {
				err = errors.Join(err, m.Remove(ctx, id))
			}
			return took, err
		}},
	}
}

// measureCalls returns the times of each of some calls.
func measureCalls(ctx context.Context, calls []apiCall) ([]Series, error) {
	all := make([]Series, len(calls))
	for i, c := range calls {
		got, err := Alternate(ctx, c.times, Side{"modbox", c.run})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.what, err)
		}
		all[i] = got[0]
	}
	return all, nil
}

// AddIdle measures the cost of n idle sandboxes for a time, beside a peer's memory unless theirs is nil, and calls of the API
// beside the sandboxes.
func (r *Report) AddIdle(ctx context.Context, n int, watch time.Duration, m *Server, against string, theirs func(context.Context) (int64, error)) error {
	box, err := m.Start(ctx)
	if err != nil {
		return err
	}
	defer m.Remove(context.WithoutCancel(ctx), box) //nolint:errcheck // its ttl ends it otherwise
	calls := apiCalls(m, box)
	for i := range calls { // fewer rounds than usual shorten all of them
		calls[i].times = max(min(calls[i].times, calls[i].times*r.Rounds/10), 1)
	}
	alone, err := measureCalls(ctx, calls)
	if err != nil {
		return err
	}
	pss, cpu, err := m.idle(ctx, n, watch, func() error {
		beside, err := measureCalls(ctx, calls)
		if err != nil {
			return err
		}
		for i, c := range calls {
			alone[i].Name = "the same without them"
			row := Row{What: fmt.Sprintf("with %d idle sandboxes: %s", n, c.what), Ours: beside[i], Peer: alone[i], Target: c.target}
			r.Rows = append(r.Rows, row)
			r.see(row)
		}
		return nil
	})
	if err != nil {
		return err
	}
	memory := Fact{
		What: fmt.Sprintf("memory of one of %d idle sandboxes (PSS of all its host processes)", n),
		Ours: mib(pss), Target: "≤ " + mib(targetPSS), Met: pss <= targetPSS,
	}
	if theirs != nil {
		bytes, err := theirs(ctx)
		if err != nil {
			return err
		}
		memory.Against, memory.Theirs = against, mib(bytes)
		memory.Ratio = fmt.Sprintf("%.2f", float64(pss)/float64(bytes))
	}
	r.Facts = append(r.Facts, memory, Fact{
		What: fmt.Sprintf("CPU of %d idle sandboxes and the server", n), Ours: fmt.Sprintf("%.1f %% of a core", 100*cpu),
		Target: fmt.Sprintf("≤ %.0f %%", 100*targetIdle), Met: cpu <= targetIdle,
	})
	return nil
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
