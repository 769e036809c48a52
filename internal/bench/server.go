package bench

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

// Server drives a Modbox server, by its public API and by its command line.
type Server struct {
	c     *client.Client
	URL   string
	Token string
	bin   string // the modbox binary, for the command line rows
	// Inside is a program for the rows of requests to a sandbox. Without one there are no such rows.
	Inside Inside
	// StateDir is the directory of the server's state, if it is on this host, else "".
	StateDir string

	image  string
	limits client.Resources
	asked  atomic.Int64 // sandboxes that were asked for with limits of their own

	snapshots []string // that were made
}

// Inside is a program that runs in sandboxes: with the arguments Serve it calls [Serve], and with Load
// and a URL [PrintLoad]. It must need no libraries.
type Inside struct {
	Program     string
	Serve, Load []string
}

// NewServer returns a driver of the server at url, which c calls. The rows of the command line run the
// program bin, with the token, or with its own sign-in for "".
func NewServer(c *client.Client, url, token, bin, image string) *Server {
	return &Server{c: c, URL: url, Token: token, bin: bin, image: image, limits: client.Resources{Memory: "512Mi", CPU: "1"}}
}

// ttl ends what a killed benchmark leaves behind.
const ttl = time.Hour

// poolSize is how many sandboxes the server keeps ready, its default.
const poolSize = 2

// Start creates a sandbox and returns when it runs. Its limits are nobody else's,
// so that the server has none ready.
func (m *Server) Start(ctx context.Context) (string, error) {
	return m.startWith(ctx, m.unasked(m.limits))
}

// unasked returns limits with an amount of memory that nobody asked for before.
func (m *Server) unasked(limits client.Resources) client.Resources {
	limits.Memory = fmt.Sprintf("%dMi", 512+m.asked.Add(1))
	return limits
}

func (m *Server) startWith(ctx context.Context, limits client.Resources) (string, error) {
	sb, err := m.c.Sandboxes.Create(ctx, client.CreateOptions{Image: m.image, Resources: limits, TTL: ttl, WaitUpTo: time.Minute})
	if err != nil {
		return "", err
	}
	if sb.State != client.Running {
		return sb.ID, fmt.Errorf("sandbox %s is %s: %v", sb.ID, sb.State, sb.Cause)
	}
	return sb.ID, nil
}

// Remove ends a sandbox.
func (m *Server) Remove(ctx context.Context, id string) error {
	_, err := m.c.Sandboxes.Delete(ctx, id)
	return err
}

func (m *Server) exec(ctx context.Context, id string, argv ...string) error {
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
func (m *Server) run(argv ...string) Op { return m.runBy(m.Start, argv...) }

// runWarm is run with a sandbox that the server has ready.
func (m *Server) runWarm(argv ...string) Op {
	return m.Pooled(m.runBy(func(ctx context.Context) (string, error) { return m.startWith(ctx, m.limits) }, argv...))
}

// Pooled counts only times of create in which the server had the sandbox ready.
func (m *Server) Pooled(create Op) Op {
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
func (m *Server) poolFilled(ctx context.Context) error {
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
func (m *Server) metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	if m.Token != "" {
		req.Header.Set("Authorization", "Bearer "+m.Token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET /metrics = %s: the setting metrics.access says who may read them", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the server has no metric %s: %w", name, lines.Err())
}

func (m *Server) runBy(start func(context.Context) (string, error), argv ...string) Op {
	return func(ctx context.Context) (time.Duration, error) {
		var id string
		took, err := Timed(func() (err error) {
			if id, err = start(ctx); err != nil {
				return err
			}
			return m.exec(ctx, id, argv...)
		})
		if id != "" {
			if rmErr := m.Remove(ctx, id); err == nil {
				err = rmErr
			}
		}
		return took, err
	}
}

// runCLI is `modbox run`.
func (m *Server) runCLI(argv ...string) Op {
	args := append([]string{"run", m.image, "--"}, argv...)
	return func(ctx context.Context) (time.Duration, error) { return m.command(ctx, args...) }
}

// execCLI is `modbox exec` in a running sandbox.
func (m *Server) execCLI(id string, argv ...string) Op {
	args := append([]string{"exec", id, "--"}, argv...)
	return func(ctx context.Context) (time.Duration, error) { return m.command(ctx, args...) }
}

// command measures the modbox binary with the server of m.
func (m *Server) command(ctx context.Context, args ...string) (time.Duration, error) {
	return Timed(func() error {
		cmd := exec.CommandContext(ctx, m.bin, args...)
		cmd.Env = append(os.Environ(), "MODBOX_URL="+m.URL)
		if m.Token != "" {
			cmd.Env = append(cmd.Env, "MODBOX_API_TOKEN="+m.Token)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", m.bin, strings.Join(args, " "), err, out)
		}
		return nil
	})
}

// ExecAPI measures a command in a running sandbox, by the API.
func (m *Server) ExecAPI(id string, argv ...string) Op {
	return func(ctx context.Context) (time.Duration, error) {
		return Timed(func() error { return m.exec(ctx, id, argv...) })
	}
}

// destroy measures the complete removal of a running sandbox.
func (m *Server) destroy(ctx context.Context) (time.Duration, error) {
	id, err := m.Start(ctx)
	if err != nil {
		return 0, err
	}
	return Timed(func() error { return m.Remove(ctx, id) })
}

// burst measures n creates at once until the last has answered a command.
func (m *Server) burst(n int) Op {
	return func(ctx context.Context) (time.Duration, error) {
		ids := make([]string, n)
		took, err := Timed(func() error {
			return Parallel(n, func(i int) (err error) {
				if ids[i], err = m.Start(ctx); err != nil {
					return err
				}
				return m.exec(ctx, ids[i], "true")
			})
		})
		_ = Parallel(n, func(i int) error {
			if ids[i] == "" {
				return nil
			}
			return m.Remove(ctx, ids[i])
		})
		return took, err
	}
}

// Version returns the version of the server.
func (m *Server) Version(ctx context.Context) string {
	v, err := m.c.Version(ctx)
	if err != nil {
		return "unknown version"
	}
	return v.Version
}
