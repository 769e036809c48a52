package api_test

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
)

// Names of sandboxes from /v1 have few characters; names from the dialects, and old names, are found unchanged.
func TestNamesOfSandboxes(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "Agent_4.2-x")
	for field, c := range map[string]struct {
		path string
		body map[string]any
	}{
		"name":     {"/v1/sandboxes", map[string]any{"name": "UPPER case!"}},
		"names[1]": {"/v1/sandboxes/Agent_4.2-x/fork", map[string]any{"names": []string{"good", "UPPER case!"}}},
	} {
		p := problem(t, s.Want(422, "POST", c.path, c.body))
		if len(p.Errors) != 1 || p.Errors[0].Location != field || !strings.HasSuffix(p.Errors[0].Message, "for example UPPER-case") {
			t.Errorf("%s: %+v", field, p)
		}
	}
	s.Want(200, "POST", "/sandboxes/provision", map[string]any{"task_id": "UPPER case!"})
	s.Want(200, "GET", "/v1/sandboxes/UPPER%20case!", nil)
	s.Want(200, "DELETE", "/v1/sandboxes/UPPER%20case!", nil)
}
