package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	hostnameFile = "/etc/hostname"
	hostsFile    = "/etc/hosts"
)

// setHostname sets the host name in the kernel and in the files that programs read, and makes it
// and localhost resolve.
func (a *Agent) setHostname(name string) error {
	have, err := readConf(a.root.Path(hostnameFile))
	before := strings.TrimSpace(string(have))
	var errs []error
	if err != nil || before != name {
		errs = append(errs, replaceFile(a.root.Path(hostnameFile), []byte(name+"\n")))
	}
	if a.opts.Init {
		if now, err := os.Hostname(); err != nil || now != name {
			if err := unix.Sethostname([]byte(name)); err != nil {
				errs = append(errs, fmt.Errorf("set host name: %w", err))
			}
		}
	}
	return errors.Join(append(errs, a.setHosts(before, name))...)
}

// setHosts makes localhost and name resolve, and removes the entry of the previous name: a forked
// or restored sandbox starts with the host name of its origin.
func (a *Agent) setHosts(before, name string) error {
	data, err := readConf(a.root.Path(hostsFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	const own = "127.0.1.1\t"
	var hosts strings.Builder
	known := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if before != name && before != "" && line == own+before+"\n" {
			continue
		}
		entry, _, _ := strings.Cut(line, "#")
		if fields := strings.Fields(entry); len(fields) > 1 {
			for _, n := range fields[1:] {
				known[n] = true
			}
		}
		hosts.WriteString(line)
	}
	if s := hosts.String(); s != "" && !strings.HasSuffix(s, "\n") {
		hosts.WriteString("\n")
	}
	if !known["localhost"] {
		hosts.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	}
	if !known[name] {
		hosts.WriteString(own + name + "\n")
	}
	if hosts.String() == string(data) {
		return nil
	}
	return replaceFile(a.root.Path(hostsFile), []byte(hosts.String()))
}
