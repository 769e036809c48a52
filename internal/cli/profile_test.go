package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/cli/base"
)

// TestProfiles chooses between two servers, which note the credentials that they see.
func TestProfiles(t *testing.T) {
	home := t.TempDir()
	seen := map[string]string{}
	server := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen[name] = r.Header.Get("Authorization") + " " + r.Header.Get("X-Workspace-Id")
			_, _ = w.Write([]byte(`{"user_id":"` + name + `"}`))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	one, two := server("one"), server("two")
	run := func(stdin string, environ []string, args ...string) result {
		t.Helper()
		var out, errOut bytes.Buffer
		env := &base.Env{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut, Environ: append(environ, "HOME="+home, "MODBOX_STATE_DIR="+t.TempDir())}
		code := execute(t.Context(), env, args)
		return result{code, out.String(), errOut.String()}
	}
	must := func(stdin string, args ...string) string {
		t.Helper()
		r := run(stdin, nil, args...)
		if r.code != 0 {
			t.Fatalf("modbox %v: %+v", args, r)
		}
		return r.stdout
	}
	must("mbx_one\n", "profile", "add", "one", one+"/", "--token-stdin", "--workspace", "team", "--use")
	must("mbx_two", "profile", "add", "two", two, "--token-stdin")
	if info, err := os.Stat(filepath.Join(home, ".config", "modbox", "credentials.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file of the profiles: %v, %v", info, err)
	}
	if list := must("", "profile", "ls"); strings.Contains(list, "mbx_") || strings.Count(list, "*") != 1 || !strings.Contains(list, "*   one") && !strings.Contains(list, "*     one") {
		t.Errorf("profile ls: %s", list)
	}
	if r := run("", nil, "profile", "add", "two", one); r.code != base.ExitUsage || !strings.Contains(r.stderr, "--replace") {
		t.Errorf("a name twice: %+v", r)
	}

	given := []string{"MODBOX_API_TOKEN=mbx_env", "MODBOX_WORKSPACE=elsewhere"}
	for what, test := range map[string]struct {
		environ   []string
		args      []string
		name, saw string
	}{
		"current":              {nil, nil, "one", "Bearer mbx_one team"},
		"flag":                 {nil, []string{"--profile", "two"}, "two", "Bearer mbx_two "},
		"flag_and_environment": {given, []string{"--profile", "two"}, "two", "Bearer mbx_two "},
		"variable":             {append([]string{"MODBOX_PROFILE=two"}, given...), nil, "two", "Bearer mbx_two "},
		"flag_wins":            {[]string{"MODBOX_URL=" + two, "MODBOX_API_TOKEN=mbx_env"}, []string{"--profile", "one"}, "one", "Bearer mbx_one team"},
		"url":                  {append([]string{"MODBOX_URL=" + two}, given...), nil, "two", "Bearer mbx_env elsewhere"},
		"token_flag":           {nil, []string{"--profile", "one", "--token", "mbx_flag", "--workspace", "other"}, "one", "Bearer mbx_flag other"},
	} {
		t.Run(what, func(t *testing.T) {
			clear(seen)
			r := run("", test.environ, append([]string{"whoami"}, test.args...)...)
			if r.code != 0 || len(seen) != 1 || seen[test.name] != test.saw {
				t.Errorf("%+v; the servers saw %q, want %q at %s", r, seen, test.saw, test.name)
			}
		})
	}
	// A token of the environment does not go to the server of an earlier choice.
	clear(seen)
	if r := run("", given, "whoami"); r.code == 0 || len(seen) != 0 {
		t.Errorf("a token without a server: %+v, %q", r, seen)
	}
	for _, args := range [][]string{{"whoami", "--profile", "three"}, {"whoami", "--profile", "one", "--url", two}, {"profile", "use", "three"}, {"profile", "rm", "one", "three"}} {
		if r := run("", nil, args...); r.code != base.ExitUsage {
			t.Errorf("modbox %v: %+v, want a usage error", args, r)
		}
	}
	must("", "profile", "use", "two")
	if who := must("", "whoami"); !strings.Contains(who, two) {
		t.Errorf("whoami after profile use: %s", who)
	}
	must("", "profile", "rm", "two", "one")
	if list := must("", "profile", "ls", "--json"); strings.TrimSpace(list) != "[]" {
		t.Errorf("profile ls after rm: %s", list)
	}
}
