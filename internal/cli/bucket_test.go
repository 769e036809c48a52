package cli

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/cli/base"
)

// TestBackupsInABucket makes, lists, verifies, restores and prunes backups of a state directory in a directory.
func TestBackupsInABucket(t *testing.T) {
	dir, st := stateDir(t)
	bucket, key := "file://"+filepath.Join(t.TempDir(), "new"), filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))), 0o600); err != nil {
		t.Fatal(err)
	}
	ws, _, err := st.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	must := func(args ...string) string {
		t.Helper()
		r := invoke(t, nil, "", append(args, "--backup-key-file", key)...)
		if r.code != 0 {
			t.Fatalf("modbox %v = %+v", args, r)
		}
		return r.stdout
	}
	type shown struct {
		ID   string `json:"id"`
		Sent int64  `json:"sent_bytes"`
	}
	create := func() (s shown) {
		t.Helper()
		if err := json.Unmarshal([]byte(must("backup", "create", "--to", bucket, "--state-dir", dir, "--json")), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, two := create(), create()
	if out := must("backup", "ls", "--from", bucket); strings.Index(out, one.ID) > strings.Index(out, two.ID) || !strings.Contains(out, one.ID) {
		t.Errorf("ls = %s, want %s before %s", out, one.ID, two.ID)
	}
	if out := must("backup", "verify", "--from", bucket); out != "2 backups are complete\n" {
		t.Errorf("verify = %q", out)
	}
	to := filepath.Join(t.TempDir(), "state")
	if out := must("restore", "--from", bucket, "--id", one.ID, "--state-dir", to); !strings.HasPrefix(out, one.ID+": 1 files") {
		t.Errorf("restore = %q", out)
	}
	if r := invoke(t, nil, "", "restore", "--from", bucket, "--state-dir", to, "--backup-key-file", key); r.code != base.ExitFailure || !strings.Contains(r.stderr, "--force") {
		t.Errorf("restore onto what was restored = %+v, want a refusal", r)
	}
	if r := invoke(t, nil, "", "token", "create", "--state-dir", to, "--workspace", string(ws)); r.code != 0 {
		t.Errorf("a token in the restored directory: %+v", r)
	}
	if out := must("backup", "prune", "--from", bucket, "--keep", "1"); !strings.HasPrefix(out, "1 backups removed") {
		t.Errorf("prune = %q", out)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"backup", "ls", "--from", bucket}, base.ExitFailure, "is encrypted"},
		{[]string{"backup", "ls", "--from", "gs://bucket"}, base.ExitFailure, `scheme "gs"`},
		{[]string{"backup", "ls", "--from", "file://" + t.TempDir()}, base.ExitFailure, "nothing of Modbox"},
		{[]string{"backup", "ls"}, base.ExitUsage, "backup.url"},
		{[]string{"backup", "prune", "--from", bucket}, base.ExitUsage, `"keep" not set`},
		{[]string{"backup", "prune", "--from", bucket, "--keep", "0"}, base.ExitUsage, "--keep must be"},
		{[]string{"backup", "create", "--to", bucket, "--images", "some"}, base.ExitUsage, "images: must be"},
		{[]string{"restore"}, base.ExitUsage, "give a FILE"},
		{[]string{"restore", "file", "--from", bucket}, base.ExitUsage, "either a FILE"},
		{[]string{"restore", "--check", "--from", bucket}, base.ExitUsage, "backup verify"},
		{[]string{"restore", "--from", bucket, "--id", one.ID, "--state-dir", t.TempDir(), "--backup-key-file", key}, base.ExitFailure, "has no backup " + one.ID},
	} {
		if r := invoke(t, nil, "", tt.args...); r.code != tt.code || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("modbox %v = %+v, want code %d and %q", tt.args, r, tt.code, tt.want)
		}
	}
}
