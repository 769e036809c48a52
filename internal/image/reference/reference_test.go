package reference_test

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestReferences: a reference that no registry may have is refused before any is asked for it.
func TestReferences(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for _, ref := range []string{
		"registry.example.com/team/app", "registry.example.com:5000/a/b_c/d__e/f-g--h/i.j:V1.2-3_4", "localhost/app", "10.0.0.1:5000/app",
		"[::1]:5000/app", "xn--bcher-kva.example/app", "registry.example.com/app" + digest,
	} {
		if _, err := reference.Parse(ref, ""); err != nil {
			t.Errorf("Parse(%q) = %v", ref, err)
		}
		if strings.Contains(ref, "@") {
			continue
		}
		if _, _, err := reference.BuiltName(ref); err != nil {
			t.Errorf("BuiltName(%q) = %v", ref, err)
		}
	}
	for _, ref := range []string{
		"../../x", "./x", "../x", "..", "a/../x", "a//b", "/x", "x/", "-x", ".x", "x-", "a..b", "a___b", "localhost/../x", "127.0.0.1:5000/../../v2/x",
		"registry.example.com/x:.tag", "registry.example.com/x:-tag", "registry..example.com/x", "-registry.example.com/x", "registry.example.com:port/x",
		"../x" + digest, "registry.example.com/x\x00", "registry.example.com/x\n", "registry.example.com/X", "registry.example.com/é",
	} {
		if got, err := reference.Parse(ref, ""); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("Parse(%q) = %+v, %v, want %s", ref, got, err, sandbox.Invalid)
		}
		if strings.Contains(ref, "@") {
			continue
		}
		if name, tag, err := reference.BuiltName(ref); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("BuiltName(%q) = %q, %q, %v, want %s", ref, name, tag, err, sandbox.Invalid)
		}
	}
}

func TestDefaultRegistry(t *testing.T) {
	for ref, want := range map[string]struct {
		names  string
		remote string // by default on docker.io
	}{
		"app":                  {"app:latest modbox/app:latest docker.io/library/app:latest", "index.docker.io/library/app:latest"},
		"team/app:v1":          {"team/app:v1 docker.io/team/app:v1", "index.docker.io/team/app:v1"},
		"modbox/base":          {"modbox/base:latest", ""},
		"quay.io/team/app":     {"quay.io/team/app:latest", "quay.io/team/app:latest"},
		"docker.io/alpine:3.1": {"docker.io/library/alpine:3.1", "index.docker.io/library/alpine:3.1"},
	} {
		got, err := reference.Parse(ref, "docker.io")
		if err != nil {
			t.Fatalf("Parse(%q) = %v", ref, err)
		}
		remote := ""
		if got.Remote != nil {
			remote = got.Remote.Name()
		}
		if names := strings.Join(got.Names, " "); names != want.names || remote != want.remote {
			t.Errorf("Parse(%q) = %s at %q, want %s at %q", ref, names, remote, want.names, want.remote)
		}
	}
	if got, err := reference.Parse("app", ""); err != nil || got.Remote != nil {
		t.Errorf("without a default registry Parse(app) = %+v, %v, want no registry", got, err)
	}
}

func TestIsHost(t *testing.T) {
	for host, want := range map[string]bool{
		"ghcr.io": true, "registry.example.com:5000": true, "localhost": true, "10.0.0.1:5000": true, "[::1]:5000": true, "[fd00::1]": true, "a--b.example": true, "xn--bcher-kva.example": true,
		"": false, "..": false, ".": false, "...": false, "a..b": false, ".a": false, "a.": false, "-a": false, "a-": false, "a b": false, "a/b": false, "a@b": false,
		"a:": false, "a:x": false, "a:0": false, "a:65536": false, "a:99999999999999999999": false, "::1": false, "[]": false, "[::1": false, "[1.2]": false, "[:::::]": false, "a_b": false, "bücher.example": false, "a\n": false,
	} {
		if got := reference.IsHost(host); got != want {
			t.Errorf("IsHost(%q) = %v, want %v", host, got, want)
		}
	}
}
