package lifecycle_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/sandbox"
)

var (
	allowed = []string{"pypi.org", "*.pythonhosted.org", "198.51.100.0/24"}
	denied  = []string{"0.0.0.0/0"}
)

// The rules of a sandbox come with each of its gateways.
func TestRulesFollowTheSandbox(t *testing.T) {
	e, n := withNetwork(t)
	s := e.start()
	request := lifecycle.CreateRequest{Name: "net", Network: sandbox.Network{Enabled: true, AllowOut: []string{"PyPI.org", "*.pythonhosted.org.", "198.51.100.7/24"}}}
	sb := s.run(request)
	want := sandbox.Network{Enabled: true, AllowOut: allowed, DenyOut: denied}
	if diff := cmp.Diff(want, sb.Network); diff != "" {
		t.Errorf("network (-want +got):\n%s", diff)
	}
	n.wantRules(t, sb.ID, allowed, denied)
	if again, _, err := s.Create(t.Context(), e.caller, request); err != nil || again.ID != sb.ID {
		t.Errorf("the same request again: %s, %v, want the same sandbox", again.ID, err)
	}
	s.pause("net")
	s.resume("net")
	n.wantRules(t, sb.ID, allowed, denied)
	forks, err := s.Fork(t.Context(), e.caller, "net", lifecycle.ForkRequest{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	n.wantRules(t, forks[0].Sandbox.ID, allowed, denied)
	if diff := cmp.Diff(want, forks[0].Sandbox.Network); diff != "" {
		t.Errorf("network of the fork (-want +got):\n%s", diff)
	}
	s.kill()
	s = e.start()
	n.wantRules(t, sb.ID, allowed, denied)
	s.pause("net")
	if _, err := s.Resume(t.Context(), e.caller, "net", lifecycle.ResumeRequest{Memory: sandbox.MemoryDiscard}); err != nil {
		t.Fatal(err)
	}
	n.wantRules(t, sb.ID, allowed, denied)
}

// How requests reach the servers of a sandbox stays with it, also without a network.
func TestRequestsFollowTheSandbox(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "s", Network: sandbox.Network{RequestHost: "localhost", HTTPSPorts: []uint16{8443}}})
	want := func(when, ref, host string, ports ...uint16) {
		t.Helper()
		got, err := s.Get(t.Context(), e.caller, ref)
		if diff := cmp.Diff(sandbox.Network{RequestHost: host, HTTPSPorts: ports}, got.Network); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", when, err, diff)
		}
	}
	want("new", "s", "localhost", 8443)
	s.pause("s")
	want("paused", "s", "localhost", 8443)
	if _, err := s.Networks().Set(t.Context(), e.caller, "s", network.Change{RequestHost: new("a.test")}); err != nil {
		t.Fatal(err)
	}
	s.resume("s")
	want("changed while paused", "s", "a.test", 8443)
	forks, err := s.Fork(t.Context(), e.caller, "s", lifecycle.ForkRequest{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	want("fork", string(forks[0].Sandbox.ID), "a.test", 8443)
	s.kill()
	s = e.start()
	want("after a crash", "s", "a.test", 8443)
	if found, ok := s.ByLabel(sb.HostLabel); !ok || found.Network.HostFor(8443) != "a.test" || !found.Network.SpeaksHTTPS(8443) {
		t.Errorf("the proxy finds %+v, %v", found.Network, ok)
	}
	page, err := s.Events(t.Context(), e.caller, "s", sandbox.EventFilter{})
	if err != nil {
		t.Fatal(err)
	}
	events := slices.DeleteFunc(page.Items, func(ev sandbox.Event) bool { return ev.Type != sandbox.EventNetwork })
	if len(events) != 1 || events[0].Data["request_host"] != "a.test" || !strings.Contains(events[0].Message, "a.test") {
		t.Errorf("events of the network: %+v, want one with the host", events)
	}
}

func TestSetRules(t *testing.T) {
	e, n := withNetwork(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "s", Network: sandbox.Network{Enabled: true}})
	set := func(change network.Change, allow, deny []string) {
		t.Helper()
		got, err := s.Networks().Set(t.Context(), e.caller, "s", change)
		if diff := cmp.Diff(sandbox.Network{Enabled: true, AllowOut: allow, DenyOut: deny}, got.Network); err != nil || diff != "" {
			t.Errorf("Set(): %v (-want +got):\n%s", err, diff)
		}
	}
	set(network.Change{AllowOut: &allowed}, allowed, denied)
	n.wantRules(t, sb.ID, allowed, denied)
	set(network.Change{AllowOut: &allowed, DenyOut: &denied}, allowed, denied) // no change, no event
	one := []string{"1.1.1.1"}
	set(network.Change{AllowOut: &one}, one, denied)
	set(network.Change{DenyOut: &[]string{}}, one, nil)
	n.wantRules(t, sb.ID, one, nil)
	s.pause("s")
	set(network.Change{AllowOut: &[]string{}, DenyOut: &one}, nil, one)
	s.resume("s")
	n.wantRules(t, sb.ID, nil, one)
	set(network.Change{DenyOut: &[]string{}}, nil, nil)
	n.wantRules(t, sb.ID, nil, nil)
	page, err := s.Events(t.Context(), e.caller, "s", sandbox.EventFilter{})
	if err != nil {
		t.Fatal(err)
	}
	events := slices.DeleteFunc(page.Items, func(ev sandbox.Event) bool { return ev.Type != sandbox.EventNetwork })
	if len(events) != 5 {
		t.Errorf("%d events of the network, want one for each of 5 changes", len(events))
	}
	if ev := events[0]; ev.Data["allow_out"] != strings.Join(allowed, " ") || ev.Data["deny_out"] != denied[0] || !strings.Contains(ev.Message, "pypi.org") {
		t.Errorf("first event: %+v", ev)
	}

	for field, change := range map[string]network.Change{
		"allow_out[1]": {AllowOut: &[]string{"1.1.1.1", "https://pypi.org"}},
		"deny_out[0]":  {DenyOut: &[]string{"pypi.org"}},
		"deny_out":     {AllowOut: &allowed, DenyOut: &[]string{}},
		"allow_out":    {AllowOut: new(slices.Repeat(one, 101))},
	} {
		_, err := s.Networks().Set(t.Context(), e.caller, "s", change)
		var coded *sandbox.Error
		if !errors.As(err, &coded) || coded.Code != sandbox.Invalid || coded.Field != field {
			t.Errorf("%s: %v, want invalid", field, err)
		}
	}
	_, _, err = s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Network: sandbox.Network{AllowOut: []string{"::1"}}})
	var coded *sandbox.Error
	if !errors.As(err, &coded) || coded.Field != "network.allow_out[0]" {
		t.Errorf("create: %v, want invalid network.allow_out[0]", err)
	}
}
