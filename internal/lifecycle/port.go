package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// portURL is the label of a published port, as the index has it.
type portURL struct {
	box  *entry
	port sandbox.PublishedPort
	// ctx ends when the label does not lead to the port any more, or not for everybody.
	ctx    context.Context
	cancel context.CancelFunc
}

// is reports whether u leads where p does, for the same visitors.
func (u *portURL) is(p sandbox.PublishedPort) bool {
	return u.port.Port == p.Port && u.port.Label == p.Label && u.port.Access == p.Access
}

// publish replaces the labels of b in the index by the labels of its published ports.
func (x *boxes) publish(b *entry) {
	ports := b.View().Sandbox.Published
	x.mu.Lock()
	defer x.mu.Unlock()
	x.publishLocked(b, ports)
}

// publishLocked replaces the labels of b in the index by the labels of ports. It cuts off the users
// of a label that disappears or becomes private.
//
// Preconditions: x.mu is held.
func (x *boxes) publishLocked(b *entry, ports []sandbox.PublishedPort) {
	var list []*portURL
	for _, p := range ports {
		switch old := x.ports[p.Label]; {
		case old == nil || old.box == b && !old.is(p):
		case old.box == b:
			list = append(list, old)
			continue
		default: // two labels of 100 random bits are the same: it stays with whom it was given first
			continue
		}
		u := &portURL{box: b, port: p}
		u.ctx, u.cancel = context.WithCancel(context.Background())
		list = append(list, u)
	}
	for _, old := range b.published {
		if !slices.Contains(list, old) {
			delete(x.ports, old.port.Label)
			old.cancel() // the functions that wait for the context run elsewhere
		}
	}
	for _, u := range list {
		x.ports[u.port.Label] = u
	}
	b.published = list
}

func (x *boxes) byPortLabel(label string) *portURL {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.ports[label]
}

// ByPortLabel returns the sandbox that publishes a port with that label, and the port; ctx ends
// when the label does not lead there any more, or the port's access changes. Every request to a
// port's URL calls it, so it reads memory only: guesses of labels cost next to nothing. Errors:
// NotFound, also when the sandbox has ended.
func (s *Service) ByPortLabel(label string) (sb sandbox.Sandbox, port sandbox.PublishedPort, ctx context.Context, err error) {
	u := s.boxes.byPortLabel(label)
	if u == nil {
		return sandbox.Sandbox{}, sandbox.PublishedPort{}, nil, sandbox.Errorf(sandbox.NotFound, "there is no published port with this label")
	}
	return u.box.Sandbox(), u.port, u.ctx, nil
}

// PortChange says what to do with a port of a sandbox.
type PortChange struct {
	Port uint16
	// Access publishes the port, for these; "" leaves the access of a published port as it is.
	Access sandbox.PortAccess
	// Relabel gives a published port a new URL; the old one stops working at once.
	Relabel bool
	// Remove unpublishes the port: its URL stops working at once.
	Remove bool
}

// ChangePort changes a published port of a sandbox in any state but an ended one, or
// publishes it. Requests that are under way to a URL that stops working, or whose
// access changes, are cut off. It returns the sandbox as it is then.
//
// Errors: Invalid, naming port or access; NotFound, also for a port that is not
// published when Access is ""; Ended; QuotaExceeded beyond [sandbox.PortsMax] ports.
func (s *Service) ChangePort(ctx context.Context, c sandbox.Caller, ref string, change PortChange) (sandbox.Sandbox, error) {
	if err := s.ready(); err != nil {
		return sandbox.Sandbox{}, err
	}
	if err := checkPorts("port", []uint16{change.Port}); err != nil {
		return sandbox.Sandbox{}, err
	}
	if change.Access != "" && !change.Access.Valid() {
		return sandbox.Sandbox{}, sandbox.InvalidField("access", "must be %s or %s", sandbox.PortPublic, sandbox.PortPrivate)
	}
	b, sb, err := s.find(ctx, c, ref)
	switch {
	case err != nil:
		return sandbox.Sandbox{}, err
	case b == nil:
		return sandbox.Sandbox{}, box.StateError(&sb)
	}
	e := audit.FromContext(ctx)
	e.Detail("port", strconv.Itoa(int(change.Port)))
	if change.Access != "" {
		e.Detail("access", string(change.Access))
	}
	sb, err = s.recordNetwork(b, func(sb *sandbox.Sandbox) error { return change.apply(sb, time.Now().UTC()) })
	return c.Shown(sb), err
}

// apply makes the change to sb, whose lists it may change.
func (change *PortChange) apply(sb *sandbox.Sandbox, now time.Time) error {
	i := slices.IndexFunc(sb.Published, func(p sandbox.PublishedPort) bool { return p.Port == change.Port })
	if i < 0 {
		if change.Remove || change.Relabel || change.Access == "" {
			return sandbox.Errorf(sandbox.NotFound, "the sandbox does not publish port %d", change.Port)
		}
		if len(sb.Published) >= sandbox.PortsMax {
			return sandbox.Errorf(sandbox.QuotaExceeded, "the sandbox publishes %d ports, which is the limit; remove some", len(sb.Published))
		}
		i = len(sb.Published)
		sb.Publish(append(slices.Clone(sb.Network.Ports), change.Port), now)
	}
	if change.Remove {
		sb.Publish(slices.Delete(slices.Clone(sb.Network.Ports), i, i+1), now)
		return nil
	}
	if change.Access != "" {
		sb.Published[i].Access = change.Access
	}
	if change.Relabel {
		sb.Published[i].Label, sb.Published[i].LabeledAt = sandbox.PortLabel(change.Port), now
	}
	return nil
}

// portsMessage says in an event which ports are published, without their labels.
func portsMessage(ports []sandbox.PublishedPort) string {
	if len(ports) == 0 {
		return ""
	}
	list := make([]string, len(ports))
	for i, p := range ports {
		list[i] = fmt.Sprintf("%d (%s)", p.Port, p.Access)
	}
	return "; it publishes " + strings.Join(list, ", ")
}
