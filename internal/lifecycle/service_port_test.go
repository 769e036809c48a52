package lifecycle_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/sandbox"
)

// portURL is where a label leads; ctx is nil when that is nowhere.
func (s *server) portURL(label string) (sandbox.ID, uint16, context.Context) {
	s.t.Helper()
	sb, p, ctx, err := s.Networks().ByPortLabel(label)
	if err != nil {
		if sandbox.CodeOf(err) != sandbox.NotFound {
			s.t.Errorf("ByPortLabel(%s): %v", label, err)
		}
		return "", 0, nil
	}
	if ctx.Err() != nil {
		s.t.Errorf("ByPortLabel(%s) leads to port %d, and has ended", label, p.Port)
	}
	return sb.ID, p.Port, ctx
}

func (s *server) changePort(ref string, change network.PortChange) sandbox.Sandbox {
	s.t.Helper()
	sb, err := s.Networks().ChangePort(s.t.Context(), s.caller, ref, change)
	if err != nil {
		s.t.Fatalf("ChangePort(%+v): %v", change, err)
	}
	return sb
}

func TestPortsHaveLabelsOfTheirOwn(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "s", Network: sandbox.Network{Ports: []uint16{80, 81}}})
	first := sb.Published
	if len(first) != 2 || first[0].Access != sandbox.PortPublic {
		t.Fatalf("published %+v", first)
	}
	for _, p := range first {
		if id, port, _ := s.portURL(p.Label); id != sb.ID || port != p.Port {
			t.Errorf("label of port %d leads to port %d of %q", p.Port, port, id)
		}
		if _, ok := s.ByLabel(p.Label); ok {
			t.Errorf("the label of port %d leads to the sandbox", p.Port)
		}
		if _, err := s.EndedByLabel(t.Context(), p.Label); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("the label of port %d leads to the sandbox: %v", p.Port, err)
		}
	}
	if id, _, _ := s.portURL(sb.HostLabel); id != "" {
		t.Error("the label of the sandbox leads to a port")
	}

	// An unchanged port keeps its label and its connections.
	_, _, ctx80 := s.portURL(first[0].Label)
	_, _, ctx81 := s.portURL(first[1].Label)
	s.pause("s")
	private := s.changePort("s", network.PortChange{Port: 81, Access: sandbox.PortPrivate})
	if ctx81.Err() == nil || ctx80.Err() != nil {
		t.Errorf("after port 81 was made private: 80 %v, 81 %v, want the visitors of 81 cut off", ctx80.Err(), ctx81.Err())
	}
	if private.Published[1].Label != first[1].Label || private.Published[1].Access != sandbox.PortPrivate || private.State != sandbox.Paused {
		t.Errorf("made private while paused: %s %+v", private.State, private.Published[1])
	}
	s.resume("s")
	_, _, ctx81 = s.portURL(first[1].Label)
	rotated := s.changePort("s", network.PortChange{Port: 81, Relabel: true})
	if id, _, _ := s.portURL(first[1].Label); id != "" || ctx81.Err() == nil || rotated.Published[1].Access != sandbox.PortPrivate {
		t.Errorf("after a new URL the old one leads to %q, %v; published %+v", id, ctx81.Err(), rotated.Published)
	}
	added := s.changePort("s", network.PortChange{Port: 82, Access: sandbox.PortPrivate})
	if len(added.Published) != 3 || added.Published[2].Port != 82 || added.Port() != 80 {
		t.Errorf("published %+v", added.Published)
	}
	if ctx80.Err() != nil {
		t.Errorf("visitors of port 80 were cut off by changes of others: %v", ctx80.Err())
	}
	stored, err := s.store.SandboxByID(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(added.Published, stored.Published); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}

	// A fork has labels of its own, and so has what is restarted.
	s.stop()
	s = e.start()
	for _, p := range added.Published {
		if id, port, _ := s.portURL(p.Label); id != sb.ID || port != p.Port {
			t.Errorf("after a restart the label of port %d leads to port %d of %q", p.Port, port, id)
		}
	}
	forks, err := s.Fork(t.Context(), e.caller, "s", lifecycle.ForkRequest{Count: 1})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	fork := forks[0].Sandbox
	for i, p := range fork.Published {
		if p.Label == added.Published[i].Label || p.Access != added.Published[i].Access {
			t.Errorf("the fork publishes %+v, its parent %+v", p, added.Published[i])
		}
		if id, _, _ := s.portURL(p.Label); id != fork.ID {
			t.Errorf("the fork's label leads to %q", id)
		}
	}
	_, _, ctx82 := s.portURL(added.Published[2].Label)
	if left := s.changePort("s", network.PortChange{Port: 82, Remove: true}); len(left.Published) != 2 || ctx82.Err() == nil {
		t.Errorf("after port 82 was unpublished: %+v, %v", left.Published, ctx82.Err())
	}
	again := s.changePort("s", network.PortChange{Port: 82, Access: sandbox.PortPublic})
	if again.Published[2].Label == added.Published[2].Label {
		t.Error("a port that is published again has its old label")
	}

	// The end.
	_, _, ctx82 = s.portURL(again.Published[2].Label)
	s.destroy("s")
	if id, _, _ := s.portURL(again.Published[2].Label); id != "" || ctx82.Err() == nil {
		t.Errorf("after the end the label leads to %q, %v", id, ctx82.Err())
	}
	if _, err := s.Networks().ChangePort(t.Context(), e.caller, "s", network.PortChange{Port: 80, Relabel: true}); sandbox.CodeOf(err) != sandbox.Ended {
		t.Errorf("ChangePort() of an ended sandbox: %v", err)
	}
}

