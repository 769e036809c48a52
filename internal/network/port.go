package network

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// CheckPorts checks the ports in a field that a caller wants published. Errors: Invalid, naming the
// field.
func CheckPorts(field string, ports []uint16) error {
	if len(ports) > sandbox.PortsMax {
		return sandbox.InvalidField(field, "must be at most %d", sandbox.PortsMax)
	}
	for i, port := range ports {
		switch {
		case port == 0:
			return sandbox.InvalidField(field, "must be 1 to 65535")
		case port == driver.AgentPort:
			return sandbox.InvalidField(field, "%d is the agent's own port", port)
		case slices.Contains(ports[:i], port):
			return sandbox.InvalidField(field, "has %d twice", port)
		}
	}
	return nil
}

// PortChange says how to change a port of a sandbox.
type PortChange struct {
	Port uint16
	// Access publishes the port with this access; "" leaves the access of a published port as it is.
	Access sandbox.PortAccess
	// Relabel gives a published port a new URL; the old URL stops working at once.
	Relabel bool
	// Remove unpublishes the port: its URL stops working at once.
	Remove bool
}

// ChangePort changes a published port of a sandbox in any state but an ended one, or publishes it.
// It cuts off the requests to a URL that stops working, or whose access changes. It returns the
// changed sandbox.
//
// Errors: Invalid, naming port or access; NotFound, also for a port that is not published when
// Access is ""; Ended; QuotaExceeded beyond [sandbox.PortsMax] ports.
func (s *Service) ChangePort(ctx context.Context, c sandbox.Caller, ref string, change PortChange) (sandbox.Sandbox, error) {
	if !s.deps.Work.Running() {
		return sandbox.Sandbox{}, box.ErrClosed
	}
	if err := CheckPorts("port", []uint16{change.Port}); err != nil {
		return sandbox.Sandbox{}, err
	}
	if change.Access != "" && !change.Access.Valid() {
		return sandbox.Sandbox{}, sandbox.InvalidField("access", "must be %s or %s", sandbox.PortPublic, sandbox.PortPrivate)
	}
	b, sb, err := s.deps.Sandboxes.Find(ctx, c, ref)
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
	sb, err = s.record(b, func(sb *sandbox.Sandbox) error { return change.apply(sb, time.Now().UTC()) })
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

// portsMessage lists the published ports for an event, without their labels.
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
