package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/cli/base"
)

func TestLogin(t *testing.T) {
	s := apitest.New(t)
	home := t.TempDir()
	admin := []string{"MODBOX_URL=" + s.URL, "MODBOX_API_TOKEN=" + s.Token, "HOME=" + home}
	ada := []string{"MODBOX_URL=" + s.URL, "HOME=" + home}
	try := func(env []string, stdin string, args ...string) result {
		var out, errOut bytes.Buffer
		a := &base.Env{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut, Environ: env}
		code := execute(t.Context(), a, args)
		return result{code, out.String(), errOut.String()}
	}
	run := func(env []string, stdin string, args ...string) string {
		t.Helper()
		r := try(env, stdin, args...)
		if r.code != 0 {
			t.Fatalf("modbox %v = %+v", args, r)
		}
		return strings.TrimSpace(r.stdout)
	}
	code := run(admin, "", "user", "create", "ada", "--email", "ada@example.com")
	run(ada, "correct horse\n", "login", "--code", code)
	file := filepath.Join(home, ".config", "modbox", "credentials.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("credentials: %v, %v", info, err)
	}
	team := run(ada, "", "workspace", "create", "Team", "--slug", "team")
	if list := run(ada, "", "workspace", "ls"); !strings.Contains(list, team) || !strings.Contains(list, "owner") {
		t.Errorf("workspace ls: %s", list)
	}
	run(ada, "", "workspace", "add", team, "owner", "viewer")
	invited := run(ada, "", "workspace", "add", team, "new@example.com", "member")
	if !strings.HasPrefix(invited, "mbi_") {
		t.Errorf("invitation: %q", invited)
	}
	if list := run(ada, "", "workspace", "invitations", "team"); !strings.Contains(list, "new@example.com") {
		t.Errorf("invitations: %s", list)
	}
	run(ada, "", "workspace", "rm-invitation", "team", "New@example.com")
	if list := run(ada, "", "workspace", "invitations", "team"); strings.Contains(list, "new@example.com") {
		t.Errorf("invitations after the withdrawal: %s", list)
	}
	if r := try(ada, "", "login", "--code", invited, "new"); r.code == 0 {
		t.Errorf("login with the code of a withdrawn invitation: %+v", r)
	}
	if r := try(ada, "", "workspace", "rm-invitation", "team", "new@example.com"); r.code != base.ExitFailure || !strings.Contains(r.stderr, "not_found") {
		t.Errorf("withdrawing it again: %+v", r)
	}
	run(ada, "", "workspace", "update", "team", "--name", "Crew")
	if list := run(ada, "", "workspace", "ls"); !strings.Contains(list, "Crew") || !strings.Contains(list, "team") {
		t.Errorf("workspace ls after its name was changed: %s", list)
	}
	run(ada, "", "workspace", "update", "Crew", "--name", "Team")
	run(ada, "", "workspace", "role", "team", "owner", "admin") // by slug
	if list := run(admin, "", "workspace", "members", team); !strings.Contains(list, "admin") {
		t.Errorf("members: %s", list)
	}
	if list := run(ada, "", "--workspace", "team", "whoami"); !strings.Contains(list, team) {
		t.Errorf("whoami in the workspace team: %s", list)
	}
	other := run(ada, "", "workspace", "create", "Team")
	if r := try(ada, "", "workspace", "members", "team"); r.code != 0 {
		t.Errorf("members of a slug that is a name, too: %+v", r)
	}
	if r := try(ada, "", "workspace", "members", "TEAM"); r.code == 0 || !strings.Contains(r.stderr, "slug") {
		t.Errorf("members of a name that two have: %+v", r)
	}
	run(ada, "", "workspace", "rm", strings.TrimSpace(other))
	run(ada, "", "workspace", "rm-member", "TEAM", "owner") // by name
	if r := try(admin, "", "workspace", "members", team); r.code != base.ExitFailure || !strings.Contains(r.stderr, "not_found") {
		t.Errorf("members for somebody who was removed: %+v", r)
	}
	run(ada, "correct horse\nbattery staple\n", "user", "password")
	run(ada, "", "workspace", "rm", team)
	kept, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(kept), "mbr_") {
		t.Fatalf("credentials: %s, %v", kept, err)
	}
	run(ada, "", "logout")
	if after, err := os.ReadFile(file); err != nil || strings.Contains(string(after), "mbr_") {
		t.Errorf("credentials after logout: %s, %v", after, err)
	}
	run(ada, "ada@example.com\nbattery staple\n", "login")
	if list := run(admin, "", "user", "ls"); !strings.Contains(list, "ada@example.com") {
		t.Errorf("user ls: %s", list)
	}
	run(admin, "", "user", "disable", "ada")
	if r := try(ada, "", "workspace", "ls"); r.code != base.ExitFailure {
		t.Errorf("a disabled user: %+v", r)
	}
	run(admin, "", "user", "rm", "ada")
}

