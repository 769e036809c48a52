package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestCatalogueOfPrivateImages makes sandboxes of an entry that names one of two
// credentials for the same registry.
func TestCatalogueOfPrivateImages(t *testing.T) {
	for _, kind := range []string{"basic", "token"} {
		t.Run(kind, func(t *testing.T) {
			reg := startRegistry(t)
			ref := reg.push(t, "team/private:v1", "one")
			reg.on(basicAuth)
			if kind == "token" {
				reg.on(tokenAuth(reg.host))
			}
			testCatalogueOfPrivateImages(t, reg, ref)
		})
	}
}

func testCatalogueOfPrivateImages(t *testing.T, reg *imageRegistry, ref string) {
	s := testserver.Start(t, "--images-recheck-interval", "1ns")
	fails := func(words, stdin string, args ...string) {
		t.Helper()
		if out, errOut, code := run(t, s, stdin, args...); code == 0 || !strings.Contains(errOut, words) {
			t.Errorf("modbox %v = %q, %q, %d; want a refusal with %q", args, out, errOut, code, words)
		}
	}
	must := func(stdin string, args ...string) string {
		t.Helper()
		out, errOut, code := run(t, s, stdin, args...)
		if code != 0 {
			t.Fatalf("modbox %v = %q, %d", args, errOut, code)
		}
		return out
	}
	works := func(when string) {
		t.Helper()
		if out, errOut, code := run(t, s, "", "run", "--catalogue", "agent", "--", "cat", "/srv/version"); out != "one" || code != 0 {
			t.Errorf("run %s = %q, %q, %d", when, out, errOut, code)
		}
	}
	refused := func(words string) {
		t.Helper()
		fails(words, "", "run", "--catalogue", "agent", "--", "cat", "/srv/version")
	}
	// A plain reference uses the older registry.
	must("wrong", "registry", "add", reg.host, "--name", "older", "--username", "ann", "--password-stdin")
	fails("does not accept", "wrong", "registry", "add", reg.host, "--name", "ours", "--username", "ann", "--password-stdin", "--verify")
	must(registryPassword, "registry", "add", reg.host, "--name", "ours", "--username", "ann", "--password-stdin", "--verify")
	must("", "catalogue", "add", "agent", ref, "--registry", "ours", "--memory", "300Mi")
	fails("other credentials", "", "run", ref, "--", "cat", "/srv/version")
	works("with the credential that it names")
	must("", "catalogue", "update", "agent", "--default")
	sb := s.MustCreate(client.CreateOptions{})
	if sb.Resources.Memory != "300Mi" || sb.ImageID == "" || version(t, s, sb.ID) != "one" {
		t.Errorf("made by default: %q, %q, %q", sb.Resources.Memory, sb.ImageID, version(t, s, sb.ID))
	}
	fails("limit of the image", "", "create", "--catalogue", "agent", "--memory", "301Mi")

	must("", "secrets", "rotate", "--state-dir", s.StateDir)
	works("after a rotation")
	must("wrong", "registry", "update", "ours", "--password-stdin")
	refused("other credentials")
	must(registryPassword, "registry", "update", "ours", "--password-stdin")
	works("with the right password again")
	must("", "registry", "update", "ours", "--disable")
	refused(`"ours"`)
	must("", "registry", "rm", "ours")
	refused("was deleted")
	if out := must("", "catalogue", "ls"); !strings.Contains(out, "deleted") || !strings.Contains(out, "agent (default)") {
		t.Errorf("catalogue ls = %q", out)
	}
	must("", "catalogue", "update", "agent", "--disable")
	fails("disabled", "", "create")

	if _, err := s.Client.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	must("", "catalogue", "rm", "agent")
	fails("no image", "", "create", "--catalogue", "agent")
	if v := version(t, s, sb.ID); v != "one" {
		t.Errorf("a paused sandbox of a removed image has %q", v)
	}
	if out := must("", "events", sb.ID, "--json"); strings.Contains(out, registryPassword) {
		t.Errorf("an event has the password: %s", out)
	}
	noneHas(t, s.StateDir, registryPassword)
}

// TestPullIsTold: the phases of a pull are events of the sandbox that waits for it.
func TestPullIsTold(t *testing.T) {
	reg := startRegistry(t)
	ref := reg.push(t, "team/app:v1", "one")
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: ref})
	events, err := s.Client.Sandboxes.Events(sb.ID, client.EventsOptions{}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var phases []string
	for _, e := range events {
		if e.Type == "image_building" {
			phases = append(phases, e.Data["phase"])
		}
	}
	if !slices.Contains(phases, "pulling") || !slices.Contains(phases, "writing") {
		t.Errorf("phases = %q", phases)
	}
}

// TestReadinessPortOfTheCatalogue: the sandbox runs when its server answers, not before.
func TestReadinessPortOfTheCatalogue(t *testing.T) {
	reg := startRegistry(t)
	ref := reg.pushConfig(t, "team/server:v1", "one", v1.Config{
		Env: []string{"PATH=/bin"}, WorkingDir: "/srv",
		Cmd: []string{"sh", "-c", "busybox httpd -p 3000 -h /srv; sleep 2; echo up >/srv/index.html; sleep 100000"},
	})
	s := testserver.Start(t)
	name, port := "server", int64(3000)
	img, err := s.Client.SandboxImages.Create(t.Context(), client.SandboxImageFields{Name: &name, Image: &ref, ReadinessPort: &port})
	if err != nil {
		t.Fatal(err)
	}
	sb := s.MustCreate(client.CreateOptions{ImageID: img.ID})
	res, err := s.Client.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"cat", "/srv/index.html"}})
	if err != nil || string(res.Stdout) != "up\n" || sb.ReadinessPort != 3000 {
		t.Errorf("a sandbox that counts as running has %+v, %v, port %d", res, err, sb.ReadinessPort)
	}
	resp, err := http.Get(sb.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("its URL answers %s, want what is on its readiness port", resp.Status)
	}
}

// TestCatalogueOfBuiltImages: an entry may name what its workspace has built, and to
// others it is as though there were no such image.
func TestCatalogueOfBuiltImages(t *testing.T) {
	s := testserver.Start(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM modbox/base\nRUN echo built >/made\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must := func(args ...string) string {
		t.Helper()
		out, errOut, code := run(t, s, "", args...)
		if code != 0 {
			t.Fatalf("modbox %v = %q, %d", args, errOut, code)
		}
		return out
	}
	must("build", "-t", "mine:v1", dir)
	must("catalogue", "add", "agent", "mine:v1", "--memory", "300Mi")
	if out := must("run", "--catalogue", "agent", "--", "cat", "/made"); out != "built\n" {
		t.Errorf("a sandbox of the entry has %q", out)
	}
	others := strings.TrimSpace(must("workspace", "create", "others"))
	for _, ref := range []string{"mine:v1", "none:v1"} {
		_, errOut, code := run(t, s, "", "--workspace", others, "catalogue", "add", "agent", ref)
		if code == 0 || !strings.Contains(errOut, fmt.Sprintf("there is no image %q", ref)) {
			t.Errorf("an entry of others for %s = %q, %d", ref, errOut, code)
		}
	}
}
