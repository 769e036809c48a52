package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
)

func TestLogin(t *testing.T) {
	s := apitest.New(t)
	home := t.TempDir()
	admin := []string{"MODBOX_URL=" + s.URL, "MODBOX_API_TOKEN=" + s.Token, "HOME=" + home}
	ada := []string{"MODBOX_URL=" + s.URL, "HOME=" + home}
	try := func(env []string, stdin string, args ...string) result {
		var out, errOut bytes.Buffer
		a := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errOut, environ: env}
		code := a.execute(t.Context(), args)
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
	run(ada, "", "workspace", "withdraw", "team", "New@example.com")
	if list := run(ada, "", "workspace", "invitations", "team"); strings.Contains(list, "new@example.com") {
		t.Errorf("invitations after the withdrawal: %s", list)
	}
	if r := try(ada, "", "login", "--code", invited, "new"); r.code == 0 {
		t.Errorf("login with the code of a withdrawn invitation: %+v", r)
	}
	if r := try(ada, "", "workspace", "withdraw", "team", "new@example.com"); r.code != exitError || !strings.Contains(r.stderr, "not_found") {
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
	run(ada, "", "workspace", "remove", "TEAM", "owner") // by name
	if r := try(admin, "", "workspace", "members", team); r.code != exitError || !strings.Contains(r.stderr, "not_found") {
		t.Errorf("members for somebody who was removed: %+v", r)
	}
	run(ada, "correct horse\nbattery staple\n", "user", "password")
	run(ada, "", "workspace", "rm", team)
	kept, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(kept), "mbx_") {
		t.Fatalf("credentials: %s, %v", kept, err)
	}
	run(ada, "", "logout")
	if after, err := os.ReadFile(file); err != nil || strings.Contains(string(after), "mbx_") {
		t.Errorf("credentials after logout: %s, %v", after, err)
	}
	run(ada, "ada@example.com\nbattery staple\n", "login")
	if list := run(admin, "", "user", "ls"); !strings.Contains(list, "ada@example.com") {
		t.Errorf("user ls: %s", list)
	}
	run(admin, "", "user", "disable", "ada")
	if r := try(ada, "", "workspace", "ls"); r.code != exitError {
		t.Errorf("a disabled user: %+v", r)
	}
	run(admin, "", "user", "rm", "ada")
}
