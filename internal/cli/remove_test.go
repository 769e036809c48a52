package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/modbox/modbox/internal/cli/base"
)

// On a terminal the command asks before it deletes users and workspaces; elsewhere it does not.
func TestDeletingAsks(t *testing.T) {
	var deleted []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deleted = append(deleted, r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": []any{}})
	}))
	defer srv.Close()
	run := func(stdin io.Reader, args []string) result {
		var out, errOut bytes.Buffer
		a := &base.Env{Stdin: stdin, Stdout: &out, Stderr: &errOut, Environ: []string{
			"MODBOX_URL=" + srv.URL, "MODBOX_API_TOKEN=mbx_test", "HOME=" + t.TempDir(), "MODBOX_STATE_DIR=" + t.TempDir(),
		}}
		code := execute(t.Context(), a, args)
		return result{code, out.String(), errOut.String()}
	}
	for _, c := range []struct {
		args           []string
		path, question string
	}{
		{[]string{"user", "rm", "ada"}, "/v1/users/ada", "Delete the user ada,"},
		{[]string{"workspace", "rm", "team"}, "/v1/workspaces/team", "Delete the workspace team "},
	} {
		for _, at := range []struct {
			typed string
			flags []string
			want  bool
			asked bool
		}{
			{"y\n", nil, true, true},
			{"n\n", nil, false, true},
			{"\n", nil, false, true},
			{"\x04", nil, false, true}, // Ctrl-D
			{"", []string{"-y"}, true, false},
		} {
			keyboard, terminal, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(keyboard, at.typed); err != nil {
				t.Fatal(err)
			}
			deleted = nil
			r := run(terminal, append(slices.Clone(c.args), at.flags...))
			if got := slices.Equal(deleted, []string{c.path}); got != at.want || (r.code == 0) != at.want || len(deleted) > 1 {
				t.Errorf("%v %v, typed %q: deleted %v, %+v", c.args, at.flags, at.typed, deleted, r)
			}
			if got := strings.Contains(r.stderr, c.question); got != at.asked {
				t.Errorf("%v %v, typed %q: asked %v: %s", c.args, at.flags, at.typed, got, r.stderr)
			}
			_ = keyboard.Close()
			_ = terminal.Close()
		}
		deleted = nil
		if r := run(strings.NewReader(""), c.args); r.code != 0 || len(deleted) != 1 || r.stderr != "" {
			t.Errorf("%v without a terminal: deleted %v, %+v", c.args, deleted, r)
		}
	}
}
