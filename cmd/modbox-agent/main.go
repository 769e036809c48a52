// Command modbox-agent runs inside every sandbox as its first process and answers
// the host. See package agent.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"

	"github.com/modbox/modbox/internal/agent"
)

// version is set by the linker.
var version = "dev"

func main() {
	listen := flag.String("listen", "127.0.0.1:49983", "TCP address, or unix:PATH, to answer on")
	flag.Parse()
	if err := run(*listen); err != nil {
		fmt.Fprintln(os.Stderr, "modbox-agent:", err)
		os.Exit(1)
	}
}

func run(address string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	isInit := os.Getpid() == 1
	agent.Harden()
	debug.SetMemoryLimit(agent.MemoryTarget)
	if isInit {
		if err := agent.Confine(); err != nil {
			return err
		}
		if err := agent.Shield(); err != nil {
			log.Warn("root in the sandbox can kill PID 1", "error", err)
		}
		agent.PrepareSystem(log)
	}
	l, err := agent.Listen(address)
	if err != nil {
		return err
	}
	return serve(agent.New(agent.Options{Version: version, Init: isInit, Log: log}), l)
}

func serve(a *agent.Agent, l net.Listener) error {
	defer l.Close()
	return a.Serve(l)
}
