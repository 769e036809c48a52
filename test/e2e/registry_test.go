package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

const registryPassword = "pl4in-passw0rd"

// basicAuth lets ann in.
func basicAuth(w http.ResponseWriter, r *http.Request) bool {
	if user, password, ok := r.BasicAuth(); ok && user == "ann" && password == registryPassword {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	w.WriteHeader(http.StatusUnauthorized)
	return true
}

// tokenAuth lets those in who have a token, which ann gets at /token.
func tokenAuth(host string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			if !basicAuth(w, r) {
				fmt.Fprint(w, `{"token":"let-me-in"}`)
			}
			return true
		}
		if r.Header.Get("Authorization") == "Bearer let-me-in" {
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, host))
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
}

func TestPrivateRegistry(t *testing.T) {
	for _, kind := range []string{"basic", "token"} {
		t.Run(kind, func(t *testing.T) {
			reg := startRegistry(t)
			ref := reg.push(t, "team/private:v1", "one")
			reg.on(basicAuth)
			if kind == "token" {
				reg.on(tokenAuth(reg.host))
			}
			testPrivateRegistry(t, reg, ref)
		})
	}
}

func testPrivateRegistry(t *testing.T, reg *imageRegistry, ref string) {
	s := testserver.Start(t)
	refused := func(when, words string) {
		t.Helper()
		if out, errOut, code := run(t, s, "", "run", ref, "--", "cat", "/srv/version"); code == 0 || !strings.Contains(errOut, words) {
			t.Errorf("run %s = %q, %q, %d; want a refusal with %q", when, out, errOut, code, words)
		}
	}
	works := func(when string) {
		t.Helper()
		if out, errOut, code := run(t, s, "", "run", ref, "--", "cat", "/srv/version"); out != "one" || code != 0 {
			t.Errorf("run %s = %q, %q, %d", when, out, errOut, code)
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
	refused("without credentials", "other credentials")
	must("wrong", "registry", "add", reg.host, "--username", "ann", "--password-stdin")
	refused("with a wrong password", "other credentials")
	must(registryPassword+"\n", "registry", "update", reg.host, "--password-stdin")
	works("with the right password")
	sb := s.MustCreate(client.CreateOptions{Image: ref})
	must("", "secrets", "rotate", "--state-dir", s.StateDir)
	must("", "images", "pull", ref)
	s.Kill()
	s.Launch()
	must("", "secrets", "rotate", "--state-dir", s.StateDir)
	works("after rotations and a restart")
	must("", "registry", "update", reg.host, "--disable")
	refused("with disabled credentials", "other credentials")
	must("", "registry", "update", reg.host, "--enable")
	works("with enabled credentials")
	if out := must("", "registry", "ls"); !strings.Contains(out, reg.host) || !strings.Contains(out, "ann") {
		t.Errorf("registry ls = %q", out)
	}
	must("", "registry", "rm", reg.host)
	refused("after the credentials were removed", "other credentials")
	if v := version(t, s, sb.ID); v != "one" {
		t.Errorf("a sandbox made before has %q", v)
	}
	if out := must("", "events", sb.ID, "--json"); strings.Contains(out, registryPassword) {
		t.Errorf("an event has the password: %s", out)
	}
	noneHas(t, s.StateDir, registryPassword)
}

// noneHas checks that no file below dir, except files of images, has the text.
func noneHas(t *testing.T, dir, text string) {
	t.Helper()
	read := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // the server goes on meanwhile
			return nil
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "layout":
			return fs.SkipDir
		}
		if !d.Type().IsRegular() || strings.HasSuffix(path, ".erofs") {
			return nil
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if bytes.Contains(data, []byte(text)) {
			t.Errorf("%s has it", path)
		}
		read++
		return err
	})
	if err != nil || read < 4 {
		t.Errorf("%d files were read: %v", read, err)
	}
}

// TestServersOwnMachine: nothing that a workspace may name as a registry, and no
// registry that the operator allowed, leads the server to other services of its machine.
func TestServersOwnMachine(t *testing.T) {
	reg := startRegistry(t)
	ref := reg.push(t, "team/app:v1", "one")
	s := testserver.Start(t, "--images-insecure-registries", reg.host)
	var asked atomic.Int32
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	plain, secure := httptest.NewServer(count), httptest.NewTLSServer(count)
	defer plain.Close()
	defer secure.Close()
	refused := func(what, host string, err error) {
		t.Helper()
		for _, words := range []string{host, "images.insecure_registries"} {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s = %v, want a refusal with %q", what, err, words)
			}
		}
	}
	for _, port := range []string{strings.TrimPrefix(plain.URL, "http://127.0.0.1:"), strings.TrimPrefix(secure.URL, "https://127.0.0.1:")} {
		for _, name := range []string{"127.0.0.1", "localhost"} {
			host := name + ":" + port
			_, err := s.Client.Images.Pull(t.Context(), host+"/x", nil)
			refused("pull", host, err)
			_, err = s.Client.Registries.Create(t.Context(), client.RegistryFields{Name: &host, Server: &host, Username: new("ann"), Password: new("pw"), Verify: true})
			refused("verify", host, err)
			if _, errOut, code := run(t, s, "", "run", host+"/x", "--", "true"); code == 0 || !strings.Contains(errOut, "images.insecure_registries") {
				t.Errorf("run = %q, %d", errOut, code)
			}
		}
	}
	if _, err := s.Client.Images.Pull(t.Context(), ref, nil); err != nil {
		t.Errorf("pull from the registry that is allowed: %v", err)
	}
	for _, target := range []*httptest.Server{plain, secure} {
		elsewhere := strings.Replace(target.URL, "127.0.0.1", "localhost", 1)
		reg.on(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
			return true
		})
		_, err := s.Client.Images.Pull(t.Context(), ref, nil)
		// The error names the registry that was asked for: where it leads to is not the caller's to learn.
		refused("pull that is sent on", reg.host, err)
		if strings.Contains(err.Error(), strings.SplitAfter(elsewhere, "://")[1]) {
			t.Errorf("pull that is sent on = %v, which names %s", err, elsewhere)
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the machine's services were asked %d times", asked.Load())
	}
}
