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
	run(ada, "", "workspace", "role", team, "owner", "admin")
	if list := run(admin, "", "workspace", "members", team); !strings.Contains(list, "admin") {
		t.Errorf("members: %s", list)
	}
	run(ada, "", "workspace", "remove", team, "owner")
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
