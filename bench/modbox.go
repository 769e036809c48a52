package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/modbox/modbox/client"
)

// modbox drives a Modbox server, by its public API and by its command line.
type modbox struct {
	c      *client.Client
	bin    string // the modbox binary, for the command line rows
	image  string
	limits client.Resources
}

// ttl ends what a killed benchmark leaves behind.
const ttl = 10 * time.Minute

// start creates a sandbox and returns when it runs.
func (m *modbox) start(ctx context.Context) (string, error) {
	sb, err := m.c.Create(ctx, client.CreateOptions{Image: m.image, Resources: m.limits, TTL: ttl, WaitUpTo: time.Minute})
	if err != nil {
		return "", err
	}
	if sb.State != client.Running {
		return sb.ID, fmt.Errorf("sandbox %s is %s: %v", sb.ID, sb.State, sb.Cause)
	}
	return sb.ID, nil
}

func (m *modbox) remove(ctx context.Context, id string) error {
	_, err := m.c.Delete(ctx, id)
	return err
}

func (m *modbox) exec(ctx context.Context, id string, argv ...string) error {
	res, err := m.c.Exec(ctx, id, client.Command{Argv: argv})
	if err != nil {
		return err
	}
	if res.ExitCode != 0 {
		return fmt.Errorf("exec %s: exit code %d: %s", strings.Join(argv, " "), res.ExitCode, res.Stderr)
	}
	return nil
}

// run is create until the first command's output has arrived; the removal is not measured.
func (m *modbox) run(argv ...string) op {
	return func(ctx context.Context) (time.Duration, error) {
		var id string
		took, err := timed(func() (err error) {
			if id, err = m.start(ctx); err != nil {
				return err
			}
			return m.exec(ctx, id, argv...)
		})
		if id != "" {
			if rmErr := m.remove(ctx, id); err == nil {
				err = rmErr
			}
		}
		return took, err
	}
}

// runCLI is `modbox run`.
func (m *modbox) runCLI(argv ...string) op {
	args := append([]string{"run", m.image, "--"}, argv...)
	return func(ctx context.Context) (time.Duration, error) { return command(ctx, m.bin, args...) }
}

// execCLI is `modbox exec` in a running sandbox.
func (m *modbox) execCLI(id string, argv ...string) op {
	args := append([]string{"exec", id, "--"}, argv...)
	return func(ctx context.Context) (time.Duration, error) { return command(ctx, m.bin, args...) }
}

func (m *modbox) execAPI(id string, argv ...string) op {
	return func(ctx context.Context) (time.Duration, error) {
		return timed(func() error { return m.exec(ctx, id, argv...) })
	}
}

// destroy measures the removal of a running sandbox until nothing of it is left.
func (m *modbox) destroy(ctx context.Context) (time.Duration, error) {
	id, err := m.start(ctx)
	if err != nil {
		return 0, err
	}
	return timed(func() error { return m.remove(ctx, id) })
}

// burst measures n creates at once until the last has answered a command.
func (m *modbox) burst(n int) op {
	return func(ctx context.Context) (time.Duration, error) {
		ids := make([]string, n)
		took, err := timed(func() error {
			return parallel(n, func(i int) (err error) {
				if ids[i], err = m.start(ctx); err != nil {
					return err
				}
				return m.exec(ctx, ids[i], "true")
			})
		})
		_ = parallel(n, func(i int) error {
			if ids[i] == "" {
				return nil
			}
			return m.remove(ctx, ids[i])
		})
		return took, err
	}
}

// idlePSS is the proportional memory of one of n idle sandboxes' host processes.
func (m *modbox) idlePSS(ctx context.Context, n int) (int64, error) {
	ids := make([]string, n)
	defer func() {
		for _, id := range ids {
			if id != "" {
				_ = m.remove(ctx, id)
			}
		}
	}()
	for i := range ids {
		var err error
		if ids[i], err = m.start(ctx); err != nil {
			return 0, err
		}
	}
	if err := settle(ctx); err != nil {
		return 0, err
	}
	var total int64
	for _, id := range ids {
		st, err := m.c.Stats(ctx, id)
		if err != nil {
			return 0, err
		}
		if st.HostPSSBytes == 0 {
			return 0, fmt.Errorf("stats of %s tell no host memory", id)
		}
		total += st.HostPSSBytes
	}
	return total / int64(n), nil
}

// version asks the server.
func (m *modbox) version(ctx context.Context) string {
	v, err := m.c.Version(ctx)
	if err != nil {
		return "unknown version"
	}
	return v.Version
}
