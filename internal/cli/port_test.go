package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/cli/base"
)

// portServer answers the requests for the ports of a sandbox, and notes them.
type portServer struct{ seen []string }

func (s *portServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.seen = append(s.seen, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
	port := wire.PublishedPort{Port: 5173, URL: "https://p5173-x.example.com", Access: "private", CreatedAt: fixed}
	var answer any = port
	switch {
	case r.Method == http.MethodGet:
		answer = wire.Page[wire.PublishedPort]{Items: []wire.PublishedPort{{Port: 3000, URL: "https://p3000-x.example.com", Access: "public", CreatedAt: fixed}, port}}
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
		return
	case strings.HasSuffix(r.URL.Path, "/links"):
		answer = wire.PortLink{URL: "https://p5173-x.example.com/?modbox_token=mbl_x", Token: "mbl_x", ExpiresAt: fixed}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func TestPortCommands(t *testing.T) {
	const one = "/v1/sandboxes/demo/ports/5173"
	for name, tc := range map[string]struct{ args, request string }{
		"port_ls":           {"ls demo", "GET /v1/sandboxes/demo/ports"},
		"port_ls_json":      {"ls demo --json", "GET /v1/sandboxes/demo/ports"},
		"port_publish":      {"publish demo 5173 --private", "PUT " + one + ` {"access":"private"}`},
		"port_publish_json": {"publish demo 5173 --json", "PUT " + one + ` {"access":"public"}`},
		"port_rotate":       {"rotate demo 5173", "POST " + one + "/rotate"},
		"port_rm":           {"rm demo 5173", "DELETE " + one},
		"port_link":         {"link demo 5173", "POST " + one + `/links {"expires_in_seconds":3600}`},
		"port_link_json":    {"link demo 5173 --expires 24h --json", "POST " + one + `/links {"expires_in_seconds":86400}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(portServer)
			r := invoke(t, s, "", append([]string{"port"}, strings.Fields(tc.args)...)...)
			if r.code != 0 || r.stderr != "" {
				t.Fatalf("modbox port %s = %+v", tc.args, r)
			}
			if d := cmp.Diff([]string{tc.request}, s.seen); d != "" {
				t.Errorf("modbox port %s, requests (-want +got):\n%s", tc.args, d)
			}
			golden(t, name, r.stdout)
		})
	}
}

// TestPortErrors has wrong arguments sent nowhere, and the server's errors shown.
func TestPortErrors(t *testing.T) {
	for _, args := range []string{"publish demo 0", "publish demo 65536", "rm demo x", "link demo -- -1", "rotate demo", "ls"} {
		s := new(portServer)
		if r := invoke(t, s, "", append([]string{"port"}, strings.Fields(args)...)...); r.code != base.ExitUsage || len(s.seen) != 0 {
			t.Errorf("modbox port %s = %+v after requests %v, want a usage error and none", args, r, s.seen)
		}
	}
	r := invoke(t, cannedSandboxes(), "", "port", "rotate", "demo", "3000")
	if r.code != base.ExitFailure || !strings.Contains(r.stderr, "[not_found]") {
		t.Errorf("port rotate of a port that is not published = %+v", r)
	}
}
