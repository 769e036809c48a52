package sandbox

import (
	"crypto/rand"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// PortAccess names the credential that visitors of a published port must present.
type PortAccess string

// The kinds of access to a published port.
const (
	// PortPublic asks for nothing beside the port's URL.
	PortPublic PortAccess = "public"
	// PortPrivate asks for an API token that may use the sandbox, or a signed link.
	PortPrivate PortAccess = "private"
)

// Valid reports whether a is one of the kinds of access.
func (a PortAccess) Valid() bool { return a == PortPublic || a == PortPrivate }

// PublishedPort is a port of a sandbox with a URL of its own.
type PublishedPort struct {
	Port uint16 `json:"port"`
	// Label is the label of its URL, see [PortLabel]. It leads to this port and to
	// nothing else of the sandbox.
	Label  string     `json:"label"`
	Access PortAccess `json:"access"`
	// LabeledAt is when the label was made.
	LabeledAt time.Time `json:"labeled_at"`
}

// portLabelRandomBytes are 100 bits with 20 characters of 5 bits each: a byte beyond
// is dropped from the text.
const (
	portLabelRandomBytes = 13
	portLabelRandom      = 20
)

// portLabel is the form of all labels of ports. No host label of a sandbox has it:
// there the last part has 16 characters.
var portLabel = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^p[1-9][0-9]{0,4}-[a-z0-9]{20}$`) })

// PortLabel returns a new label for the URL of a port: "p", the port for people, a
// dash, and 100 random bits. It tells nothing about its sandbox.
func PortLabel(port uint16) string {
	var random [portLabelRandomBytes]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand aborts the program instead
	return "p" + strconv.Itoa(int(port)) + "-" + labelEncoding.EncodeToString(random[:])[:portLabelRandom]
}

// IsPortLabel reports whether label has the form of labels of ports, and so is no
// host label of a sandbox.
func IsPortLabel(label string) bool { return portLabel().MatchString(label) }

// Publish sets the published ports: a port that was published before keeps its label and access,
// other ports get a label and are public.
func (s *Sandbox) Publish(ports []uint16, now time.Time) {
	s.Network.Ports, s.Published = nil, publish(s.Published, ports, now)
	for _, p := range s.Published {
		s.Network.Ports = append(s.Network.Ports, p.Port)
	}
}

func publish(before []PublishedPort, ports []uint16, now time.Time) []PublishedPort {
	var list []PublishedPort
	for _, port := range ports {
		if old, ok := find(before, port); ok {
			list = append(list, old)
			continue
		}
		list = append(list, PublishedPort{Port: port, Label: PortLabel(port), Access: PortPublic, LabeledAt: now})
	}
	return list
}

// Relabel gives every published port a new label: the URLs of another sandbox, of
// which s is a copy, do not lead to it.
func (s *Sandbox) Relabel(now time.Time) {
	list := make([]PublishedPort, 0, len(s.Published))
	for _, p := range s.Published {
		p.Label, p.LabeledAt = PortLabel(p.Port), now
		list = append(list, p)
	}
	s.Published = list
}

// PublishedPort returns a port that the sandbox publishes, and false for any other.
func (s *Sandbox) PublishedPort(port uint16) (PublishedPort, bool) { return find(s.Published, port) }

func find(list []PublishedPort, port uint16) (PublishedPort, bool) {
	for _, p := range list {
		if p.Port == port {
			return p, true
		}
	}
	return PublishedPort{}, false
}

// URLAccess names the credential that callers of the management routes on a sandbox's
// own URL, such as /modbox/api/exec, must present.
type URLAccess string

// The kinds of access to management routes.
const (
	// URLOpen is the sandbox's SANDBOX_API_KEY if it has one; else the URL is enough. In
	// a sandbox "" means URLOpen as well.
	URLOpen URLAccess = "open"
	// URLKey is the sandbox's SANDBOX_API_KEY or an API token that may use the sandbox.
	URLKey URLAccess = "key"
)

// Valid reports whether a is one of the kinds of access.
func (a URLAccess) Valid() bool { return a == URLOpen || a == URLKey }
