package e2b

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// A list is read completely, because no index has metadata: at most 10,000 sandboxes.
	listPages, listPage = 10, 1000
	// limitMax is the most sandboxes of one answer, and the default.
	limitMax = 100

	// listOrder names the order in a token, see [page.Cursor].
	listOrder = "created"

	nextHeader  = "X-Next-Token"
	totalHeader = "X-Total-Running"
)

// selection is which sandboxes a list has.
type selection struct {
	states    []string
	metadata  map[string]string
	template  string
	after     time.Time // only sandboxes that started later
	ascending bool
	limit     int
	next      place // of the last sandbox of the page before; zero for the first page
}

// selectionOf reads the query of a list.
func selectionOf(r *http.Request) (sel selection, err error) {
	q := r.URL.Query()
	if sel.limit, err = number(r, "limit", limitMax, 1, limitMax); err != nil {
		return sel, err
	}
	for _, s := range strings.Split(strings.Join(q["state"], ","), ",") {
		switch s {
		case "":
		case stateRunning, statePaused:
			sel.states = append(sel.states, s)
		default:
			return sel, sandbox.InvalidField("state", "must be %s or %s", stateRunning, statePaused)
		}
	}
	if sel.metadata, err = pairs(q.Get("metadata")); err != nil {
		return sel, err
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		sel.ascending = true
	default:
		return sel, sandbox.InvalidField("order", "must be asc or desc")
	}
	if s := q.Get("startedAfter"); s != "" {
		if sel.after, err = time.Parse(time.RFC3339, s); err != nil {
			return sel, sandbox.InvalidField("startedAfter", "must be a time such as 2026-01-02T15:04:05Z")
		}
	}
	if _, err := page.Parse(q.Get("nextToken"), listOrder, &sel.next.created, &sel.next.id); err != nil {
		return sel, sandbox.InvalidField("nextToken", "must be the token of an answer")
	}
	sel.template = q.Get("template")
	return sel, nil
}

// pairs reads metadata in a query, whose keys and values are encoded once more than the query.
func pairs(text string) (map[string]string, error) {
	invalid := sandbox.InvalidField("metadata", "must be encoded like a query: key=value&…")
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, invalid
	}
	out := make(map[string]string, len(values))
	for k, v := range values {
		key, keyErr := url.PathUnescape(k)
		value, valueErr := url.PathUnescape(v[0])
		if keyErr != nil || valueErr != nil {
			return nil, invalid
		}
		out[key] = value
	}
	return out, nil
}

// has reports whether the selection has a sandbox, on any page.
func (sel *selection) has(sb *sandbox.Sandbox) bool {
	if len(sel.states) > 0 && !slices.Contains(sel.states, stateOf(sb)) {
		return false
	}
	for k, v := range sel.metadata {
		if got, ok := sb.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return (sel.template == "" || untagged(sel.template) == untagged(TemplateOf(sb))) && (sel.after.IsZero() || sb.StartedAt.After(sel.after))
}

// untagged returns the name of a template without the tag that every template has.
func untagged(template string) string { return strings.TrimSuffix(template, ":"+defaultTag) }

// place is the place of a sandbox in a list. A sandbox from the pool can have an older id than a sandbox created before it.
type place struct {
	created int64 // in nanoseconds since 1970
	id      sandbox.ID
}

func placeOf(sb *sandbox.Sandbox) place { return place{sb.CreatedAt.UnixNano(), sb.ID} }

// token returns the place as a client sees it.
func (p place) token() string { return page.Cursor(listOrder, p.created, p.id) }

// compare orders sandboxes as the selection does, by the time they were created.
func (sel *selection) compare(a, b place) int {
	if !sel.ascending {
		a, b = b, a
	}
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.id, b.id))
}

func (s *sandboxes) list(w http.ResponseWriter, r *http.Request) error {
	sel, err := selectionOf(r)
	if err != nil {
		return err
	}
	var all []sandbox.Sandbox
	running := 0
	f := lifecycle.Filter{Limit: listPage, States: []sandbox.State{sandbox.Running, sandbox.Pausing, sandbox.Paused, sandbox.Resuming}}
	for range listPages {
		p, err := s.svc.List(r.Context(), caller(r.Context()), f)
		if err != nil {
			return err
		}
		for i := range p.Items {
			sb := &p.Items[i]
			if stateOf(sb) == stateRunning {
				running++
			}
			if sel.has(sb) && (sel.next == place{} || sel.compare(placeOf(sb), sel.next) > 0) {
				all = append(all, *sb)
			}
		}
		if f.Cursor = p.Next; f.Cursor == "" {
			break
		}
	}
	slices.SortFunc(all, func(a, b sandbox.Sandbox) int { return sel.compare(placeOf(&a), placeOf(&b)) })
	out := make([]listed, min(len(all), sel.limit))
	for i := range out {
		out[i] = listedOf(&all[i])
	}
	w.Header().Set(totalHeader, strconv.Itoa(running))
	if len(all) > sel.limit {
		w.Header().Set(nextHeader, placeOf(&all[sel.limit-1]).token())
	}
	return answer(w, http.StatusOK, out)
}
