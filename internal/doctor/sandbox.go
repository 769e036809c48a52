package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Trial is the outcome of starting a sandbox.
type Trial struct {
	// Start is the time until the agent answered, Exec the time of a command, Destroy the time of the
	// end.
	Start, Exec, Destroy time.Duration
	// Missing are the limits that the host cannot enforce, see driver.Capabilities.
	Missing []string
}

func trySandbox(ctx context.Context, o Options) Result {
	const name = "sandbox"
	ctx, cancel := context.WithTimeout(ctx, sandboxTime)
	defer cancel()
	t, err := o.Sandbox(ctx)
	if err != nil {
		return fail(name, "one could not be started: "+err.Error(), "see the checks above; if all is well there, report this")
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1000) }
	detail := fmt.Sprintf("started in %s, ran a command in %s, destroyed in %s", ms(t.Start), ms(t.Exec), ms(t.Destroy))
	if len(t.Missing) > 0 {
		return warn(name, detail, strings.Join(t.Missing, " "))
	}
	return ok(name, detail)
}

// platform says what runs the programs of new sandboxes.
func platform(_ context.Context, o Options) Result {
	const name = "platform"
	detail, fix, err := o.Platform()
	switch {
	case err != nil:
		return fail(name, err.Error(), "set sandbox.platform to systrap, or to auto, which uses kvm only where it works (docs/operate/platform.md)")
	case fix != "":
		return warn(name, detail, fix)
	}
	return ok(name, detail)
}

// agentPause is the first pause between attempts to reach a new agent.
const agentPause = 2 * time.Millisecond

// TrySandbox makes a small box, runs a command in it through its agent, and destroys it in any
// case.
func TrySandbox(ctx context.Context, d driver.Driver, rootFS string) (t Trial, err error) {
	t.Missing = d.Capabilities().Missing
	id := sandbox.NewID()
	defer func() {
		began := time.Now()
		// The box must be destroyed even if ctx has ended.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandboxTime)
		defer cancel()
		if e := d.Destroy(ctx, id); e != nil {
			err = errors.Join(err, fmt.Errorf("destroy: %w", e))
		}
		t.Destroy = time.Since(began)
	}()
	began := time.Now()
	_, err = d.Create(ctx, driver.Spec{
		ID: id, Hostname: "doctor", RootFS: rootFS,
		Resources: sandbox.Resources{MemoryBytes: 256 << 20, CPUMilli: 1000, DiskBytes: sandbox.DiskMin},
	})
	if err != nil {
		return t, fmt.Errorf("create: %w", err)
	}
	if err := d.Start(ctx, id); err != nil {
		return t, fmt.Errorf("start: %w", err)
	}
	agent := agentapi.NewClient(func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, id, driver.AgentPort) })
	defer agent.Close()
	if err := await(ctx, agent); err != nil {
		return t, fmt.Errorf("reach its agent: %w", err)
	}
	t.Start = time.Since(began)
	began = time.Now()
	if err := sayHello(ctx, agent); err != nil {
		return t, fmt.Errorf("run a command: %w", err)
	}
	t.Exec = time.Since(began)
	return t, nil
}

// await returns when the agent answers and is configured.
func await(ctx context.Context, agent *agentapi.Client) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = agentPause
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		return struct{}{}, agent.Configure(ctx, agentapi.Config{Hostname: "doctor"})
	}, backoff.WithBackOff(pauses))
	return err
}

func sayHello(ctx context.Context, agent *agentapi.Client) error {
	const hello = "hello from a sandbox"
	stream, err := agent.Exec(ctx, agentapi.Command{Argv: []string{"/bin/echo", hello}})
	if err != nil {
		return err
	}
	defer stream.Close()
	var out bytes.Buffer
	for {
		frame, err := stream.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if frame.Type == agentapi.FrameStdout && out.Len() < 1<<10 {
			out.Write(frame.Data)
		}
	}
	if got := strings.TrimSpace(out.String()); got != hello {
		return fmt.Errorf("it said %q, want %q", got, hello)
	}
	return nil
}