func fieldOf(err error) string {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Field
}

func TestChangePortRefuses(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	ports := make([]uint16, sandbox.PortsMax)
	for i := range ports {
		ports[i] = uint16(3000 + i)
	}
	sb := s.run(lifecycle.CreateRequest{Name: "s", Network: sandbox.Network{Ports: ports}})
	for _, tc := range []struct {
		name   string
		ref    string
		change network.PortChange
		want   sandbox.Code
		field  string
	}{
		{"no_port", "s", network.PortChange{Access: sandbox.PortPublic}, sandbox.Invalid, "port"},
		{"agents_port", "s", network.PortChange{Port: 49983, Access: sandbox.PortPublic}, sandbox.Invalid, "port"},
		{"unknown_access", "s", network.PortChange{Port: 80, Access: "secret"}, sandbox.Invalid, "access"},
		{"too_many", "s", network.PortChange{Port: 80, Access: sandbox.PortPublic}, sandbox.QuotaExceeded, ""},
		{"relabel_unpublished", "s", network.PortChange{Port: 80, Relabel: true}, sandbox.NotFound, ""},
		{"remove_unpublished", "s", network.PortChange{Port: 80, Remove: true}, sandbox.NotFound, ""},
		{"no_sandbox", "none", network.PortChange{Port: 80, Access: sandbox.PortPublic}, sandbox.NotFound, ""},
	} {
		_, err := s.Networks().ChangePort(t.Context(), e.caller, tc.ref, tc.change)
		if sandbox.CodeOf(err) != tc.want || tc.field != "" && fieldOf(err) != tc.field {
			t.Errorf("%s: %v, want %s naming %q", tc.name, err, tc.want, tc.field)
		}
	}
	if diff := cmp.Diff(sb.Published, s.get("s").Published); diff != "" {
		t.Errorf("what was refused changed something (-before +after):\n%s", diff)
	}
	viewer := e.caller
	viewer.ReadOnly = true
	shown, err := s.Get(t.Context(), viewer, "s")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range shown.Published {
		if p.Label != "" {
			t.Errorf("who may only look is shown the label of port %d", p.Port)
		}
	}
	if s.get("s").Published[0].Label == "" {
		t.Error("hiding labels from one caller hid them from all")
	}
}
