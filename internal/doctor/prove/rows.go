package prove

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modbox/modbox/client"
)

// The limits of the sandboxes of a proof, and how much the rows try beyond them.
const (
	memory, disk   = "256Mi", "64Mi"
	memoryBytes    = 256 << 20
	tooMuchMemory  = "600M"
	tooMuchDisk    = 100 // MiB
	processes      = 16
	commandTimeout = time.Minute
)

// toTheEnd returns a context for a call that makes sandboxes. It does not end with an interruption, after which the server would
// go on with the call and make them later than the end of the proof lists them.
func toTheEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), rowTime)
}

// create makes a running sandbox.
func (p *proof) create(ctx context.Context) (*client.Sandbox, error) {
	ctx, cancel := toTheEnd(ctx)
	defer cancel()
	sb, err := p.API.Sandboxes.Create(ctx, client.CreateOptions{
		Image: p.image, Resources: client.Resources{Memory: memory, Disk: disk, CPU: "1"}, TTL: 2 * totalTime, WaitUpTo: rowTime,
	})
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	if sb.State != client.Running {
		return nil, fmt.Errorf("create: the sandbox is %s%s", sb.State, causeOf(sb))
	}
	return sb, nil
}

func causeOf(sb *client.Sandbox) string {
	if sb.Cause == nil {
		return ""
	}
	return fmt.Sprintf(" (%s: %s)", sb.Cause.Code, sb.Cause.Message)
}

// in makes a sandbox, runs try with it, and deletes it.
func (p *proof) in(ctx context.Context, try func(g guest) (string, error)) (string, error) {
	sb, err := p.create(ctx)
	if err != nil {
		return "", err
	}
	detail, err := try(guest{p.API, sb.ID})
	if _, e := p.API.Sandboxes.Delete(ctx, sb.ID); e != nil && !client.IsCode(e, client.NotFound) {
		err = errors.Join(err, fmt.Errorf("destroy: %w", e))
	}
	return detail, err
}

func createAndExec(ctx context.Context, p *proof) (string, error) {
	return p.in(ctx, func(g guest) (string, error) {
		return "a sandbox runs a command, and its file has what it wrote", g.hello(ctx)
	})
}

func memoryLimit(ctx context.Context, p *proof) (string, error) {
	return p.in(ctx, func(g guest) (string, error) {
		got, err := g.sh(ctx, "head -c "+tooMuchMemory+" /dev/zero | tail -c "+tooMuchMemory+" | wc -c")
		if err == nil && got != "0" {
			return "", fmt.Errorf("a command had %s of memory in a sandbox of %s", tooMuchMemory, memory)
		}
		if err == nil {
			return "a command that needed " + tooMuchMemory + " in a sandbox of " + memory + " was killed; the sandbox runs", nil
		}
		sb, getErr := p.settled(ctx, g.ref)
		switch {
		case getErr != nil:
			return "", getErr
		case sb.State == client.Running:
			return "a command that needed " + tooMuchMemory + " in a sandbox of " + memory + " ended; the sandbox runs", nil
		case sb.Cause != nil && sb.Cause.Code == "oom":
			return "a sandbox of " + memory + " that needed " + tooMuchMemory + " ended with the cause oom", nil
		}
		return "", fmt.Errorf("the sandbox is %s%s; the command: %w", sb.State, causeOf(sb), err)
	})
}

// settled waits until a sandbox is not about to end, and returns it.
func (p *proof) settled(ctx context.Context, id string) (*client.Sandbox, error) {
	for {
		sb, err := p.API.Sandboxes.Get(ctx, id)
		if err != nil || sb.State != client.Destroying {
			return sb, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the sandbox does not end%s: %w", causeOf(sb), ctx.Err())
		case <-time.After(poll):
		}
	}
}

func processLimit(ctx context.Context, p *proof) (string, error) {
	return p.in(ctx, func(g guest) (string, error) {
		res, err := p.API.Sandboxes.Exec(ctx, g.ref, client.Command{
			Argv:    []string{"/bin/sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 1000 & i=$((i+1)); done; wait", 4*processes)},
			Timeout: commandTimeout, Limits: client.Limits{Processes: processes},
		})
		if err != nil {
			return "", err
		}
		if res.LimitExceeded != client.LimitProcesses {
			return "", fmt.Errorf("a command with a limit of %d processes started %d and ended with %d", processes, 4*processes, res.ExitCode)
		}
		_, err = g.sh(ctx, "true")
		return fmt.Sprintf("a command that started more than %d processes was killed; the sandbox runs", processes), err
	})
}

func diskLimit(ctx context.Context, p *proof) (string, error) {
	return p.in(ctx, func(g guest) (string, error) {
		got, err := g.sh(ctx, fmt.Sprintf("if head -c %dM /dev/zero > /fill 2>/dev/null; then echo all; fi; wc -c < /fill", tooMuchDisk))
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(got, "all") {
			return "", fmt.Errorf("a sandbox with a disk of %s wrote %d MiB", disk, tooMuchDisk)
		}
		_, err = g.sh(ctx, "rm /fill && echo again > /file && cat /file")
		return fmt.Sprintf("a sandbox with a disk of %s could write %s bytes of %d MiB, and again after it removed them", disk, got, tooMuchDisk), err
	})
}

