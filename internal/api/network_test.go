package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

// The rules of a network are answered in one form, and errors name the entry.
func TestNetworkRules(t *testing.T) {
	s := apitest.New(t)
	var sb wire.Sandbox
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "rules", "wait_seconds": 60, "network": map[string]any{"allow_out": []string{"PyPI.org", "198.51.100.7/24"}}}).Into(t, &sb)
	want := wire.SandboxNetwork{Ports: []wire.PublishedPort{}, AllowOut: []string{"pypi.org", "198.51.100.0/24"}, DenyOut: []string{"0.0.0.0/0"}, HTTPSPorts: []uint16{}}
	if diff := cmp.Diff(want, sb.Network); diff != "" {
		t.Errorf("network (-want +got):\n%s", diff)
	}
	s.Want(200, "PATCH", "/v1/sandboxes/rules/network", map[string]any{"allow_out": []string{}, "deny_out": []string{"198.51.100.7"}}).Into(t, &sb)
	if len(sb.Network.AllowOut) != 0 || !slices.Equal(sb.Network.DenyOut, []string{"198.51.100.7"}) {
		t.Errorf("changed network: %+v", sb.Network)
	}
	for field, body := range map[string]map[string]any{
		"allow_out[1]": {"allow_out": []string{"pypi.org", "::1"}, "deny_out": []string{"0.0.0.0/0"}},
		"deny_out[0]":  {"deny_out": []string{"pypi.org"}},
	} {
		for prefix, want := range map[string]func() *apitest.Answer{
			"":         func() *apitest.Answer { return s.Want(422, "PATCH", "/v1/sandboxes/rules/network", body) },
			"network.": func() *apitest.Answer { return s.Want(422, "POST", "/v1/sandboxes", map[string]any{"network": body}) },
		} {
			if p := problem(t, want()); len(p.Errors) == 0 || p.Errors[0].Location != prefix+field {
				t.Errorf("%v: %+v, want %s named", body, p, prefix+field)
			}
		}
	}
}

// How requests reach the servers of a sandbox is answered as it was asked for, and errors name the field.
func TestNetworkRequests(t *testing.T) {
	s := apitest.New(t)
	var sb wire.Sandbox
	want := func(when, host string, ports ...uint16) {
		t.Helper()
		if sb.Network.RequestHost != host || !slices.Equal(sb.Network.HTTPSPorts, ports) {
			t.Errorf("%s: %+v, want the host %q and HTTPS on %d", when, sb.Network, host, ports)
		}
	}
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "r", "wait_seconds": 60, "network": map[string]any{"request_host": "localhost:${PORT}", "https_ports": []int{8443, 443}}}).Into(t, &sb)
	want("create", "localhost:${PORT}", 8443, 443)
	s.Want(200, "PATCH", "/v1/sandboxes/r/network", map[string]any{"ports": []int{80}}).Into(t, &sb)
	want("another change", "localhost:${PORT}", 8443, 443)
	s.Want(200, "PATCH", "/v1/sandboxes/r/network", map[string]any{"request_host": ""}).Into(t, &sb)
	want("no host", "", 8443, 443)
	s.Want(200, "PATCH", "/v1/sandboxes/r/network", map[string]any{"request_host": "a.test", "https_ports": []int{}}).Into(t, &sb)
	want("no ports", "a.test")
	for field, values := range map[string][]any{
		"request_host": {"a b", "a\r\nX: y", "a/b", "http://a", "$PORT"},
		"https_ports":  {[]int{0}, []int{65536}, []int{-1}, []int{80, 80}, []int{49983}},
	} {
		for _, value := range values {
			if p := problem(t, s.Want(422, "PATCH", "/v1/sandboxes/r/network", map[string]any{field: value})); len(p.Errors) == 0 || p.Errors[0].Location != field {
				t.Errorf("%s %v: %+v, want the field named", field, value, p)
			}
			if p := problem(t, s.Want(422, "POST", "/v1/sandboxes", map[string]any{"network": map[string]any{field: value}})); len(p.Errors) == 0 || p.Errors[0].Location != "network."+field {
				t.Errorf("create with %s %v: %+v, want the field named", field, value, p)
			}
		}
	}
	s.Want(200, "GET", "/v1/sandboxes/r", nil).Into(t, &sb)
	want("after refusals", "a.test")
}

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
	if diff := cmp.Diff(wire.SandboxNetwork{Ports: []wire.PublishedPort{}, AllowOut: []string{}, DenyOut: []string{}, HTTPSPorts: []uint16{}}, sb.Network); diff != "" {
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
