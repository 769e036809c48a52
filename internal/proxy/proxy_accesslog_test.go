package proxy_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/edge"
)

// TestAccessLogOfSandboxURLs: such lines have the sandbox's id and not its label, and are only for level debug unless
// they are wanted.
func TestAccessLogOfSandboxURLs(t *testing.T) {
	w := newWorld(t, echo)
	for name, c := range map[string]struct {
		level slog.Level
		all   bool
		want  int
	}{"info": {slog.LevelInfo, false, 0}, "debug": {slog.LevelDebug, false, 1}, "all": {slog.LevelInfo, true, 1}} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			access := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: c.level}))
			front := edge.Options{Logger: slog.New(slog.DiscardHandler), Access: access, AccessURLs: c.all}.Wrap(w.server.Config.Handler)
			r := httptest.NewRequest(http.MethodGet, "/s/"+w.label+"/x?token=s3cret", nil)
			front.ServeHTTP(httptest.NewRecorder(), r)
			if n := strings.Count(out.String(), "\n"); n != c.want {
				t.Fatalf("%d lines, want %d: %s", n, c.want, out.String())
			}
			if c.want == 1 && (!strings.Contains(out.String(), fmt.Sprintf(`"sandbox":%q`, w.sb.ID)) || strings.Contains(out.String(), w.label) || strings.Contains(out.String(), "s3cret")) {
				t.Errorf("log %s", out.String())
			}
		})
	}
}
