// Go would name each of its mappings for debuggers, by a system call.
//
//go:debug decoratemappings=0

// Command modbox-agent runs inside every sandbox as its first process and answers
// the host. See package agent. As "modbox-agent kernels" it is the supervisor of
// interpreters, an ordinary process; see package kernel. As "modbox-agent sftp" it serves
// files to an SFTP client on its stdin and stdout, with the rights of its user. As "modbox-agent socket" it
// connects these with a Unix socket. As "modbox-agent limited" it becomes another program, under limits. As "modbox-agent -scan-shell" it scans shell code.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"

	"github.com/pkg/sftp"

	"github.com/modbox/modbox/internal/agent"
	"github.com/modbox/modbox/internal/kernel"
	"github.com/modbox/modbox/internal/kernelapi"
	"github.com/modbox/modbox/internal/shellscan"
)

// version is set by the linker.
var version = "dev"

func main() {
	if len(os.Args) > 1 {
		if os.Args[1] == "limited" {
			code, err := agent.Limited(os.Args[2:])
			fmt.Fprintf(os.Stderr, "modbox-agent: %v\n", err)
			os.Exit(code)
		}
		run := map[string]func([]string) error{"kernels": kernels, "sftp": serveFiles, "socket": connectSocket, "-scan-shell": scanShell}[os.Args[1]]
		if run != nil {
			if err := run(os.Args[2:]); err != nil {
				fmt.Fprintf(os.Stderr, "modbox-agent %s: %v\n", os.Args[1], err)
				os.Exit(1)
			}
			return
		}
	}
	listen := flag.String("listen", "127.0.0.1:49983", "TCP address, or unix:PATH, to answer on")
	layers := flag.Int("layers", 0, "number of layers to make the root of, 0 for later; the arguments are the mounts to keep")
	flag.Parse()
	if err := run(*listen, *layers, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "modbox-agent:", err)
		os.Exit(1)
	}
}

func run(address string, layers int, mounts []string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	isInit := os.Getpid() == 1
	agent.Harden()
	debug.SetMemoryLimit(agent.MemoryTarget)
	blank := isInit && layers == 0 && len(mounts) > 0
	if isInit {
		if err := agent.LeaveChildrenSilent(); err != nil {
			return err
		}
		if layers > 0 {
			if err := agent.ComposeRoot(layers, mounts); err != nil {
				return err
			}
		}
		agent.PrepareSystem(log)
		// A blank box has its root made later.
		if err := agent.Confine(blank); err != nil {
			return err
		}
	}
	l, err := agent.Listen(address)
	if err != nil {
		return err
	}
	a := agent.New(agent.Options{Version: version, Init: isInit, Blank: blank, Mounts: mounts, Log: log})
	if isInit {
		handover, err := agent.Handover(os.Stdin)
		if err != nil {
			return err
		}
		if handover != nil {
			go func() {
				if err := serve(a, handover); err != nil {
					log.Error("connections cannot be handed over any more", "error", err)
				}
			}()
		}
	}
	return serve(a, l)
}

func serve(a *agent.Agent, l net.Listener) error {
	defer l.Close()
	return a.Serve(l)
}

// scanShell scans the shell code of a request on stdin.
func scanShell([]string) error { return shellscan.Run(os.Stdin, os.Stdout) }

// kernels starts a supervisor of interpreters unless there is one, and returns when it answers. With
// the argument "serve" this process is the supervisor: it closes its stdout when it answers, and
// opens the default contexts of the languages that follow, so that the first code in them need not
// wait for an interpreter. With the argument "environment" it gives its environment variables to the
// supervisor that runs, with "later-environment" only for interpreters that start later.
func kernels(args []string) error {
	if len(args) == 0 {
		return kernel.Start("kernels", "serve")
	}
	switch args[0] {
	case "environment":
		return kernel.Announce(kernelapi.Directory)
	case "later-environment":
		return kernel.AnnounceLater(kernelapi.Directory)
	}
	err := kernel.Serve(kernelapi.Directory, func() { os.Stdout.Close() }, args[1:]...)
	if err != nil {
		fmt.Println(err)
	}
	return err
}

// serveFiles serves files to the SFTP client on stdin and stdout until that ends. Relative paths begin
// in the working directory.
func serveFiles([]string) error {
	server, err := sftp.NewServer(struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout})
	if err != nil {
		return err
	}
	if err := server.Serve(); err != nil && err != io.EOF {
		return err
	}
	return nil
}

// connectSocket connects stdin and stdout with a Unix socket until that ends. It first writes a byte, when the socket has
// accepted the connection.
func connectSocket(args []string) error {
	if len(args) != 1 {
		return errors.New("give the path of one socket")
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: args[0]})
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := os.Stdout.Write([]byte{0}); err != nil {
		return err
	}
	go func() {
		if _, err := io.Copy(conn, os.Stdin); err != nil || conn.CloseWrite() != nil {
			_ = conn.Close()
		}
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}
