package network

import (
	"fmt"
	"strings"

	"github.com/modbox/modbox/internal/netrule"
	"github.com/modbox/modbox/internal/sandbox"
)

// listTextMax bounds the text of a list of destinations in events and in the audit log, in bytes.
const listTextMax = 1024

// CheckRules checks the destinations of a requested network, and brings them into the form in which
// they are recorded. Errors: Invalid, naming a field that begins with prefix.
func CheckRules(prefix string, n *sandbox.Network) error {
	deny := netrule.Denied(n.AllowOut, n.DenyOut)
	rules, err := netrule.Parse(netrule.List{Field: prefix + "allow_out", Entries: n.AllowOut}, netrule.List{Field: prefix + "deny_out", Entries: deny})
	if err != nil {
		return err
	}
	n.AllowOut, n.DenyOut = rules.AllowOut(), rules.DenyOut()
	if n.DenyOut == nil && n.AllowOut != nil {
		n.DenyOut = []string{} // so that they mean the same when they are checked again
	}
	return nil
}

// applyRules makes the change of the destinations to n.
func (change *Change) applyRules(n *sandbox.Network) error {
	if change.AllowOut == nil && change.DenyOut == nil {
		return nil
	}
	if change.AllowOut != nil {
		n.AllowOut = *change.AllowOut
	}
	if change.DenyOut != nil {
		n.DenyOut = append([]string{}, *change.DenyOut...) // not nil, which would deny all others
	}
	return CheckRules("", n)
}

// rulesOf returns the rules of a sandbox, nil for none.
func rulesOf(sb *sandbox.Sandbox) (*netrule.Rules, error) {
	n := &sb.Network
	if len(n.AllowOut)+len(n.DenyOut) == 0 {
		return nil, nil
	}
	rules, err := netrule.Parse(netrule.List{Field: "allow_out", Entries: n.AllowOut}, netrule.List{Field: "deny_out", Entries: n.DenyOut})
	if err != nil {
		return nil, fmt.Errorf("read the network rules of sandbox %s: %w", sb.ID, err)
	}
	return rules, nil
}

// rulesMessage describes the destinations for an event.
func rulesMessage(n *sandbox.Network) string {
	if len(n.DenyOut) == 0 {
		return ""
	}
	message := ", but not to " + listText(n.DenyOut)
	if len(n.AllowOut) > 0 {
		message += "; always allowed: " + listText(n.AllowOut)
	}
	return message
}

// listText returns a list as a short text.
func listText(list []string) string {
	var b strings.Builder
	for i, entry := range list {
		if b.Len()+len(entry) > listTextMax {
			fmt.Fprintf(&b, " and %d more", len(list)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(entry)
	}
	return b.String()
}
