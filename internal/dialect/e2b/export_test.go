package e2b

// Patterns returns the patterns of the routes of the control plane that need a key.
func Patterns() []string {
	d := New(Deps{})
	var all []string
	for _, routes := range []map[string]route{d.sandboxes.routes(), d.states.routes(), d.snapshots.routes(), d.templates.routes(), d.builds.routes()} {
		for pattern := range routes {
			all = append(all, pattern)
		}
	}
	return all
}
