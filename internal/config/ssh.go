package config

import (
	"net"
	"strconv"
)

// SSH configures the SSH server.
type SSH struct {
	Listen         string `yaml:"listen" doc:"Address and port on which the server serves SSH clients, e.g. 0.0.0.0:2222 (docs/ssh.md). Empty: no SSH."`
	PublicAddress  string `yaml:"public_address" doc:"Host and port under which SSH clients reach the server, if another than the host of public_url and the port of ssh.listen."`
	MaxConnections int    `yaml:"max_connections" doc:"Maximum number of SSH connections. 0: no limit."`
	MaxPerUser     int    `yaml:"max_per_user" doc:"Maximum number of SSH connections of a user. 0: no limit."`
}

func (s *SSH) validate(bad func(name, format string, args ...any)) {
	for _, address := range []struct{ name, value string }{{"ssh.listen", s.Listen}, {"ssh.public_address", s.PublicAddress}} {
		if address.value == "" {
			continue
		}
		_, port, err := net.SplitHostPort(address.value)
		if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil {
			bad(address.name, "%q is not ADDRESS:PORT", address.value)
		}
	}
	within(bad, "ssh.max_connections", s.MaxConnections, 0, 1<<20)
	within(bad, "ssh.max_per_user", s.MaxPerUser, 0, 1<<20)
}
