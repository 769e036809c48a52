package config

import (
	"net"
	"strconv"
)

// Worker configures the workers on which sandboxes run, if they are other processes than the server.
type Worker struct {
	Listen    string `yaml:"listen" doc:"Experimental: address and port on which the server accepts its workers (modbox worker), which then run all sandboxes; docs/cluster.md has the limits. Empty: the server runs sandboxes itself."`
	SecretDir string `yaml:"secret_dir" doc:"Directory with the files authority.pem and token of the workers, such as a mounted Secret of Kubernetes; the server only reads them. Empty: state_dir/worker, where the server makes them."`
}

func (w *Worker) validate(bad func(name, format string, args ...any)) {
	if w.Listen == "" {
		return
	}
	_, port, err := net.SplitHostPort(w.Listen)
	if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil {
		bad("worker.listen", "%q is not ADDRESS:PORT", w.Listen)
	}
}
