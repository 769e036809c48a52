package audit

import (
	"slices"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	const private = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow" + "IBAAKCAQEA\n-----END RSA PRIVATE KEY-----"
	for text, want := range map[string]string{
		"ls -la /srv":                                      "ls -la /srv",
		"mbx_abcdefghijkmnpqrstuvwxyz23456789":             "[redacted]",
		"echo mbs_abcdefghijkmnpqrstuvwxyz23 done":         "echo [redacted] done",
		`curl -H "Authorization: Bearer abc.def"`:          `curl -H "Authorization: Bearer [redacted]"`,
		"Authorization: Basic dXNlcjpwYXNz":                "Authorization: Basic [redacted]",
		"x-api-key: 1234":                                  "x-api-key: [redacted]",
		"DB_PASSWORD=hunter2 ./run":                        "DB_PASSWORD=[redacted] ./run",
		"DB_PASSWORD='hunter 2' ./run":                     "DB_PASSWORD=[redacted] ./run",
		`{"client_secret": "abc", "n": 1}`:                 `{"client_secret": [redacted], "n": 1}`,
		`curl -d "{\"password\": \"hunter 2\", \"n\": 1}"`: `curl -d "{\"password\": [redacted], \"n\": 1}"`,
		`{\\\"token\\\":\\\"abc\\\"}`:                      `{\\\"token\\\":[redacted]}`,
		`{\"secret\":\"a\\nb\"}`:                           `{\"secret\":[redacted]}`,
		"SIGNING_KEY=abc sort --sort_keys=2":               "SIGNING_KEY=[redacted] sort --sort_keys=2",
		"tool --token abc --name x":                        "tool --token [redacted] --name x",
		"tool --api-key=abc":                               "tool --api-key=[redacted]",
		"git clone https://ada:pw@example.com/x":           "git clone https://ada:[redacted]@example.com/x",
		"curl -u ada:pw https://example.com":               "curl -u ada:[redacted] https://example.com",
		"Cookie: a=b; c=d":                                 "Cookie: [redacted]",
		"export K=ghp_0123456789abcdefghijABCDEF":          "export K=[redacted]",
		"eyJhbGciOiJI.eyJzdWIiOiIx.c2ln":                   "[redacted]",
		"AKIAIOSFODNN7EXAMPLE":                             "[redacted]",
		"cat <<E\n" + private + "\nE":                      "cat <<E\n[redacted]\nE",
		private[:50]:                                       "[redacted]",
	} {
		if got := Redact(text); got != want {
			t.Errorf("Redact(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestFormsAreLookedForWhereTheyCanBe: Redact leaves out forms that cannot match, and hides as much as if
// it left out none.
func TestFormsAreLookedForWhereTheyCanBe(t *testing.T) {
	parts := []string{
		"Api_Key", "private-key", "SECRET", "to\u212Aen", "token", "pa\u017F\u017Fwd", "password", "pwd", "credentials", "x_\u212Aey", "x_key",
		"authorization", "BEARER", "basic", "ba\u017Fic", "Set-Coo\u212Aie", "cookie", "--user", "-u", "-", "=", ": ", "://", ":", "@", " ", `\"`, "'", "é",
		"abcdefghij2345672222", "AKIAIOSFODNN7EXAMPLE", "mbx_", "str_", "sk-", "ghp_", "github_pat_", "glpat-", "xoxb-", "npm_", "AIza", "eyJ", ".",
		"-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "\n",
	}
	hides := make([]int, len(patterns()))
	check := func(text string) {
		want := text
		for i, p := range patterns() {
			redacted := p.form.ReplaceAllString(want, "${1}"+hidden+"${2}")
			if redacted != want {
				hides[i]++
			}
			want = redacted
		}
		if got := Redact(text); got != want {
			t.Errorf("Redact(%q) = %q, want %q", text, got, want)
		}
	}
	for _, a := range parts {
		for _, b := range parts {
			check(a + b)
			check("http://" + a + b + "abc:def@x " + a + b + "abcdefghij2345672222abcdefghij")
			check("curl " + a + " ada" + b + "secret")
			check("tool --" + a + b + "abc")
		}
	}
	for i, n := range hides {
		if n == 0 {
			t.Errorf("no text has the form %s", patterns()[i].form)
		}
	}
}

func BenchmarkRedact(b *testing.B) {
	for b.Loop() {
		Redact("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36")
	}
}

func TestCommandHidesValuesOfVariables(t *testing.T) {
	env := map[string]string{"DEPLOY": "correct-horse", "SHORT_KEY": "abcd", "MODE": "fast", "HOME": "/workspace", "LONG": "correct-horse-battery"}
	request := map[string]string{"EXTRA": "staple"}
	got, truncated := command([]string{"sh", "-c", "login correct-horse correct-horse-battery abcd fast /workspace xstaplex"}, []map[string]string{env, request})
	want := []string{"sh", "-c", "login [redacted] [redacted] [redacted] fast /workspace x[redacted]x"}
	if !slices.Equal(got, want) || truncated {
		t.Errorf("command = %q, %v, want %q", got, truncated, want)
	}
	got, _ = command([]string{"tool", "--password", "hunter2", "-u", "ada:pw", "--verbose", "x"}, nil)
	if want := []string{"tool", "--password", "[redacted]", "-u", "ada:[redacted]", "--verbose", "x"}; !slices.Equal(got, want) {
		t.Errorf("command = %q, want %q", got, want)
	}
}

func TestCommandIsBounded(t *testing.T) {
	value := strings.Repeat("s3cret-", 64)
	for name, argv := range map[string][]string{
		"long":           {"sh", "-c", strings.Repeat("word ", CommandMax)},
		"many":           slices.Repeat([]string{"x"}, 10*commandArgs),
		"value is cut":   {"sh", "-c", strings.Repeat("a", CommandMax-200) + value},
		"token is cut":   {"sh", "-c", strings.Repeat("a", CommandMax-30) + "mbx_abcdefghijkmnpqrstuvwxyz23456789abcdefgh"},
		"key is cut":     {"sh", "-c", strings.Repeat("a", CommandMax-100) + "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("MIIEow\n", 99)},
		"flag's is cut":  {"sh", strings.Repeat("a ", CommandMax/2-20), "--password", strings.Repeat("s3cret", 99)},
		"not UTF-8":      {"sh", "-c", strings.Repeat("\xff", 3*CommandMax)},
		"very many args": slices.Repeat([]string{""}, 100_000),
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			kept, truncated := command(argv, []map[string]string{{"V": value}})
			all := strings.Join(kept, " ")
			if !truncated {
				t.Error("it does not say that something is missing")
			}
			if len(all) > 4*CommandMax || len(kept) > commandArgs {
				t.Errorf("%d bytes in %d arguments are kept", len(all), len(kept))
			}
			for _, secret := range []string{"s3cret", "mbx_", "MIIE"} {
				if strings.Contains(all, secret) {
					t.Errorf("%q is in it: …%s", secret, all[max(len(all)-300, 0):])
				}
			}
		})
	}
}

func FuzzCommand(f *testing.F) {
	f.Add("sh -c 'x --token abc'", "abcdefgh")
	f.Add(strings.Repeat("a", CommandMax-4)+"abcdefgh", "abcdefgh")
	f.Fuzz(func(t *testing.T, arg, value string) {
		kept, _ := command([]string{arg, arg}, []map[string]string{{"V": value}})
		for _, a := range kept {
			if len(value) >= valueMin && strings.Contains(a, value) && !strings.Contains(hidden, value) && !strings.Contains(value, "redacted") {
				t.Errorf("the value %q is in %q", value, a)
			}
		}
	})
}