// networkOff listens on all addresses of the host, which a sandbox without network must not reach.
func networkOff(ctx context.Context, p *proof) (string, error) {
	addresses, err := hostAddresses()
	if err != nil {
		return "", err
	}
	var reached atomic.Int64
	var targets []string
	for _, a := range addresses {
		l, err := net.Listen("tcp", net.JoinHostPort(a, "0"))
		if err != nil {
			return "", untried("the proof cannot listen on " + a + ": " + err.Error())
		}
		defer l.Close()
		targets = append(targets, l.Addr().String())
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return // closed
				}
				reached.Add(1)
				_ = c.Close()
			}
		}()
	}
	return p.in(ctx, func(g guest) (string, error) {
		if _, err := g.sh(ctx, "command -v bash"); err != nil {
			return "", untried("the image " + p.image + " has no bash, which the row needs to connect")
		}
		for _, target := range targets {
			host, port, err := net.SplitHostPort(target)
			if err != nil {
				return "", err
			}
			got, err := g.sh(ctx, fmt.Sprintf("if timeout 5 bash -c 'exec 3<>/dev/tcp/%s/%s' 2>/dev/null; then echo connected; else echo refused; fi", host, port))
			if err != nil {
				return "", err
			}
			if got != "refused" || reached.Load() > 0 {
				return "", fmt.Errorf("a sandbox without network reached %s of this host", target)
			}
		}
		return fmt.Sprintf("a sandbox without network reached none of the %d addresses of this host", len(targets)), nil
	})
}

func pauseAndResume(ctx context.Context, p *proof) (string, error) {
	return p.in(ctx, func(g guest) (string, error) {
		if err := g.startCounter(ctx); err != nil {
			return "", err
		}
		if _, err := p.API.Sandboxes.Pause(ctx, g.ref); err != nil {
			return "", fmt.Errorf("pause: %w", err)
		}
		for len(p.BoxProcesses()) > 0 { // of a sandbox of an earlier row, perhaps
			select {
			case <-ctx.Done():
				return "", errors.New("processes run although the only sandbox is paused")
			case <-time.After(poll):
			}
		}
		if _, err := p.API.Sandboxes.Resume(ctx, g.ref, client.ResumeOptions{}); err != nil {
			return "", fmt.Errorf("resume: %w", err)
		}
		return "a paused sandbox has no process on the host; its process goes on with its memory", g.counts(ctx, 2)
	})
}

func fork(ctx context.Context, p *proof) (string, error) {
	return p.in(ctx, func(g guest) (string, error) {
		if err := g.startCounter(ctx); err != nil {
			return "", err
		}
		making, cancel := toTheEnd(ctx)
		children, err := p.API.Sandboxes.Fork(making, g.ref, client.ForkOptions{Count: 2})
		cancel()
		if err != nil {
			return "", fmt.Errorf("fork: %w", err)
		}
		for _, child := range children {
			if child.Err != nil {
				return "", fmt.Errorf("fork: %w", child.Err)
			}
			fork := guest{p.API, child.Sandbox.ID}
			if err := fork.counts(ctx, 2); err != nil {
				return "", fmt.Errorf("fork %s: %w", fork.ref, err)
			}
			if _, err := fork.sh(ctx, "echo child > mine"); err != nil {
				return "", err
			}
			defer p.API.Sandboxes.Delete(context.WithoutCancel(ctx), child.Sandbox.ID) //nolint:errcheck // the end of the proof deletes all
		}
		if got, err := g.sh(ctx, "if [ -e mine ]; then echo seen; else echo none; fi"); err != nil || got != "none" {
			return "", errors.Join(err, errors.New("the file of a fork is in its parent"))
		}
		return "two forks have the memory of their parent, which goes on and does not see their files", g.counts(ctx, 2)
	})
}

func killedServer(ctx context.Context, p *proof) (string, error) {
	return p.in(ctx, func(g guest) (string, error) {
		if err := g.startCounter(ctx); err != nil {
			return "", err
		}
		if err := p.Signal(ctx, syscall.SIGKILL); err != nil {
			return "", err
		}
		began := time.Now()
		if err := p.Launch(ctx); err != nil {
			return "", err
		}
		ready := time.Since(began)
		return fmt.Sprintf("a sandbox outlives SIGKILL of the server, which answers again after %.1f s", ready.Seconds()), guest{p.API, g.ref}.counts(ctx, 2)
	})
}

func killedSandbox(ctx context.Context, p *proof) (string, error) {
	sb, err := p.create(ctx)
	if err != nil {
		return "", err
	}
	for pid := range p.BoxProcesses() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with another
	}
	for {
		now, err := p.API.Sandboxes.Get(ctx, sb.ID)
		if err != nil {
			return "", err
		}
		if now.State == client.Failed || now.State == client.Destroyed {
			return "a sandbox whose processes were killed ended" + causeOf(now), p.WaitForNothing(ctx)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("the sandbox is %s although its processes were killed", now.State)
		case <-time.After(poll):
		}
	}
}

func destroy(ctx context.Context, p *proof) (string, error) {
	detail, err := p.in(ctx, func(g guest) (string, error) {
		return "a destroyed sandbox leaves no process, mount, control group or file while the server runs", g.startCounter(ctx)
	})
	if err != nil {
		return "", err
	}
	return detail, p.WaitForNothing(ctx)
}

// hostAddresses returns an address of each network of this host, and of loopback.
func hostAddresses() ([]string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil {
			out = append(out, ip.IP.String())
		}
	}
	return out, nil
}
