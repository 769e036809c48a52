package agentuity

import (
	"context"
	"net/http"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// statistics has the handler for the statistics of a workspace.
type statistics struct {
	*finder
	svc *lifecycle.Service
}

func (h *statistics) register(m routes) { m.add("GET /services/stats/{org}", byCode, h.get) }

// usageInfo is the use of resources by a sandbox, as far as it was measured.
type usageInfo struct {
	CPUTimeMS          *int64 `json:"cpuTimeMs,omitempty"`
	MemoryByteSec      *int64 `json:"memoryByteSec,omitempty"`
	NetworkEgressBytes *int64 `json:"networkEgressBytes,omitempty"`
}

func usageOf(u *sandbox.Usage) usageInfo {
	if u.At.IsZero() {
		return usageInfo{}
	}
	ms := u.CPU.Milliseconds()
	return usageInfo{&ms, &u.MemoryByteSeconds, &u.SentBytes}
}

// sandboxStats are the totals of an organization's sandboxes.
type sandboxStats struct {
	TotalActive             int   `json:"totalActive"`
	Running                 int   `json:"running"`
	Idle                    int   `json:"idle"`
	Creating                int   `json:"creating"`
	TotalExecutions         int   `json:"totalExecutions"`
	TotalCPUTimeMS          int64 `json:"totalCpuTimeMs"`
	TotalMemoryByteSec      int64 `json:"totalMemoryByteSec"`
	TotalNetworkEgressBytes int64 `json:"totalNetworkEgressBytes"`
}

func (s *sandboxStats) add(l *look, u *sandbox.Usage) {
	if !l.State.Ended() {
		s.TotalActive++
	}
	switch l.status() {
	case statusRunning:
		s.Running++
	case statusIdle:
		s.Idle++
	case statusCreating:
		s.Creating++
	}
	s.TotalExecutions += len(l.executions)
	s.TotalCPUTimeMS += u.CPU.Milliseconds()
	s.TotalMemoryByteSec += u.MemoryByteSeconds
	s.TotalNetworkEgressBytes += u.SentBytes
}

// get answers with the totals of all recorded sandboxes that were created in a period.
func (h *statistics) get(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	start, err := instant("start", q.Get("start"))
	if err != nil {
		return err
	}
	end, err := instant("end", q.Get("end"))
	if err != nil {
		return err
	}
	var services struct {
		Sandbox *sandboxStats `json:"sandbox,omitempty"`
	}
	if s := q.Get("service"); s == "" || s == "sandbox" {
		services.Sandbox = &sandboxStats{}
		err = h.each(r.Context(), lifecycle.Filter{States: sandbox.States, Limit: listPage}, func(sb sandbox.Sandbox) error {
			if sb.CreatedAt.Before(start) || !end.IsZero() && sb.CreatedAt.After(end) {
				return nil
			}
			l, err := h.look(r.Context(), sb)
			if err != nil {
				return err
			}
			u, err := h.svc.Usage(r.Context(), caller(r.Context()), string(sb.ID))
			services.Sandbox.add(&l, &u)
			return err
		})
	}
	if err != nil {
		return err
	}
	return answer(w, struct {
		Services any `json:"services"`
	}{services})
}

// each calls do for every sandbox that f selects.
func (h *finder) each(ctx context.Context, f lifecycle.Filter, do func(sandbox.Sandbox) error) error {
	for range listPages {
		part, err := h.svc.List(ctx, caller(ctx), f)
		if err != nil {
			return err
		}
		for _, sb := range part.Items {
			if err := do(sb); err != nil {
				return err
			}
		}
		if f.Cursor = part.Next; f.Cursor == "" {
			return nil
		}
	}
	return nil
}

// instant reads a time of the query; zero for "".
func instant(field, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, sandbox.InvalidField(field, "%q is not a time such as 2026-01-31T12:00:00Z", s)
	}
	return t, nil
}
