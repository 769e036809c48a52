package remote

import (
	"path/filepath"

	"github.com/modbox/modbox/internal/sandbox"
)

// checkPaths returns an error if a request has a path outside of the control plane's state directory: the worker
// reads and writes what the paths name.
func (r *request) checkPaths(stateDir string) error {
	paths := map[string][]string{"dir": {r.Dir}, "dirs": r.Dirs, "rootfs": {r.RootFS}}
	if r.Spec != nil {
		paths["rootfs"] = append(paths["rootfs"], r.Spec.RootFS)
	}
	for field, names := range paths {
		for _, p := range names {
			if p == "" { // none
				continue
			}
			rel, err := filepath.Rel(stateDir, p)
			if err != nil || rel == "." || !filepath.IsLocal(rel) {
				return sandbox.InvalidField(field, "the path %q is not below the server's state directory %s", p, stateDir)
			}
		}
	}
	return nil
}
