package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/cli/base"
)

func TestAudit(t *testing.T) {
	s := apitest.New(t)
	modbox := func(stdin string, args ...string) result {
		t.Helper()
		return invoke(t, nil, stdin, append([]string{"--url", s.URL, "--token", s.Token}, args...)...)
	}
	works := func(stdin string, args ...string) string {
		t.Helper()
		r := modbox(stdin, args...)
		if r.code != 0 {
			t.Fatalf("modbox %v: %d\n%s", args, r.code, r.stderr)
		}
		return r.stdout
	}
	for i := range 3 {
		works("", "token", "create", fmt.Sprint("the-", i))
	}
	shown := works("", "audit", "--action", "create-token", "--since", "1h", "--object", "the-1")
	if lines := strings.Split(strings.TrimSpace(shown), "\n"); len(lines) != 2 || !strings.Contains(lines[1], "token the-1") || !strings.Contains(lines[1], "create-token") {
		t.Errorf("audit prints\n%s", shown)
	}
	if shown := works("", "audit", "--until", "1h"); strings.Contains(shown, "create-token") {
		t.Errorf("before the first record there is\n%s", shown)
	}

	exported := works("", "audit", "export", "--all")
	if n := strings.Count(exported, "\n"); n != 3 {
		t.Fatalf("%d lines are exported, want 3:\n%s", n, exported)
	}
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(file, []byte(exported), 0o600); err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`^3 records are unchanged; head (3:[0-9a-f]{64})\n$`).FindStringSubmatch(works("", "audit", "verify"))
	if found == nil {
		t.Fatalf("verify prints %q", works("", "audit", "verify"))
	}
	head := found[1]
	works("", "token", "create", "later")
	lines := strings.SplitAfter(exported, "\n")
	for _, args := range [][]string{{"--file", file}, {"--file", file, "--head", head}, {"--head", head}} {
		works("", append([]string{"audit", "verify"}, args...)...)
	}
	works(strings.Join(lines[1:], ""), "audit", "verify", "--file", "-")
	for what, stdin := range map[string]string{
		"edited":       strings.Replace(exported, "the-1", "the-x", 1),
		"deleted":      lines[0] + lines[2],
		"reordered":    lines[1] + lines[0] + lines[2],
		"not a record": lines[0] + "{}\n",
		"not JSON":     "x\n",
	} {
		if r := modbox(stdin, "audit", "verify", "--file", "-"); r.code != base.ExitFailure || !strings.Contains(r.stderr, "is not what it was") {
			t.Errorf("%s: %d %s", what, r.code, r.stderr)
		}
	}
	other := "3:" + strings.Repeat("00", 32)
	for what, args := range map[string][]string{
		"another log":              {"--head", other},
		"another file":             {"--head", other, "--file", file},
		"a log that is too short":  {"--head", "9" + head[1:]},
		"a file that is too short": {"--head", "9" + head[1:], "--file", file},
	} {
		if r := modbox("", append([]string{"audit", "verify"}, args...)...); r.code != base.ExitFailure || !strings.Contains(r.stderr, "is not what it was") {
			t.Errorf("%s: %d %s", what, r.code, r.stderr)
		}
	}
	for _, args := range [][]string{{"--since", "yesterday"}, {"--until", "1"}, {"verify", "--head", "3:ff"}, {"verify", "--head", "x"}, {"export", "--since", "x"}} {
		if r := modbox("", append([]string{"audit"}, args...)...); r.code != base.ExitUsage {
			t.Errorf("audit %v: %d %s", args, r.code, r.stderr)
		}
	}
}

// Records get their times before their places, so that they are not in the order of
// time; an export of some time has no gaps all the same.
func TestAuditExportOfATime(t *testing.T) {
	s := apitest.New(t)
	var change audit.Change
	for _, ms := range []int{1, 3, 2, 4, 6, 5} {
		change.Records = append(change.Records, &audit.Record{Time: fmt.Sprintf("2030-01-01T00:00:00.%06dZ", ms*1000), Action: "x", Outcome: audit.OK})
	}
	if _, err := s.Store.Audit.ChangeAudit(t.Context(), &change); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"2 3 4 5 6": {"--since", "2030-01-01T00:00:00.003Z"},
		"2 3 4":     {"--since", "2030-01-01T00:00:00.003Z", "--until", "2030-01-01T00:00:00.006Z"},
		"1":         {"--until", "2030-01-01T00:00:00.003Z"},
		"":          {"--since", "2031-01-01T00:00:00Z"},
		"2 4 5 6":   {"--since", "2030-01-01T00:00:00.003Z", "--action", "x"},
	} {
		r := invoke(t, nil, "", append([]string{"--url", s.URL, "--token", s.Token, "audit", "export", "--all"}, args...)...)
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^{"seq":(\d+)`).FindAllStringSubmatch(r.stdout, -1) {
			got = append(got, m[1])
		}
		if r.code != 0 || strings.Join(got, " ") != want {
			t.Errorf("export %v: records %v, want %s\n%s%s", args, got, want, r.stdout, r.stderr)
		}
	}
}
