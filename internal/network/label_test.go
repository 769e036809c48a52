package network

import (
	"testing"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// want returns the port of a label. It fails the test if the label does not lead to b.
func (x *labels) want(t *testing.T, label string, b *box.Box) *portURL {
	t.Helper()
	u := x.byLabel[label]
	if u == nil || u.box != b || u.ctx.Err() != nil {
		t.Fatalf("label %s leads to %+v, want box %s", label, u, b.ID)
	}
	return u
}

func TestReplaceLabels(t *testing.T) {
	group := background.New()
	a, b := box.New(group, "a", nil), box.New(group, "b", nil)
	x := newLabels()
	one := sandbox.PublishedPort{Port: 1, Label: "one", Access: sandbox.PortPublic}
	two := sandbox.PublishedPort{Port: 2, Label: "two", Access: sandbox.PortPublic}
	x.replace(a, []sandbox.PublishedPort{one, two})
	first, second := x.want(t, "one", a), x.want(t, "two", a)

	// The same label of another box stays with the first box.
	x.replace(b, []sandbox.PublishedPort{{Port: 9, Label: "one", Access: sandbox.PortPublic}})
	x.want(t, "one", a)
	x.replace(b, nil)
	x.want(t, "one", a)

	private := two
	private.Access = sandbox.PortPrivate
	x.replace(a, []sandbox.PublishedPort{one, private})
	if x.want(t, "one", a) != first || first.ctx.Err() != nil {
		t.Error("an unchanged port lost its visitors")
	}
	if x.want(t, "two", a) == second || second.ctx.Err() == nil {
		t.Error("a port became private and its visitors stay")
	}
	x.replace(a, nil)
	if len(x.byLabel) != 0 || len(x.byBox) != 0 || first.ctx.Err() == nil {
		t.Errorf("after the end: labels %v, boxes %v, visitors %v", x.byLabel, x.byBox, first.ctx.Err())
	}
}
