package image_test

import (
	"testing"

	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestReferences: a reference that no registry may have is refused before any is asked for it.
func TestReferences(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	for _, ref := range []string{"../../x", "127.0.0.1:5000/../../v2/x", "registry.example.com/x:.tag", "registry..example.com/x", "registry.example.com/X"} {
		_, err := s.Lookup(t.Context(), ref)
		wantCode(t, "Lookup of "+ref, err, sandbox.Invalid)
		err = s.Push(t.Context(), registry.Puller{}, "app", ref, nil)
		wantCode(t, "Push to "+ref, err, sandbox.Invalid)
	}
}
