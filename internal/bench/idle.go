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

// idleTogether is the number of idle sandboxes whose CPU has a target.
const idleTogether = 50

// idleStarts bounds the idle sandboxes that start at the same time.
const idleStarts = 4

// idles are idle sandboxes of a measurement.
type idles struct {
	m   *Server
	ids []string
}

// startUntil starts sandboxes until there are n, and waits until they are idle.
func (i *idles) startUntil(ctx context.Context, n int) error {
	before := len(i.ids)
	i.ids = append(i.ids, make([]string, n-before)...)
	var starts errgroup.Group
	starts.SetLimit(idleStarts)
	for at := before; at < n; at++ {
		starts.Go(func() (err error) {
			i.ids[at], err = i.m.Start(ctx)
			return err
		})
	}
	if err := starts.Wait(); err != nil {
		return err
	}
	return Settle(ctx)
}

// watch returns the part of a core that all sandboxes and the server take for a time, and the memory of the host processes
// of all sandboxes, in bytes.
func (i *idles) watch(ctx context.Context, length time.Duration) (cpu float64, pss int64, err error) {
	used, _, err := i.m.used(ctx, i.ids)
	if err != nil {
		return 0, 0, err
	}
	server, err := i.m.metric(ctx, "process_cpu_seconds_total") // after asking, which costs more than being idle
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	select {
	case <-time.After(length):
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	passed := time.Since(begin)
	serverNow, err := i.m.metric(ctx, "process_cpu_seconds_total")
	if err != nil {
		return 0, 0, err
	}
	usedNow, pss, err := i.m.used(ctx, i.ids)
	if err != nil {
		return 0, 0, err
	}
	return (serverNow - server + (usedNow - used).Seconds()) / passed.Seconds(), pss, nil
}

// remove removes the sandboxes, also when ctx has ended.
func (i *idles) remove(ctx context.Context) {
	for _, id := range i.ids {
		if id != "" {
			_ = i.m.Remove(context.WithoutCancel(ctx), id) // its ttl ends it otherwise
		}
	}
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
	idle := &idles{m: m}
	defer idle.remove(ctx)
	first := min(n, idleTogether)
	if err := idle.startUntil(ctx, first); err != nil {
		return err
	}
	cpu, pss, err := idle.watch(ctx, watch)
	if err != nil {
		return err
	}
	facts := []Fact{idleCPU(first, cpu)}
	facts[0].Target, facts[0].Met = fmt.Sprintf("≤ %.1f %%", 100*targetIdle), cpu <= targetIdle
	if n > first {
		if err := idle.startUntil(ctx, n); err != nil {
			return err
		}
		if cpu, pss, err = idle.watch(ctx, watch); err != nil {
			return err
		}
		facts = append(facts, idleCPU(n, cpu))
	}
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
	each := pss / int64(n)
	memory := Fact{
		What: fmt.Sprintf("memory of one of %d idle sandboxes (PSS of all its host processes)", n),
		Ours: mib(each), Target: "≤ " + mib(targetPSS), Met: each <= targetPSS,
	}
	if theirs != nil {
		bytes, err := theirs(ctx)
		if err != nil {
			return err
		}
		memory.Against, memory.Theirs = against, mib(bytes)
		memory.Ratio = fmt.Sprintf("%.2f", float64(each)/float64(bytes))
	}
	r.Facts = append(r.Facts, append([]Fact{memory}, facts...)...)
	return nil
}

// idleCPU is the row of the CPU of n idle sandboxes.
func idleCPU(n int, cpu float64) Fact {
	return Fact{What: fmt.Sprintf("CPU of %d idle sandboxes and the server", n), Ours: fmt.Sprintf("%.2f %% of a core", 100*cpu)}
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
