package fleet

import (
	"slices"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// division keeps boxes on workers of their parts while a single server works on all parts that are to have servers. The caller of its methods holds the mu of
// the board.
type division struct {
	parts    []sandbox.Ranges // nil: there is nothing to divide
	supplies bool             // there is a supplier
	workers  *roster
}

// apart reports whether a box does not belong on a worker of a range: on a worker of another part. Boxes may be anywhere until each part has a worker.
func (d division) apart(home int, id sandbox.ID) bool {
	if d.parts == nil || !d.each() {
		return false
	}
	return slices.ContainsFunc(d.parts, func(part sandbox.Ranges) bool { return part.Has(id) && !part.HasRange(home) })
}

// each reports whether boxes of each part can have a worker.
func (d division) each() bool {
	return d.supplies || !slices.ContainsFunc(d.parts, func(part sandbox.Ranges) bool {
		return !slices.ContainsFunc(d.workers.members, func(m *member) bool {
			return part.HasRange(m.record.Home) && m.connected && m.record.Status == worker.Ready && !worker.Supplied(m.record.ID)
		})
	})
}

// Apart returns the boxes that do not belong on their workers; see [Config].Own.
func (f *foreign) Apart() (ids []sandbox.ID) {
	f.to.mu.Lock()
	defer f.to.mu.Unlock()
	for id, p := range f.to.places {
		if p.box && !p.member.gone() && f.to.apart(p.member.record.Home, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
