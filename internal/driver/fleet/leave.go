package fleet

import "github.com/modbox/modbox/internal/sandbox"

// Leave keeps new boxes away from a worker that is being ended, until it connects again, and returns its name and its boxes.
func (b *board) Leave(id string) (name string, boxes []sandbox.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.byID(id)
	if m == nil {
		return id, nil
	}
	m.leaving = true
	for box, p := range b.places {
		if p.member == m && p.box {
			boxes = append(boxes, box)
		}
	}
	return m.record.Name, boxes
}
