package image_test

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestReferences: what no registry may have is refused before anything is asked for it.
func TestReferences(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	digest := "@sha256:" + strings.Repeat("0", 64)
	for _, ref := range []string{
		"registry.example.com/team/app", "registry.example.com:5000/a/b_c/d__e/f-g--h/i.j:V1.2-3_4", "localhost/app", "10.0.0.1:5000/app",
		"[::1]:5000/app", "xn--bcher-kva.example/app", "registry.example.com/app" + digest,
	} {
		if _, err := s.Lookup(t.Context(), ref); err != nil {
			t.Errorf("Lookup(%q) = %v", ref, err)
		}
		if strings.Contains(ref, "@") {
			continue
		}
		if _, _, err := image.BuiltName(ref); err != nil {
			t.Errorf("BuiltName(%q) = %v", ref, err)
		}
	}
	for _, ref := range []string{
		"../../x", "./x", "../x", "..", "a/../x", "a//b", "/x", "x/", "-x", ".x", "x-", "a..b", "a___b", "localhost/../x", "127.0.0.1:5000/../../v2/x",
		"registry.example.com/x:.tag", "registry.example.com/x:-tag", "registry..example.com/x", "-registry.example.com/x", "registry.example.com:port/x",
		"../x" + digest, "registry.example.com/x\x00", "registry.example.com/x\n", "registry.example.com/X", "registry.example.com/é",
	} {
		_, err := s.Lookup(t.Context(), ref)
		wantCode(t, "Lookup of "+ref, err, sandbox.Invalid)
		if strings.Contains(ref, "@") {
			continue
		}
		_, _, err = image.BuiltName(ref)
		wantCode(t, "BuiltName of "+ref, err, sandbox.Invalid)
		err = s.Push(t.Context(), sandbox.Puller{}, "app", ref, nil)
		wantCode(t, "Push to "+ref, err, sandbox.Invalid)
	}
}
