package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/modbox/modbox/internal/netrule"
)

const (
	// maxAnswers bounds the addresses that a sandbox may reach because of names at a time.
	maxAnswers = 1024
	// maxAnswered bounds the addresses of one answer; a sandbox does not see the others.
	maxAnswered = 64
	// answerGrace is added to the TTL of an answer, for programs that connect late.
	answerGrace = time.Minute
	// maxAliases bounds the aliases that lead from a name to its addresses.
	maxAliases = 16
)

// restriction enforces the rules of a sandbox. A rule about a name allows the addresses with which
// the gateway itself answered the sandbox's questions about that name, for the TTL of the answer. It
// is safe for concurrent use.
type restriction struct {
	mu      sync.Mutex
	rules   *netrule.Rules              // guarded by mu; nil allows everything
	answers map[netip.Addr]answeredName // of allowed names; guarded by mu
	open    map[*permission]struct{}    // guarded by mu
}

// answeredName is a name that led to an address.
type answeredName struct {
	name  string
	until time.Time
}

// permission is the permission of an open flow.
type permission struct {
	flow Flow
	// cut ends the flow; it does not wait.
	cut func()
	// names are the allowed name that led to the destination and the names that the flow itself asks
	// for, which must all stay allowed; nil if the ranges allow the destination. It is guarded by the
	// restriction's mu.
	names []string
}

// check returns nil for an allowed flow, and an error that wraps [errRefused] for another.
func (r *restriction) check(flow Flow) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.find(flow)
	return err
}

// find returns the name that allows a flow, "" if the ranges do.
//
// Preconditions: r.mu is held.
func (r *restriction) find(flow Flow) (string, error) {
	if flow.Protocol == DNS {
		if !r.rules.Resolves(flow.Name) {
			return "", fmt.Errorf("%w: the rules of the sandbox do not allow the name %s", errRefused, flow.Name)
		}
		return "", nil
	}
	if r.rules.Address(flow.Dest.Addr()) {
		return "", nil
	}
	// A name does not allow UDP: QUIC would lead to any other name at the same address.
	if found, ok := r.answers[flow.Dest.Addr()]; ok && flow.Protocol != UDP && time.Now().Before(found.until) {
		return found.name, nil
	}
	return "", fmt.Errorf("%w: the rules of the sandbox do not allow %s", errRefused, flow.Dest.Addr())
}

// enter notes an open flow until leave, and refuses it if the rules have changed since its check. The
// flow must end when cut is called.
func (r *restriction) enter(flow Flow, cut func()) (*permission, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, err := r.find(flow)
	if err != nil {
		return nil, err
	}
	p := &permission{flow: flow, cut: cut}
	if name != "" {
		p.names = []string{name}
	}
	if r.open == nil {
		r.open = map[*permission]struct{}{}
	}
	r.open[p] = struct{}{}
	return p, nil
}

func (r *restriction) leave(p *permission) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, p)
}

// names reports whether the rules allow any names.
func (r *restriction) names() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rules.HasNames()
}

// named reports whether only a name allows an open flow.
func (r *restriction) named(p *permission) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(p.names) > 0
}

// narrow returns an error unless the rules allow the name that an open flow asks its destination for. When the
// rules later stop allowing that name, the flow ends.
func (r *restriction) narrow(p *permission, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rules.Address(p.flow.Dest.Addr()) {
		p.names = nil // since the rules were changed; without these ranges the flow must end
		return nil
	}
	if !r.rules.Name(name) {
		return fmt.Errorf("%w: the rules of the sandbox do not allow the name %.300q, which a connection to %s asks for", errRefused, name, p.flow.Dest)
	}
	p.names = append(p.names, strings.ToLower(name))
	return nil
}

// replace replaces the rules, forgets the answers about names that they do not allow, and returns
// the functions that cut the open flows that they do not allow.
func (r *restriction) replace(rules *netrule.Rules) []func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = rules
	for addr, found := range r.answers {
		if !rules.Name(found.name) {
			delete(r.answers, addr)
		}
	}
	var cuts []func()
	for p := range r.open {
		denied := func(name string) bool { return !rules.Name(name) }
		if !rules.Address(p.flow.Dest.Addr()) && (len(p.names) == 0 || slices.ContainsFunc(p.names, denied)) {
			cuts = append(cuts, p.cut)
		}
	}
	return cuts
}

// learn notes the addresses to which an answer says that an allowed name leads, directly or by aliases.
func (r *restriction) learn(name string, answer []dns.RR) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.rules.Name(name) {
		return
	}
	names, answered := namesOf(name, answer), 0
	for _, rr := range answer {
		a, ok := rr.(*dns.A)
		if !ok || !names[strings.ToLower(a.Hdr.Name)] {
			continue
		}
		addr, ok := netip.AddrFromSlice(a.A.To4())
		if answered++; !ok || answered > maxAnswered {
			continue
		}
		ttl := min(time.Duration(a.Hdr.Ttl)*time.Second, maxTTL)
		r.note(addr, answeredName{name: name, until: time.Now().Add(ttl + answerGrace)})
	}
}

// namesOf returns a name and its aliases in an answer.
func namesOf(name string, answer []dns.RR) map[string]bool {
	names := map[string]bool{name: true}
	for range maxAliases {
		before := len(names)
		for _, rr := range answer {
			if alias, ok := rr.(*dns.CNAME); ok && names[strings.ToLower(alias.Hdr.Name)] && len(names) <= maxAliases {
				names[strings.ToLower(alias.Target)] = true
			}
		}
		if len(names) == before {
			break
		}
	}
	return names
}

// note notes an address. If there are too many, it replaces the one of a few that would end first.
//
// Preconditions: r.mu is held.
func (r *restriction) note(addr netip.Addr, found answeredName) {
	if r.answers == nil {
		r.answers = map[netip.Addr]answeredName{}
	}
	before, known := r.answers[addr]
	if before.until.After(found.until) {
		found.until = before.until
	}
	if !known && len(r.answers) >= maxAnswers {
		var first netip.Addr
		var until time.Time
		looked := 0
		for a, f := range r.answers {
			if looked == 0 || f.until.Before(until) {
				first, until = a, f.until
			}
			if looked++; looked == 8 {
				break
			}
		}
		delete(r.answers, first)
	}
	r.answers[addr] = found
}

// Restrict replaces the rules of the sandbox, and cuts the flows that they do not allow; nil allows
// everything. Rules cannot open what is closed for every sandbox or refused by the [Policy].
func (g *Gateway) Restrict(rules *netrule.Rules) {
	for _, cut := range g.restriction.replace(rules) {
		g.usage.denied.Add(1)
		cut()
	}
}
