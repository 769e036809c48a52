package remote

import (
	"path/filepath"

	"github.com/modbox/modbox/internal/sandbox"
)

// checkPaths returns an error if a request has a path outside of the control plane's state directory: the worker
// reads and writes what the paths name.
func (r *request) checkPaths(stateDir string) error {
	paths := append([]string{r.Dir, r.RootFS}, r.Dirs...)
	if r.Spec != nil {
		paths = append(paths, r.Spec.RootFS)
	}
	for _, p := range paths {
		if p == "" { // none
			continue
		}
		rel, err := filepath.Rel(stateDir, p)
		if err != nil || rel == "." || !filepath.IsLocal(rel) {
			return sandbox.Errorf(sandbox.Invalid, "the path %q is not below the server's state directory %s", p, stateDir)
		}
	}
	return nil
}
