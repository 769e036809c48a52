package registry_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

type env struct {
	*registry.Registries
	ws   sandbox.WorkspaceID
	user sandbox.UserID
	dir  string

	store *store.Store
	keys  *secret.Keys
	// asked are the requests to registries, answer their answer.
	asked  []string
	answer error
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{dir: t.TempDir()}
	st := storetest.Open(t, filepath.Join(e.dir, "modbox.db"))
	var err error
	if e.ws, e.user, err = st.Workspaces.EnsureDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys, err := secret.Open(filepath.Join(e.dir, "secret.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	e.store, e.keys = st, keys
	e.Registries = registry.New(st.Registries, keys, func(_ context.Context, host string, login registry.Login) error {
		e.asked = append(e.asked, host+" "+login.Username+" "+login.Password)
		return e.answer
	}, registry.FailAfter(0))
	return e
}

func fields(name, server, password string) registry.Fields {
	user := "ann"
	return registry.Fields{Name: &name, Server: &server, Username: &user, Password: &password}
}

func (e *env) add(t *testing.T, name, server, password string) registry.Credential {
	t.Helper()
	r, err := e.Create(t.Context(), e.ws, e.user, fields(name, server, password))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantCode(t *testing.T, what string, err error, want sandbox.Code) {
	t.Helper()
	if got := sandbox.CodeOf(err); got != want {
		t.Errorf("%s: %v, want code %q", what, err, want)
	}
}

func TestLogin(t *testing.T) {
	e := newEnv(t)
	r := e.add(t, "hub", "https://docker.io/v1/", "pw-one")
	who := registry.Puller{Workspace: e.ws}
	login, err := e.Login(t.Context(), who, "index.docker.io")
	if err != nil || login.Username != "ann" || login.Password != "pw-one" || login.Proof == "" {
		t.Errorf("Login = %+v, %v", login, err)
	}
	for _, nobody := range []struct {
		who  registry.Puller
		host string
	}{{who, "ghcr.io"}, {registry.Puller{Workspace: "other"}, "index.docker.io"}} {
		if got, err := e.Login(t.Context(), nobody.who, nobody.host); err != nil || got != (registry.Login{}) {
			t.Errorf("Login(%v) = %+v, %v, want nobody", nobody, got, err)
		}
	}
	named := registry.Puller{Workspace: e.ws, Registry: r.ID}
	_, err = e.Login(t.Context(), named, "ghcr.io")
	wantCode(t, "another host", err, sandbox.Forbidden)
	mine := "registry.example.com"
	_, err = e.Update(t.Context(), e.ws, r.ID, registry.Fields{Server: &mine})
	wantCode(t, "another server without a password", err, sandbox.Invalid)
	password, off := "pw-two", false
	if _, err := e.Update(t.Context(), e.ws, r.ID, registry.Fields{Password: &password}); err != nil {
		t.Fatal(err)
	}
	changed, err := e.Login(t.Context(), named, "index.docker.io")
	if err != nil || changed.Password != "pw-two" || changed.Proof == login.Proof {
		t.Errorf("Login with another password = %+v, %v", changed, err)
	}
	if _, err := e.Update(t.Context(), e.ws, r.ID, registry.Fields{Enabled: &off}); err != nil {
		t.Fatal(err)
	}
	_, err = e.Login(t.Context(), named, "index.docker.io")
	wantCode(t, "disabled", err, sandbox.Forbidden)
	if got, err := e.Login(t.Context(), who, "index.docker.io"); err != nil || got.Proof != "" {
		t.Errorf("a disabled one is used: %+v, %v", got, err)
	}
	if err := e.Delete(t.Context(), e.ws, r.ID); err != nil {
		t.Fatal(err)
	}
	_, err = e.Login(t.Context(), named, "index.docker.io")
	wantCode(t, "deleted", err, sandbox.Forbidden)
	if !strings.Contains(err.Error(), string(r.ID)) {
		t.Errorf("the error does not say which: %v", err)
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	e := newEnv(t)
	e.add(t, "taken", "ghcr.io", "pw")
	email, colon := "nobody", "a:b"
	for field, f := range map[string]registry.Fields{
		"name": fields("", "ghcr.io", "p"), "server": fields("n", "not a host", "p"), "password": fields("n", "ghcr.io", strings.Repeat("x", 513)),
		"email":    {Name: &email, Server: fields("", "ghcr.io", "").Server, Username: &email, Password: &email, Email: &email},
		"username": {Name: &email, Server: fields("", "ghcr.io", "").Server, Username: &colon, Password: &email},
	} {
		_, err := e.Create(t.Context(), e.ws, e.user, f)
		if err, ok := err.(*sandbox.Error); !ok || err.Code != sandbox.Invalid || err.Field != field {
			t.Errorf("Create with a bad %s: %v", field, err)
		}
	}
	for _, server := range []string{"..", "https://../v2", "a..b", "ghcr.io:", "ghcr.io:99999", "a_b", "[::", " "} {
		_, err := e.Create(t.Context(), e.ws, e.user, fields("n", server, "p"))
		if err, ok := err.(*sandbox.Error); !ok || err.Code != sandbox.Invalid || err.Field != "server" {
			t.Errorf("Create with the server %q: %v", server, err)
		}
	}
	_, err := e.Create(t.Context(), e.ws, e.user, fields("taken", "ghcr.io", "p"))
	wantCode(t, "a name twice", err, sandbox.Exists)
	r := e.add(t, "mine", "ghcr.io", "p")
	for what, err := range map[string]error{
		"Get":    func() error { _, err := e.Get(t.Context(), "other", r.ID); return err }(),
		"Update": func() error { _, err := e.Update(t.Context(), "other", r.ID, registry.Fields{}); return err }(),
		"Delete": e.Delete(t.Context(), "other", r.ID),
	} {
		wantCode(t, what+" of another workspace", err, sandbox.NotFound)
	}
}

// TestRotate checks that everything can be read before, during and after, and that no password is
// in any file.
func TestRotate(t *testing.T) {
	e := newEnv(t)
	r := e.add(t, "hub", "docker.io", "plain-password")
	who := registry.Puller{Workspace: e.ws, Registry: r.ID}
	keys := map[string]bool{}
	for range 3 {
		got, err := e.Get(t.Context(), e.ws, r.ID)
		if err != nil || keys[got.Password.KeyID] {
			t.Fatalf("the key %s is used again (%v)", got.Password.KeyID, err)
		}
		keys[got.Password.KeyID] = true
		if n, err := e.keys.Rotate(t.Context(), e.store.Secrets); err != nil || n != 1 {
			t.Fatalf("Rotate = %d, %v", n, err)
		}
		if login, err := e.Login(t.Context(), who, "index.docker.io"); err != nil || login.Password != "plain-password" {
			t.Fatalf("Login after a rotation = %+v, %v", login, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(e.dir, "secret.key"))
	if err != nil || len(strings.Fields(string(text))) != 2 {
		t.Errorf("the file has %d keys, %v; want the last two", len(strings.Fields(string(text))), err)
	}
	files, err := filepath.Glob(filepath.Join(e.dir, "*"))
	if err != nil || !storetest.Postgres() && !slices.Contains(files, filepath.Join(e.dir, "modbox.db-wal")) {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		if data, err := os.ReadFile(name); err != nil || bytes.Contains(data, []byte("plain-password")) {
			t.Errorf("%s has the password (%v)", name, err)
		}
	}
}

// TestVerify checks that the registry is asked with the new login before anything is written.
func TestVerify(t *testing.T) {
	e := newEnv(t)
	f := fields("hub", "docker.io", "pw")
	f.Verify = true
	e.answer = sandbox.Errorf(sandbox.Forbidden, "wrong")
	_, err := e.Create(t.Context(), e.ws, e.user, f)
	if got, ok := err.(*sandbox.Error); !ok || got.Code != sandbox.Invalid || got.Field != "password" || got.Message != "wrong" {
		t.Errorf("Create with a password that is not accepted: %v", err)
	}
	if list, err := e.List(t.Context(), e.ws); len(list) != 0 || err != nil {
		t.Errorf("it was recorded: %v, %v", list, err)
	}
	e.answer = nil
	r, err := e.Create(t.Context(), e.ws, e.user, f)
	if err != nil {
		t.Fatal(err)
	}
	user := "bob"
	if _, err := e.Update(t.Context(), e.ws, r.ID, registry.Fields{Username: &user, Verify: true}); err != nil {
		t.Fatal(err)
	}
	e.answer = sandbox.Errorf(sandbox.Unavailable, "away")
	_, err = e.Update(t.Context(), e.ws, r.ID, registry.Fields{Email: new(string), Verify: true})
	wantCode(t, "Update while the registry is away", err, sandbox.Unavailable)
	_, err = e.Update(t.Context(), "other", r.ID, registry.Fields{Verify: true})
	wantCode(t, "Update of another workspace's", err, sandbox.NotFound)
	want := []string{"index.docker.io ann pw", "index.docker.io ann pw", "index.docker.io bob pw", "index.docker.io bob pw"}
	if !slices.Equal(e.asked, want) {
		t.Errorf("asked %q, want %q", e.asked, want)
	}
	if _, err := e.Update(t.Context(), e.ws, r.ID, registry.Fields{Email: new(string)}); err != nil {
		t.Errorf("Update without asking: %v", err)
	}
}
