package cli

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/cli/base"
)

// TestImagesRemoveAndPrune: both go over the API unless it is said that they are about
// this machine.
func TestImagesRemoveAndPrune(t *testing.T) {
	var asked []string
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		asked = append(asked, strings.TrimSpace(r.Method+" "+r.URL.EscapedPath()+" "+string(sent)))
		switch {
		case strings.HasSuffix(r.URL.Path, "/missing"):
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code":"not_found","detail":"there is no image \"missing\""}`)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			_, _ = io.WriteString(w, `{"images":[{"ref":"app:v1","digest":"sha256:1","size_bytes":1},{"digest":"sha256:2","size_bytes":2}],"freed_bytes":1048576,"dry_run":`+
				map[bool]string{true: "true", false: "false"}[strings.Contains(string(sent), "dry_run")]+`}`)
		}
	})
	for _, tt := range []struct {
		args   []string
		asked  string
		code   int
		stdout string // substring of stdout, or of stderr after a failure
	}{
		{[]string{"images", "rm", "app:v1", "r.test/team/app"}, "DELETE /v1/images/app:v1;DELETE /v1/images/r.test%2Fteam%2Fapp", 0, ""},
		{[]string{"images", "rm", "missing", "there"}, "DELETE /v1/images/missing;DELETE /v1/images/there", base.ExitFailure, `missing: there is no image "missing"`},
		{[]string{"images", "prune"}, "POST /v1/images/prune {}", 0, "app:v1\nsha256:2\n1.0 MiB freed\n"},
		{[]string{"images", "prune", "-a", "--dry-run"}, `POST /v1/images/prune {"all":true,"dry_run":true}`, 0, "1.0 MiB would be freed\n"},
		{[]string{"images", "prune", "--json"}, "POST /v1/images/prune {}", 0, `"freed_bytes": 1048576`},
		{[]string{"images", "prune", "--local"}, "", 0, "0 B freed\n"},
		{[]string{"images", "prune", "--state-dir", t.TempDir()}, "", 0, "0 B freed\n"},
		{[]string{"images", "rm", "--local", "app:v1"}, "", base.ExitFailure, `there is no built image "app:v1"`},
		{[]string{"images", "prune", "--local", "--all"}, "", base.ExitUsage, "--all and --dry-run"},
	} {
		asked = nil
		r := invoke(t, server, "", tt.args...)
		if got := strings.Join(asked, ";"); got != tt.asked || r.code != tt.code || !strings.Contains(r.stdout+r.stderr, tt.stdout) {
			t.Errorf("modbox %v = %+v after %q, want %d, %q after %q", tt.args, r, got, tt.code, tt.stdout, tt.asked)
		}
	}
	if r := invoke(t, nil, "", "images", "rm", "app:v1"); r.code == 0 {
		t.Errorf("without a server: %+v", r)
	}
}
