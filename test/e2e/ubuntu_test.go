package e2e_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestUbuntuImage: the built-in image that is not built but pulled, in every
// workspace, and what is said when it cannot be had.
func TestUbuntuImage(t *testing.T) {
	reg := startRegistry(t)
	s := testserver.Start(t, "--images-default-registry", reg.host)
	entries, err := s.SandboxImages.List(false).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ubuntu *client.SandboxImage
	for i := range entries {
		if entries[i].Image == "modbox/ubuntu" {
			ubuntu = &entries[i]
		}
	}
	if ubuntu == nil || !ubuntu.Enabled || ubuntu.IsDefault {
		t.Fatalf("the catalogue has %+v, want modbox/ubuntu, enabled and not the default", ubuntu)
	}
	if _, errOut, code := run(t, s, "", "run", "modbox/ubuntu", "--", "cat", "version"); code != 125 || !strings.Contains(errOut, "library/ubuntu") {
		t.Errorf("run when the registry lacks it = %q, %d", errOut, code)
	}
	reg.push(t, "library/ubuntu:24.04", "noble")
	for _, args := range [][]string{{"modbox/ubuntu"}, {"ubuntu"}, {"--catalogue", ubuntu.ID}} {
		args = append(append([]string{"run"}, args...), "--", "cat", "version")
		if out, errOut, code := run(t, s, "", args...); out != "noble" || code != 0 {
			t.Errorf("modbox %v = %q, %q, %d", args, out, errOut, code)
		}
	}
	// The other image that is pulled: a runtime whose tag is a version.
	runtimes, err := s.Images.Runtimes().Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const source = "astral/uv:python3.14-trixie-slim"
	i := slices.IndexFunc(runtimes, func(r client.Runtime) bool { return r.Name == "python:3.14" })
	if i < 0 || runtimes[i].Source != reg.host+"/"+source || runtimes[i].Missing != "" || runtimes[i].Built {
		t.Errorf("the runtimes are %+v, want python:3.14 from %s/%s, not built", runtimes, reg.host, source)
	}
	if _, errOut, code := run(t, s, "", "run", "python:3.14", "--", "cat", "version"); code != 125 || !strings.Contains(errOut, "astral/uv") {
		t.Errorf("run when the registry lacks it = %q, %d", errOut, code)
	}
	reg.push(t, source, "3.14")
	if out, errOut, code := run(t, s, "", "run", "python:3.14", "--", "cat", "version"); out != "3.14" || code != 0 {
		t.Errorf("run python:3.14 = %q, %q, %d", out, errOut, code)
	}
	if _, errOut, code := run(t, s, "", "catalogue", "rm", ubuntu.ID); code == 0 || !strings.Contains(errOut, "cannot be deleted") {
		t.Errorf("deleting it = %q, %d", errOut, code)
	}
}

func TestUbuntuImageWithoutRegistry(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for registry, want := range map[string]string{closed.Addr().String(): "cannot be reached", "": "images.default_registry"} {
		s := testserver.Start(t, "--images-default-registry", registry)
		runtimes, err := s.Images.Runtimes().Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runtimes {
			if missing := r.Source != "" && registry == ""; missing != strings.Contains(r.Missing, "images.default_registry") {
				t.Errorf("with the default registry %q, the runtime %s lacks %q", registry, r.Name, r.Missing)
			}
		}
		if _, errOut, code := run(t, s, "", "run", "modbox/ubuntu", "--", "true"); code != 125 || !strings.Contains(errOut, want) {
			t.Errorf("run with the default registry %q = %q, %d, want it to say %q", registry, errOut, code, want)
		}
		// Without a registry a create fails at once; else it does not wait for the pull.
		out, errOut, code := run(t, s, "", "create", "python:3.14")
		if refused := code != 0 && out == "" && strings.Contains(errOut, want); refused != (registry == "") {
			t.Errorf("create with the default registry %q = %q, %q, %d", registry, out, errOut, code)
		}
	}
}
