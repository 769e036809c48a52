package config

import (
	"cmp"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// RoleControl is the role of a server that runs no sandboxes itself.
const RoleControl = "control"

// validateRole finds settings that contradict the role of the server.
func (c *Config) validateRole(bad func(name, format string, args ...any)) {
	oneOf(bad, "role", c.Role, "all", RoleControl)
	switch {
	case !c.Standby && c.Replica.Active > 1:
		bad("replica.active", "several active servers need standby")
	case !c.Standby:
	case c.Role != RoleControl:
		bad("standby", "it needs role control: only workers keep sandboxes that another server can take over")
	case c.Database.URL == "":
		bad("standby", "it needs PostgreSQL (database.url), whose lock makes sure that only a single server is active")
	case len(c.TLS.ACME.Hosts) > 0:
		bad("standby", "it does not go with tls.acme.hosts, as only a single server can answer the challenges: set tls.cert and tls.key, or use a TLS proxy")
	}
	if c.Role != RoleControl {
		return
	}
	if c.Worker.Listen == "" {
		bad("role", "a control server runs no sandboxes itself: set worker.listen to an address for its workers")
	}
	const ofWorkers = "a control server runs no sandboxes itself: give this setting to the workers, and leave it out here"
	if c.CgroupParent != "" {
		bad("cgroup_parent", ofWorkers)
	}
	if c.Capacity.PauseBelow != 0 {
		bad("capacity.pause_below", "a control server does not know how much memory is available on the machines of its workers")
	}
	if c.Sandbox.Platform != Default().Sandbox.Platform {
		bad("sandbox.platform", ofWorkers)
	}
}

// Replica configures a server with standbys.
type Replica struct {
	Active  int    `yaml:"active" doc:"Experimental: number of servers that work at the same time, each on a part of the sandboxes and with workers of its own: 1, 2, 4, 8 or 16, the same for all servers, with standby. Further servers are standbys for every part."`
	Address string `yaml:"address" doc:"Host, or host and port, at which the other servers of a setup with standbys reach worker.listen of this server: while it is active, they forward requests there. In Kubernetes the IP address of the Pod. Empty: the address of worker.listen, or, if that is all addresses, the host name."`
}

// At returns the address at which other servers reach the listener of workers.
func (r Replica) At(listening net.Addr) string {
	host, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return listening.String()
	}
	if _, _, err := net.SplitHostPort(r.Address); err == nil {
		return r.Address
	}
	if ip := net.ParseIP(host); r.Address == "" && ip != nil && ip.IsUnspecified() {
		host, _ = os.Hostname()
	}
	return net.JoinHostPort(cmp.Or(r.Address, host), port)
}

// Parts returns the parts of the sandboxes; each active server owns a part.
func (r Replica) Parts() []sandbox.Ranges { return sandbox.Parts(max(1, r.Active)) }

func (r Replica) validate(bad func(name, format string, args ...any)) {
	if !slices.Contains([]int{1, 2, 4, 8, sandbox.RangeCount}, r.Active) {
		bad("replica.active", "it is 1, 2, 4, 8 or %d", sandbox.RangeCount)
	}
	host, port, err := net.SplitHostPort(r.Address)
	if err != nil {
		host, port = r.Address, "0"
	}
	_, wrong := strconv.ParseUint(port, 10, 16)
	if wrong != nil || net.ParseIP(host) == nil && strings.ContainsAny(host, ":/ []") {
		bad("replica.address", "%q is neither a host nor HOST:PORT", r.Address)
	}
}

// Worker configures the workers on which sandboxes run, if they are other processes than the server.
type Worker struct {
	Listen    string   `yaml:"listen" doc:"Experimental: address and port on which the server accepts its workers (modbox worker), which then run all sandboxes; docs/cluster.md has the limits. Empty: the server runs sandboxes itself."`
	LostAfter Duration `yaml:"lost_after" doc:"Time, from 30s, after which a worker without a connection to the server is taken for lost: its sandboxes end, or go back to their last checkpoint. 0: never, they are unavailable until it is back (docs/cluster.md)."`
	SecretDir string   `yaml:"secret_dir" doc:"Directory with the files authority.pem and token of the workers, such as a mounted Secret of Kubernetes; the server only reads them. Empty: state_dir/worker, where the server makes them."`
}

func (w *Worker) validate(bad func(name, format string, args ...any)) {
	if w.Listen == "" {
		return
	}
	_, port, err := net.SplitHostPort(w.Listen)
	if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil {
		bad("worker.listen", "%q is not ADDRESS:PORT", w.Listen)
	}
	if w.LostAfter != 0 {
		within(bad, "worker.lost_after", w.LostAfter, Duration(30*time.Second), Duration(7*24*time.Hour))
	}
}
