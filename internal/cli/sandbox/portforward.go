package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewPortForwardCommand returns the command "modbox port-forward".
func NewPortForwardCommand(env *base.Env) *cobra.Command {
	var addresses []string
	cmd := &cobra.Command{
		Use:   "port-forward SANDBOX [LOCAL:]PORT...",
		Short: "Forward ports of this machine to a sandbox",
		Long: `Forward ports of this machine to a sandbox, until it is interrupted. LOCAL is the port on
this machine: the same as PORT when omitted, any free port when 0 or empty (":PORT"). The
ports in the sandbox need not be published, and servers on its loopback are reached.
Connections go over the API with your token. A connection resumes a paused sandbox, and
continues after a pause.

Only programs on this machine can connect. --address 0.0.0.0 lets all machines of the
network in, without any check.`,
		Example: "  modbox port-forward my-agent 3000\n  modbox port-forward my-agent 8080:80 :5432",
		Args:    cobra.MinimumNArgs(2), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ports, err := parseForwards(args[1:])
			if err != nil {
				return err
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			sb, err := c.Sandboxes.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if sb.State.Ended() {
				return ended(sb)
			}
			f := &forwarder{env: env, client: c, sandbox: sb.ID}
			return f.run(cmd.Context(), addresses, ports)
		},
	}
	cmd.Flags().StringSliceVar(&addresses, "address", []string{"127.0.0.1"}, "address of this machine to listen on (repeatable)")
	return cmd
}

// forward is a port of this machine, 0 for any, and a port of a sandbox.
type forward struct{ local, remote uint16 }

func parseForwards(args []string) ([]forward, error) {
	var list []forward
	for _, arg := range args {
		local, remote, two := strings.Cut(arg, ":")
		if !two {
			remote = local
		}
		to, err := strconv.ParseUint(remote, 10, 16)
		if err != nil || to == 0 {
			return nil, base.UsageError("%q is not PORT or LOCAL:PORT; ports are 1 to 65535", arg)
		}
		var from uint64
		if local != "" {
			if from, err = strconv.ParseUint(local, 10, 16); err != nil {
				return nil, base.UsageError("%q is not PORT or LOCAL:PORT; ports are 1 to 65535", arg)
			}
		}
		list = append(list, forward{uint16(from), uint16(to)})
	}
	return list, nil
}

// forwarder forwards ports to a sandbox.
type forwarder struct {
	env     *base.Env
	client  *client.Client
	sandbox string

	printing sync.Mutex // orders lines on the standard error
	work     sync.WaitGroup
}

// run listens on all addresses, and serves connections until ctx ends.
func (f *forwarder) run(ctx context.Context, addresses []string, ports []forward) error {
	ctx, cancel := context.WithCancel(ctx)
	defer f.work.Wait()
	defer cancel()
	var listeners []net.Listener
	for _, address := range addresses {
		for _, p := range ports {
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(int(p.local))))
			if err != nil {
				return err
			}
			defer l.Close()
			listeners = append(listeners, l)
		}
	}
	failed := make(chan error, len(listeners))
	for i, l := range listeners {
		remote := ports[i%len(ports)].remote
		if _, err := fmt.Fprintf(f.env.Stdout, "Forwarding from %s -> %d\n", l.Addr(), remote); err != nil {
			return err
		}
		f.work.Go(func() { failed <- f.serve(ctx, l, remote) })
	}
	defer context.AfterFunc(ctx, func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	})()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil // the user has seen enough
	}
}

// serve serves the connections of a listener until ctx ends. It returns the error of the listener, or of a
// sandbox that has ended.
func (f *forwarder) serve(ctx context.Context, l net.Listener, port uint16) error {
	ended := make(chan error, 1)
	for {
		conn, err := l.Accept()
		select {
		case err := <-ended:
			if conn != nil {
				_ = conn.Close()
			}
			return err
		default:
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		f.work.Go(func() {
			err := f.connect(ctx, conn, port)
			if err == nil || ctx.Err() != nil {
				return
			}
			if client.IsCode(err, client.Ended) || client.IsCode(err, client.NotFound) {
				select {
				case ended <- err:
					_ = l.Close() // serve returns the error
				default:
				}
				return
			}
			f.printing.Lock()
			defer f.printing.Unlock()
			fmt.Fprintf(f.env.Stderr, "Connection to port %d: %s\n", port, base.Clean(err.Error()))
		})
	}
}

// connect carries a connection to a port of the sandbox until both directions have ended.
func (f *forwarder) connect(ctx context.Context, conn net.Conn, port uint16) error {
	defer conn.Close()
	remote, err := f.client.Sandboxes.Ports.Dial(ctx, f.sandbox, port)
	if err != nil {
		return err
	}
	defer remote.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := io.Copy(remote, conn); err != nil || remote.CloseWrite() != nil {
			_ = remote.Close() // nobody reads any more, or the connection is broken
		}
	}()
	_, err = io.Copy(conn, remote)
	if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
		err = half.CloseWrite()
	}
	if err != nil {
		_ = conn.Close()
		_ = remote.Close()
	}
	<-sent
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
