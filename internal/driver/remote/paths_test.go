package remote

import (
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestPathsOfRequests(t *testing.T) {
	for path, ok := range map[string]bool{
		"": true, "/state/images/x": true, "/state/../etc": false, "/etc": false, "/state": false, "/stateful/x": false, "images/x": false,
	} {
		for name, r := range map[string]*request{
			"Dir": {Dir: path}, "RootFS": {RootFS: path}, "Dirs": {Dirs: []string{"/state/a", path}}, "Spec": {Spec: &driver.Spec{RootFS: path}},
		} {
			err := r.checkPaths("/state")
			if ok && err != nil || !ok && sandbox.CodeOf(err) != sandbox.Invalid {
				t.Errorf("%s %q: %v", name, path, err)
			}
		}
	}
}