// A login is one session: it ends whole at the logout, with the others when the user says so, and at a new
// password that was set elsewhere. API tokens go on.
func TestLogoutEndsTheLogin(t *testing.T) {
	s := apitest.New(t)
	admin := newPerson(t, s, "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+s.Token)
	code := strings.TrimSpace(admin.run("user", "create", "ada"))
	desk, laptop := newPerson(t, s, "MODBOX_URL="+s.URL), newPerson(t, s, "MODBOX_URL="+s.URL)
	login := func(p *person, stdin string, args ...string) {
		t.Helper()
		if r := p.try(t.Context(), strings.NewReader(stdin), append([]string{"login"}, args...)...); r.code != 0 {
			t.Fatalf("modbox login %v = %+v", args, r)
		}
	}
	out := func(p *person, kept []byte, after string) {
		t.Helper()
		if kept != nil { // somebody with a copy of the login
			if err := os.WriteFile(p.file(), kept, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if r := p.try(t.Context(), strings.NewReader(""), "whoami"); r.code != base.ExitFailure || !strings.Contains(r.stderr, "unauthenticated") {
			t.Errorf("whoami after %s: %+v", after, r)
		}
		p.expire() // so that the refresh token is tried as well
		if r := p.try(t.Context(), strings.NewReader(""), "whoami"); r.code != base.ExitFailure || !strings.Contains(r.stderr, "unauthenticated") {
			t.Errorf("whoami with the refresh token after %s: %+v", after, r)
		}
	}
	read := func(p *person) []byte {
		t.Helper()
		kept, err := os.ReadFile(p.file())
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	login(desk, "correct horse\n", "--code", code)
	login(laptop, "correct horse\n", "ada")
	token := strings.TrimSpace(desk.run("token", "create", "ci", "--scope", "all"))
	if list := desk.run("token", "ls"); strings.Count(list, "\n") != 2 {
		t.Errorf("a login is an API token: %s", list)
	}
	kept := read(desk)
	desk.expire()
	desk.run("whoami") // the earlier login has other tokens than the login that ends
	desk.run("logout")
	out(desk, kept, "the logout")
	laptop.run("whoami")

	login(desk, "correct horse\n", "ada")
	var sessions []client.SignInSession
	if err := json.Unmarshal([]byte(desk.run("session", "ls", "--json")), &sessions); err != nil || len(sessions) != 2 {
		t.Fatalf("session ls: %+v, %v", sessions, err)
	}
	if s := sessions[0]; !s.Current || sessions[1].Current || s.Method != "password" || s.Address != "127.0.0.1" {
		t.Errorf("session ls: %+v", sessions)
	}
	desk.run("session", "rm", sessions[1].ID)
	out(laptop, nil, "its session was ended")
	if r := desk.try(t.Context(), strings.NewReader(""), "session", "rm", sessions[1].ID); r.code != base.ExitFailure || !strings.Contains(r.stderr, "not_found") {
		t.Errorf("ending it again: %+v", r)
	}

	login(laptop, "correct horse\n", "ada")
	if r := desk.try(t.Context(), strings.NewReader("correct horse\nbattery staple\n"), "user", "password"); r.code != 0 {
		t.Fatalf("user password: %+v", r)
	}
	desk.run("whoami")
	out(laptop, nil, "a new password")

	login(laptop, "battery staple\n", "ada")
	kept = read(desk)
	desk.run("logout", "--all")
	out(desk, kept, "the logout of all")
	out(laptop, nil, "the logout of all")
	script := newPerson(t, s, "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+token)
	script.run("whoami")
	login(laptop, "battery staple\n", "ada")
	script.run("logout", "--all")
	out(laptop, nil, "the logout of all by a token")
	script.run("whoami")
}

// A login that an earlier version made of an API token ends with the logout.
func TestLogoutRevokesTheTokenOfAnEarlierVersion(t *testing.T) {
	s := apitest.New(t)
	admin := newPerson(t, s, "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+s.Token)
	token := strings.TrimSpace(admin.run("token", "create", "modbox login on desk", "--scope", "all"))
	desk := newPerson(t, s, "MODBOX_URL="+s.URL)
	a := &base.Env{Environ: desk.env}
	if err := a.StoreLogin(t.Context(), base.Login{Token: token}); err != nil {
		t.Fatal(err)
	}
	desk.run("whoami")
	desk.run("logout")
	script := newPerson(t, s, "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+token)
	if r := script.try(t.Context(), strings.NewReader(""), "whoami"); r.code != base.ExitFailure || !strings.Contains(r.stderr, "unauthenticated") {
		t.Errorf("whoami with the token after the logout: %+v", r)
	}
}
