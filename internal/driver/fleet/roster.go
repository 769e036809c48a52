package fleet

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/modbox/modbox/internal/worker"
)

// roster has the workers. The caller of its methods holds the mu of the board, unless the board is not in use.
type roster struct {
	members []*member          // the first that joined first, including removed workers
	ids     map[string]*member // the members by their ids
	taken   map[string]bool    // names and ids of workers of other servers
}

// enlist adds a worker.
func (r *roster) enlist(m *member) {
	r.members = append(r.members, m)
	r.ids[m.record.ID] = m
}

// strike forgets a worker. A call that lists the members meanwhile keeps its list.
func (r *roster) strike(m *member) {
	if r.ids[m.record.ID] == m {
		delete(r.ids, m.record.ID)
		r.members = slices.DeleteFunc(slices.Clone(r.members), func(other *member) bool { return other == m })
	}
}

// byID returns a worker; nil if there is none.
func (r *roster) byID(id string) *member { return r.ids[id] }

// byRef returns a worker that was not removed by its name or id; nil if there is none.
func (r *roster) byRef(ref string) *member {
	for _, m := range r.members {
		if (m.record.Name == ref || m.record.ID == ref) && m.record.Status != worker.Gone {
			return m
		}
	}
	return nil
}

// hasOthers reports whether there is another worker.
func (r *roster) hasOthers(m *member) bool {
	return slices.ContainsFunc(r.members, func(other *member) bool { return other != m && other.record.Status != worker.Gone })
}

// validName are the names of workers.
var validName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,61}[a-zA-Z0-9])?$`)

// freeName returns a name that no worker has, like the name that a worker gave itself.
func (r *roster) freeName(wanted, id string) string {
	if !validName.MatchString(wanted) {
		return id
	}
	taken := func(name string) bool {
		return r.taken[name] || slices.ContainsFunc(r.members, func(m *member) bool { return (m.record.Name == name || m.record.ID == name) && m.record.ID != id })
	}
	name := wanted
	for n := 2; taken(name); n++ {
		name = fmt.Sprintf("%s-%d", wanted, n)
	}
	return name
}
