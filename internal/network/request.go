package network

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// hostMax and labelMax bound a host without its port, and each of its labels, in bytes, as DNS does.
	hostMax, labelMax = 253, 63
	// longestPort is a port with the most digits, which is also the highest.
	longestPort = "65535"
)

// CheckRequests checks how requests are to reach the servers of a requested network. Errors: Invalid,
// naming a field that begins with prefix.
func CheckRequests(prefix string, n *sandbox.Network) error {
	if err := CheckPorts(prefix+"https_ports", n.HTTPSPorts); err != nil {
		return err
	}
	return CheckHost(prefix+"request_host", n.RequestHost)
}

// CheckHost checks a [sandbox.Network.RequestHost]. It becomes the header of a request: nothing but a
// host, with a port or without, may pass. Errors: Invalid, naming the field.
func CheckHost(field, host string) error {
	if host != "" && !isHost(strings.ReplaceAll(host, sandbox.PortPlaceholder, longestPort)) {
		return sandbox.InvalidField(field, "%.300q is not a host such as localhost, example.com or localhost:%s", host, sandbox.PortPlaceholder)
	}
	return nil
}

// isHost reports whether s is a name, an IPv4 address or an IPv6 address in brackets, with a port or without.
func isHost(s string) bool {
	name := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		port, err := strconv.ParseUint(s[i+1:], 10, 16)
		if err != nil || port == 0 || strconv.FormatUint(port, 10) != s[i+1:] {
			return false
		}
		name = s[:i]
	}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return strings.HasSuffix(inner, "]") && err == nil && addr.Is6() && addr.Zone() == ""
	}
	if len(name) > hostMax {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

// isLabel reports whether s may be a label of a host.
func isLabel(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return s != "" && len(s) <= labelMax && s[0] != '-' && s[len(s)-1] != '-' && strings.Trim(s, letters) == ""
}

// applyRequests makes the change of how requests reach servers to n.
func (change *Change) applyRequests(n *sandbox.Network) {
	if change.RequestHost != nil {
		n.RequestHost = *change.RequestHost
	}
	if change.HTTPSPorts != nil {
		n.HTTPSPorts = *change.HTTPSPorts
	}
}

// requestsMessage describes for an event how requests reach servers.
func requestsMessage(n *sandbox.Network) string {
	var b strings.Builder
	if n.RequestHost != "" {
		b.WriteString("; its servers see the host " + n.RequestHost)
	}
	if len(n.HTTPSPorts) > 0 {
		b.WriteString("; its servers speak HTTPS on " + strings.Trim(fmt.Sprint(n.HTTPSPorts), "[]"))
	}
	return b.String()
}
