package agentuity

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// A list is read completely, to be sorted and counted: at most 10,000 sandboxes.
const listPages, listPage = 10, 1000

// states are our states for each status.
var states = map[string][]sandbox.State{
	"":               nil, // all that have not ended
	statusCreating:   {sandbox.Provisioning},
	statusIdle:       {sandbox.Running},
	statusRunning:    {sandbox.Running},
	statusPaused:     {sandbox.Pausing},
	statusSuspended:  {sandbox.Paused, sandbox.Resuming},
	statusStopping:   {sandbox.Destroying, sandbox.Running},
	statusTerminated: {sandbox.Destroyed},
	statusFailed:     {sandbox.Failed, sandbox.Destroyed},
	statusDeleted:    {sandbox.Destroyed},
}

// counting are the statuses and orders that depend on a sandbox's executions.
var counting = map[string]bool{
	statusIdle: true, statusRunning: true, statusStopping: true, statusTerminated: true, statusFailed: true,
	"status": true, "execution_count": true,
}

// orders are the orders of a list.
var orders = map[string]func(a, b *look) int{
	"created":         func(a, b *look) int { return a.CreatedAt.Compare(b.CreatedAt) },
	"updated":         func(a, b *look) int { return a.UpdatedAt.Compare(b.UpdatedAt) },
	"name":            func(a, b *look) int { return cmp.Compare(a.Labels[labelName], b.Labels[labelName]) },
	"status":          func(a, b *look) int { return cmp.Compare(a.status(), b.status()) },
	"mode":            func(a, b *look) int { return cmp.Compare(mode(&a.Sandbox), mode(&b.Sandbox)) },
	"execution_count": func(a, b *look) int { return cmp.Compare(len(a.executions), len(b.executions)) },
}

// filter reads which sandboxes a request selects.
func filter(r *http.Request) (lifecycle.Filter, string, error) {
	q := r.URL.Query()
	status := q.Get("status")
	if q.Get("deletedOnly") == "true" {
		status = statusDeleted
	}
	f := lifecycle.Filter{Labels: map[string]string{}, Limit: listPage}
	var known bool
	if f.States, known = states[status]; !known {
		return f, "", sandbox.InvalidField("status", "is not a known status")
	}
	if status == "" && q.Get("live") == "false" {
		f.States = []sandbox.State{sandbox.Destroyed, sandbox.Failed} // without the deleted sandboxes among them
	}
	for label, value := range map[string]string{labelName: q.Get("name"), labelProject: q.Get("projectId")} {
		if value != "" {
			f.Labels[label] = value
		}
	}
	if s := q.Get("snapshotId"); s != "" {
		id, ok := internal[sandbox.SnapshotID](prefixSnapshot, s)
		if !ok {
			return f, "", noSnapshot()
		}
		f.Snapshot = id
	}
	if q.Get("mode") == modeOneShot {
		f.Labels[labelMode] = modeOneShot
	}
	return f, status, nil
}

// selected returns the requested page of sandboxes, and the total number.
func (h *finder) selected(r *http.Request) ([]look, int, error) {
	limit, err := number(r, "limit", 50, 1, 1000)
	if err != nil {
		return nil, 0, err
	}
	offset, err := number(r, "offset", 0, 0, 1<<30)
	if err != nil {
		return nil, 0, err
	}
	desc, err := descending(r, true)
	if err != nil {
		return nil, 0, err
	}
	by := cmp.Or(strings.ToLower(r.URL.Query().Get("sort")), "created")
	order, known := orders[by]
	if !known {
		return nil, 0, sandbox.InvalidField("sort", "must be created, updated, name, status, mode or execution_count")
	}
	all, err := h.matching(r, counting[by])
	if err != nil {
		return nil, 0, err
	}
	slices.SortStableFunc(all, func(a, b look) int {
		if desc {
			return order(&b, &a)
		}
		return order(&a, &b)
	})
	shown := part(all, offset, limit)
	for i := range shown {
		if shown[i], err = h.look(r.Context(), shown[i].Sandbox); err != nil {
			return nil, 0, err
		}
	}
	return shown, len(all), nil
}

// matching returns all sandboxes that a request selects, with their executions if these are
// requested or needed.
func (h *finder) matching(r *http.Request, executions bool) ([]look, error) {
	f, status, err := filter(r)
	if err != nil {
		return nil, err
	}
	interactive := r.URL.Query().Get("mode") == modeInteractive
	var all []look
	err = h.each(r.Context(), f, func(sb sandbox.Sandbox) (err error) {
		if deleted(&sb) && status != statusDeleted {
			return nil
		}
		l := look{Sandbox: sb}
		if executions || counting[status] {
			if l, err = h.look(r.Context(), sb); err != nil {
				return err
			}
		}
		if status != "" && l.status() != status || interactive && mode(&sb) != modeInteractive {
			return nil
		}
		all = append(all, l)
		return nil
	})
	return all, err
}

func (h *sandboxes) list(w http.ResponseWriter, r *http.Request) error {
	part, total, err := h.selected(r)
	if err != nil {
		return err
	}
	runtimes, err := h.runtimes.available(r.Context())
	if err != nil {
		return err
	}
	out := struct {
		Sandboxes []info `json:"sandboxes"`
		Total     int    `json:"total"`
	}{make([]info, len(part)), total}
	for i := range part {
		if out.Sandboxes[i], err = h.info(r.Context(), &part[i], runtimes); err != nil {
			return err
		}
	}
	return answer(w, out)
}
