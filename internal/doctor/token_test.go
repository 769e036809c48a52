package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

func TestFirstToken(t *testing.T) {
	day := 24 * time.Hour
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for name, tc := range map[string]struct {
		token *FirstToken
		err   error
		want  Status
		fix   string // in the advice
	}{
		"none":                 {want: OK},
		"error":                {err: errors.New("no"), want: Warn, fix: "as root"},
		"another database":     {err: sandbox.Errorf(sandbox.Conflict, "no"), want: Warn, fix: "settings of the server"},
		"new":                  {token: &FirstToken{Made: ago(day)}, want: OK},
		"old":                  {token: &FirstToken{Made: ago(31 * day), Used: ago(day)}, want: Warn},
		"other administrators": {token: &FirstToken{Made: ago(day), Administrators: 1}, want: Warn},
		"with an end":          {token: &FirstToken{Made: ago(31 * day), Administrators: 1, Expires: ago(-day)}, want: OK},
	} {
		r := firstToken(t.Context(), Options{FirstToken: func(context.Context) (*FirstToken, error) { return tc.token, tc.err }})
		if r.Status != tc.want || (tc.token != nil && tc.want == Warn) != strings.Contains(r.Fix, "modbox token remove-first") || !strings.Contains(r.Fix, tc.fix) {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
	}
}
