package fleet

import "github.com/modbox/modbox/internal/sandbox"

// Leave keeps new boxes away from a worker that is being ended until done is called, and after that, if it is gone, until it connects again.
func (b *board) Leave(id string) (done func(gone bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.byID(id)
	if m == nil {
		return func(bool) {}
	}
	m.leaves++
	return func(gone bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		m.leaves--
		if gone {
			m.left = m.link
		}
	}
}

// leaving reports whether the worker is being ended.
//
// Preconditions: the mu of the board is held.
func (m *member) leaving() bool { return m.leaves > 0 || m.left > 0 && m.left == m.link }

// BoxesOf returns the name of a worker and its boxes.
func (b *board) BoxesOf(id string) (name string, boxes []sandbox.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.byID(id)
	if m == nil {
		return id, nil
	}
	for box, p := range b.places {
		if p.member == m && p.box {
			boxes = append(boxes, box)
		}
	}
	return m.record.Name, boxes
}
