package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestPublishedPorts(t *testing.T) {
	s := apitest.New(t)
	var sb wire.Sandbox
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "ports", "network": map[string]any{"ports": []int{3000, 65535}}}).Into(t, &sb)
	for i, port := range []uint16{3000, 65535} {
		got := sb.Network.Ports[i]
		label := strings.TrimPrefix(got.URL, s.URL+"/s/")
		if got.Port != port || got.Access != "public" || got.CreatedAt.IsZero() || !sandbox.IsPortLabel(label) {
			t.Errorf("published %+v, want port %d with a label of its own", got, port)
		}
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

func TestChangeNetwork(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "n")
	var sb wire.Sandbox
	s.Want(200, "PATCH", "/v1/sandboxes/n/network", map[string]any{"ports": []int{80}}).Into(t, &sb)
	if len(sb.Network.Ports) != 1 || sb.Network.Ports[0].Port != 80 {
		t.Errorf("network %+v, want port 80", sb.Network)
	}
	s.Want(200, "PATCH", "/v1/sandboxes/n/network", map[string]any{"enabled": false}).Into(t, &sb)
	if len(sb.Network.Ports) != 1 {
		t.Errorf("network %+v, want the ports as they were", sb.Network)
	}
	if p := problem(t, s.Want(422, "PATCH", "/v1/sandboxes/n/network", map[string]any{"ports": []int{70000}})); len(p.Errors) == 0 || p.Errors[0].Location != "ports" {
		t.Errorf("a wrong port: %+v", p)
	}
	// This server has no network to give.
	want := apierror.Status(sandbox.Unsupported)
	problem(t, s.Want(want, "PATCH", "/v1/sandboxes/n/network", map[string]any{"enabled": true}))
	problem(t, s.Want(want, "POST", "/v1/sandboxes", map[string]any{"network": map[string]any{"enabled": true}}))
	problem(t, s.Want(404, "PATCH", "/v1/sandboxes/none/network", map[string]any{"ports": []int{80}}))
}

func TestUsage(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "u")
	var u wire.Usage
	s.Want(200, "GET", "/v1/sandboxes/u/usage", nil).Into(t, &u)
	if u.At == nil || u.RunningSeconds <= 0 {
		t.Errorf("usage %+v", u)
	}
	s.Want(200, "DELETE", "/v1/sandboxes/u", nil)
	var ended wire.Usage
	s.Want(200, "GET", "/v1/sandboxes/u/usage", nil).Into(t, &ended)
	if ended.At == nil || ended.RunningSeconds < u.RunningSeconds {
		t.Errorf("usage after the end %+v, before %+v", ended, u)
	}
	problem(t, s.Want(404, "GET", "/v1/sandboxes/none/usage", nil))
}
