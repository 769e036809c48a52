package netrule

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

// Everything is the range of all addresses.
const Everything = "0.0.0.0/0"

const (
	// EntriesMax is how many entries a list may have.
	EntriesMax = 100
	// entryMax bounds an entry, in bytes.
	entryMax = 255
	// nameMax and labelMax bound a name and each of its labels, in bytes, as DNS does.
	nameMax, labelMax = 253, 63
)

// List is a list of destinations, as a caller wrote it.
type List struct {
	// Field names the list in errors.
	Field string
	// Entries are IPv4 addresses, IPv4 ranges such as 198.51.100.0/24, and, if the list allows, names
	// such as example.com and *.example.com. The latter means all names beneath example.com, and not
	// example.com itself.
	Entries []string
}

// Rules say which destinations a sandbox may reach. A nil *Rules allows all. They do not change and
// are safe for concurrent use.
type Rules struct {
	allow, deny []netip.Prefix
	exact       map[string]struct{} // names, in lower case
	beneath     map[string]struct{} // the endings of names, in lower case, with their first dot
	denyAll     bool                // a denied range has all addresses
	allowAll    bool                // an allowed range has all addresses
	// allowText and denyText are the entries in one form.
	allowText, denyText []string
}

// Parse reads two lists. Errors: Invalid, naming the field with the place of the entry.
func Parse(allow, deny List) (*Rules, error) {
	r := &Rules{exact: map[string]struct{}{}, beneath: map[string]struct{}{}}
	for _, list := range []List{allow, deny} {
		if len(list.Entries) > EntriesMax {
			return nil, sandbox.InvalidField(list.Field, "has %d entries, the maximum is %d", len(list.Entries), EntriesMax)
		}
	}
	for i, entry := range deny.Entries {
		p, ok := parsePrefix(entry)
		if !ok {
			return nil, invalid(deny, i, "is not an IPv4 address or a range like 198.51.100.0/24")
		}
		r.deny = append(r.deny, p)
		r.denyAll = r.denyAll || p.Bits() == 0
		r.denyText = appendOnce(r.denyText, format(p, entry))
	}
	for i, entry := range allow.Entries {
		if p, ok := parsePrefix(entry); ok {
			r.allow = append(r.allow, p)
			r.allowAll = r.allowAll || p.Bits() == 0
			r.allowText = appendOnce(r.allowText, format(p, entry))
			continue
		}
		name, reason := canonicalName(entry)
		if reason != "" {
			return nil, invalid(allow, i, reason)
		}
		if !r.denyAll {
			return nil, sandbox.InvalidField(deny.Field, "must contain %s, because %s[%d] is a name: names allow exceptions from it", Everything, allow.Field, i)
		}
		r.allowName(name)
		r.allowText = appendOnce(r.allowText, name)
	}
	return r, nil
}

// Denied returns the denied destinations of a request. A request with allowed destinations and a nil
// list denies all destinations.
func Denied(allow, deny []string) []string {
	if deny == nil && len(allow) > 0 {
		return []string{Everything}
	}
	return deny
}

func invalid(list List, i int, reason string) error {
	return sandbox.InvalidField(fmt.Sprintf("%s[%d]", list.Field, i), "%.300q %s", list.Entries[i], reason)
}

// parsePrefix reads an address or a range.
func parsePrefix(entry string) (netip.Prefix, bool) {
	if addr, err := netip.ParseAddr(entry); err == nil && addr.Is4() {
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	p, err := netip.ParsePrefix(entry)
	return p.Masked(), err == nil && p.Addr().Is4()
}

// format returns an entry in one form: an address as it is, a range without host bits.
func format(p netip.Prefix, entry string) string {
	if !strings.Contains(entry, "/") {
		return p.Addr().String()
	}
	return p.String()
}

// canonicalName returns a name in one form, or the reason why it is invalid.
func canonicalName(entry string) (name, reason string) {
	if strings.ContainsAny(entry, ":/") {
		if _, err := netip.ParsePrefix(entry); err == nil || isIPv6(entry) {
			return "", "is an IPv6 destination; sandboxes have IPv4 only"
		}
		return "", "is not an IPv4 address, a range like 198.51.100.0/24, or a name without scheme, port and path"
	}
	if len(entry) > entryMax {
		return "", "is too long"
	}
	name = strings.ToLower(strings.TrimSuffix(entry, "."))
	if name == "*" {
		return "", "is not a name; " + Everything + " allows everything"
	}
	rest := strings.TrimPrefix(name, "*.")
	labels := strings.Split(rest, ".")
	if len(rest) > nameMax || slices.ContainsFunc(labels, func(l string) bool { return !isLabel(l) }) {
		return "", "is not a name like example.com or *.example.com (in ASCII: names of other scripts as xn--…)"
	}
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" {
		return "", "is not an IPv4 address or a name"
	}
	return name, ""
}

func isIPv6(entry string) bool {
	addr, err := netip.ParseAddr(entry)
	return err == nil && addr.Is6()
}

// isLabel reports whether s may be a label of a name in lower case.
func isLabel(s string) bool {
	if s == "" || len(s) > labelMax || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

func (r *Rules) allowName(name string) {
	if ending, ok := strings.CutPrefix(name, "*"); ok {
		r.beneath[ending] = struct{}{}
		return
	}
	r.exact[name] = struct{}{}
}

func appendOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// AllowOut and DenyOut return the entries of the lists, each in one form and once.
func (r *Rules) AllowOut() []string { return slices.Clone(r.allowText) }

// DenyOut is documented at AllowOut.
func (r *Rules) DenyOut() []string { return slices.Clone(r.denyText) }

// Address reports whether the ranges allow an address. An address that they deny may still belong to
// an allowed name.
func (r *Rules) Address(addr netip.Addr) bool {
	if r == nil {
		return true
	}
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	return slices.ContainsFunc(r.allow, within) || !slices.ContainsFunc(r.deny, within)
}

// HasNames reports whether the rules allow any names.
func (r *Rules) HasNames() bool { return r != nil && len(r.exact)+len(r.beneath) > 0 }

// Name reports whether a list allows a name, with or without a dot at its end.
func (r *Rules) Name(name string) bool {
	if !r.HasNames() {
		return false
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > nameMax {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) { // also a label that itself contains an escaped dot
			return false
		}
	}
	if _, ok := r.exact[name]; ok {
		return true
	}
	for i := range len(name) {
		if name[i] != '.' {
			continue
		}
		if _, ok := r.beneath[name[i:]]; ok {
			return true
		}
	}
	return false
}

// Resolves reports whether the sandbox may resolve a name: any name, unless everything but the
// exceptions is denied. Then questions about other names could carry data to their servers.
func (r *Rules) Resolves(name string) bool {
	return r == nil || !r.denyAll || r.allowAll || r.Name(name)
}
