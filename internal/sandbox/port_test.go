package sandbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestPortLabels: no label of a port can be the label of a sandbox, whatever the sandbox is called,
// and vice versa.
func TestPortLabels(t *testing.T) {
	seen := map[string]bool{}
	for i := range 1000 {
		port := uint16(1 + i*65)
		label := sandbox.PortLabel(port)
		if !sandbox.IsPortLabel(label) || seen[label] || len(label) > 63 {
			t.Errorf("PortLabel(%d) = %q", port, label)
		}
		seen[label] = true
		for _, name := range []string{fmt.Sprintf("p%d", port), label, strings.TrimSuffix(label, label[len(label)-4:]), ""} {
			if host := sandbox.HostLabel(name); sandbox.IsPortLabel(host) {
				t.Errorf("the host label %q of a sandbox called %q looks like the label of a port", host, name)
			}
		}
	}
	for _, other := range []string{"", "p3000", "p0-abcdefghijkmnpqrstuv", "p3000--abcdefghijkmnpqrstuv", "3000-abcdefghijkmnpqrstuv", "p3000-abcdefghijkmnpqrstuvw", "P3000-abcdefghijkmnpqrstuv"} {
		if sandbox.IsPortLabel(other) {
			t.Errorf("IsPortLabel(%q) = true", other)
		}
	}
}

func TestPublishKeepsWhatStays(t *testing.T) {
	then, now := time.Unix(1, 0).UTC(), time.Unix(2, 0).UTC()
	var sb sandbox.Sandbox
	sb.Publish([]uint16{80, 81, 82}, then)
	sb.Published[1].Access = sandbox.PortPrivate
	before := sb
	sb.Publish([]uint16{82, 90, 81}, now)
	if diff := cmp.Diff([]uint16{82, 90, 81}, sb.Network.Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	want := []sandbox.PublishedPort{before.Published[2], {Port: 90, Label: sb.Published[1].Label, Access: sandbox.PortPublic, LabeledAt: now}, before.Published[1]}
	if diff := cmp.Diff(want, sb.Published); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
	fork := sb
	fork.Relabel(now)
	for i, p := range fork.Published {
		if p.Label == sb.Published[i].Label || p.Port != sb.Published[i].Port || p.Access != sb.Published[i].Access {
			t.Errorf("a fork publishes %+v, its parent %+v", p, sb.Published[i])
		}
	}
}
