package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/client"
)

// modbox drives a Modbox server, by its public API and by its command line.
type modbox struct {
	c      *client.Client
	url    string
	token  string
	bin    string // the modbox binary, for the command line rows
	image  string
	limits client.Resources
	asked  atomic.Int64 // sandboxes that were asked for with limits of their own
}

// newModbox returns a driver of the server at url.
func newModbox(url, token, bin, image string) (*modbox, error) {
	c, err := client.New(url, token)
	if err != nil {
		return nil, err
	}
	return &modbox{c: c, url: url, token: token, bin: bin, image: image, limits: client.Resources{Memory: "512Mi", CPU: "1"}}, nil
}

// ttl ends what a killed benchmark leaves behind.
const ttl = 20 * time.Minute

// poolSize is how many sandboxes the server keeps ready, its default.
const poolSize = 2

// start creates a sandbox and returns when it runs. Its limits are nobody else's,
// so that the server has none ready.
func (m *modbox) start(ctx context.Context) (string, error) {
	return m.startWith(ctx, m.unasked(m.limits))
}

// unasked returns limits with an amount of memory that nobody asked for before.
func (m *modbox) unasked(limits client.Resources) client.Resources {
	limits.Memory = fmt.Sprintf("%dMi", 512+m.asked.Add(1))
	return limits
}

func (m *modbox) startWith(ctx context.Context, limits client.Resources) (string, error) {
	sb, err := m.c.Sandboxes.Create(ctx, client.CreateOptions{Image: m.image, Resources: limits, TTL: ttl, WaitUpTo: time.Minute})
	if err != nil {
		return "", err
	}
	if sb.State != client.Running {
		return sb.ID, fmt.Errorf("sandbox %s is %s: %v", sb.ID, sb.State, sb.Cause)
	}
	return sb.ID, nil
}

func (m *modbox) remove(ctx context.Context, id string) error {
	_, err := m.c.Sandboxes.Delete(ctx, id)
	return err
}

func (m *modbox) exec(ctx context.Context, id string, argv ...string) error {
	res, err := m.c.Sandboxes.Exec(ctx, id, client.Command{Argv: argv})
	if err != nil {
		return err
	}
	if res.ExitCode != 0 {
		return fmt.Errorf("exec %s: exit code %d: %s", strings.Join(argv, " "), res.ExitCode, res.Stderr)
	}
	return nil
}

// run is create until the first command's output has arrived; the removal is not measured.
func (m *modbox) run(argv ...string) op { return m.runBy(m.start, argv...) }

// runWarm is run with a sandbox that the server has ready.
func (m *modbox) runWarm(argv ...string) op {
	return m.pooled(m.runBy(func(ctx context.Context) (string, error) { return m.startWith(ctx, m.limits) }, argv...))
}

// pooled counts only times of create in which the server had the sandbox ready.
func (m *modbox) pooled(create op) op {
	return func(ctx context.Context) (time.Duration, error) {
		// The pool holds boxes of the images that recent requests named: the first times may miss.
		for range 30 {
			if err := m.poolFilled(ctx); err != nil {
				return 0, err
			}
			before, err := m.metric(ctx, poolHits)
			if err != nil {
				return 0, err
			}
			took, err := create(ctx)
			if err != nil {
				return 0, err
			}
			if now, err := m.metric(ctx, poolHits); err != nil || now > before {
				return took, err
			}
		}
		return 0, errors.New("the pool does not learn what is asked for")
	}
}

const poolHits = `modbox_pool_creates_total{outcome="hit"}`

// poolFilled waits until the server has sandboxes ready and has stopped making more.
func (m *modbox) poolFilled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for calm := 0; calm < 3; {
		n, err := m.metric(ctx, "modbox_pool_boxes")
		if err != nil {
			return fmt.Errorf("wait for the pool: %w", err)
		}
		if calm++; n < poolSize {
			calm = 0
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for the pool: %w", ctx.Err())
		}
	}
	return nil
}

// metric returns one of the server's metrics.
func (m *modbox) metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the server has no metric %s: %w", name, lines.Err())
}

func (m *modbox) runBy(start func(context.Context) (string, error), argv ...string) op {
	return func(ctx context.Context) (time.Duration, error) {
		var id string
		took, err := timed(func() (err error) {
			if id, err = start(ctx); err != nil {
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
	return func(ctx context.Context) (time.Duration, error) { return m.command(ctx, args...) }
}

// execCLI is `modbox exec` in a running sandbox.
func (m *modbox) execCLI(id string, argv ...string) op {
	args := append([]string{"exec", id, "--"}, argv...)
	return func(ctx context.Context) (time.Duration, error) { return m.command(ctx, args...) }
}

// command measures the modbox binary with the server of m.
func (m *modbox) command(ctx context.Context, args ...string) (time.Duration, error) {
	return timed(func() error {
		cmd := exec.CommandContext(ctx, m.bin, args...)
		cmd.Env = append(os.Environ(), "MODBOX_URL="+m.url, "MODBOX_API_TOKEN="+m.token)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", m.bin, strings.Join(args, " "), err, out)
		}
		return nil
	})
}

func (m *modbox) execAPI(id string, argv ...string) op {
	return func(ctx context.Context) (time.Duration, error) {
		return timed(func() error { return m.exec(ctx, id, argv...) })
	}
}

// destroy measures the complete removal of a running sandbox.
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

// version asks the server.
func (m *modbox) version(ctx context.Context) string {
	v, err := m.c.Version(ctx)
	if err != nil {
		return "unknown version"
	}
	return v.Version
}
