package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/api/wire"
)

func TestPublishedPorts(t *testing.T) {
	s := apitest.New(t)
	var sb wire.Sandbox
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "ports", "network": map[string]any{"ports": []int{3000, 65535}}}).Into(t, &sb)
	label := strings.TrimPrefix(sb.URL, s.URL+"/s/")
	want := wire.SandboxNetwork{Ports: []wire.PublishedPort{
		{Port: 3000, URL: s.URL + "/s/3000--" + label}, {Port: 65535, URL: s.URL + "/s/65535--" + label},
	}}
	if diff := cmp.Diff(want, sb.Network); diff != "" {
		t.Errorf("network (-want +got):\n%s", diff)
	}
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "none"}).Into(t, &sb)
	if diff := cmp.Diff(wire.SandboxNetwork{Ports: []wire.PublishedPort{}}, sb.Network); diff != "" {
		t.Errorf("network of a sandbox that asked for none (-want +got):\n%s", diff)
	}
	for _, bad := range []any{[]int{0}, []int{65536}, []int{-1}, []int{80, 80}, []int{49983}, make([]int, 33)} {
		p := problem(t, s.Want(422, "POST", "/v1/sandboxes", map[string]any{"network": map[string]any{"ports": bad}}))
		if len(p.Errors) == 0 || p.Errors[0].Location != "network.ports" {
			t.Errorf("ports %v: %+v, want the field named", bad, p)
		}
	}
}
