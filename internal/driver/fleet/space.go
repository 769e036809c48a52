package fleet

import (
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

var _ driver.Yielder = (*Driver)(nil)

// suppliedSpace decides about the space that boxes on supplied workers take.
type suppliedSpace struct {
	to   *board
	from Supplier // nil: there is none
}

// Crowded implements [driver.Yielder].
func (s suppliedSpace) Crowded() <-chan struct{} {
	if s.from == nil {
		return nil
	}
	return s.from.Crowded()
}

// GiveWay implements [driver.Yielder].
func (s suppliedSpace) GiveWay(candidates []sandbox.ID) sandbox.ID {
	if s.from == nil {
		return ""
	}
	var workers []string
	boxes := map[string]sandbox.ID{}
	s.to.mu.Lock()
	for _, id := range candidates {
		if p := s.to.places[id]; p != nil && p.box && p.holds == 0 && p.member.placed == 1 && worker.Supplied(p.member.record.ID) {
			workers = append(workers, p.member.record.ID)
			boxes[p.member.record.ID] = id
		}
	}
	s.to.mu.Unlock()
	return boxes[s.from.GiveWay(workers)]
}

// Settle tells the supplier the workspaces of the boxes, and removes the supplied workers without a box, from now on. The server calls it when it
// has recovered all boxes: before, a box that could not be recovered may be recovered later.
func (s suppliedSpace) Settle(owners map[sandbox.ID]sandbox.WorkspaceID) {
	claimed := map[string]sandbox.WorkspaceID{}
	s.to.mu.Lock()
	for id, p := range s.to.places {
		if m := p.member; worker.Supplied(m.record.ID) && owners[id] != "" {
			if w := claimed[m.record.ID]; w != "" && w != owners[id] { // workspaces never share a worker: if records say otherwise, it gets no other box
				m.boxesMax = 1
			}
			claimed[m.record.ID], m.class.workspace = owners[id], owners[id]
		}
	}
	s.to.settled = true
	var unused []*member
	for _, m := range s.to.members {
		if m.placed == 0 {
			unused = append(unused, m)
		}
	}
	for _, m := range unused {
		s.to.vacateUnused(m)
	}
	s.to.mu.Unlock()
	if s.from == nil {
		return
	}
	for id, w := range claimed {
		s.from.Claim(id, w)
	}
}
