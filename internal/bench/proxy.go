package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/client"
)

const (
	proxyPort    = 8080
	proxyAnswer  = 1 << 10 // bytes
	loadTime     = 2 * time.Second
	LoadAtOnce   = 16
	loadRounds   = 3
	remoteBinary = "/var/tmp/bench"
)

// Load is the performance of a server as a client measures it.
type Load struct {
	PerSecond float64       // with LoadAtOnce connections
	Latency   time.Duration // p50 of one connection
}

// Serve answers requests with a body of proxyAnswer bytes, for ever.
func Serve() error {
	body := make([]byte, proxyAnswer)
	return http.ListenAndServe(":"+strconv.Itoa(proxyPort), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(body) // a client that left is no error of ours
	}))
}

// keepingClient returns a client that keeps LoadAtOnce connections.
func keepingClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: LoadAtOnce, DisableCompression: true}}
}

// get sends a request to a server of [Serve].
func get(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != proxyAnswer || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d, %d bytes, %w", url, resp.StatusCode, n, err)
	}
	return nil
}

// drive sends requests to a server over persistent connections, first one at a time, then
// LoadAtOnce at a time.
func drive(ctx context.Context, url string) (Load, error) {
	c := keepingClient()
	defer c.CloseIdleConnections()
	get := func() error { return get(ctx, c, url) }
	var single []time.Duration
	for end := time.Now().Add(loadTime / 2); time.Now().Before(end); {
		took, err := Timed(get)
		if err != nil {
			return Load{}, err
		}
		single = append(single, took)
	}
	var done atomic.Int64
	begin := time.Now()
	err := Parallel(LoadAtOnce, func(int) error {
		for time.Since(begin) < loadTime {
			if err := get(); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	return Load{PerSecond: float64(done.Load()) / time.Since(begin).Seconds(), Latency: Quantile(single, .5)}, err
}

// PrintLoad measures the server of a URL, and prints the result for the measurement outside.
func PrintLoad(ctx context.Context, w io.Writer, url string) error {
	seen, err := drive(ctx, url)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(seen)
}

// ServeIn starts the server of [Serve] in a sandbox, and returns its URL.
func (m *Server) ServeIn(ctx context.Context, id string) (url string, err error) {
	sb, err := m.c.Sandboxes.Get(ctx, id)
	if err != nil {
		return "", err
	}
	self, err := os.Open(m.Inside.Program)
	if err != nil {
		return "", err
	}
	defer self.Close()
	if _, err := m.c.Sandboxes.Files.Write(ctx, id, remoteBinary, self, client.WriteOptions{Mode: 0o755}); err != nil {
		return "", err
	}
	return sb.URL, m.exec(ctx, id, "bash", "-c", "setsid nohup "+remoteBinary+" "+strings.Join(m.Inside.Serve, " ")+" >/dev/null 2>&1 & until (exec 3<>/dev/tcp/127.0.0.1/"+strconv.Itoa(proxyPort)+") 2>/dev/null; do :; done")
}

// proxied measures a server in a sandbox by its URL and, alternating, from inside.
// The best round of each counts: what disturbs makes all of them worse.
func (m *Server) proxied(ctx context.Context, rounds int, id string) (ours, inside Load, err error) {
	url, err := m.ServeIn(ctx, id)
	if err != nil {
		return Load{}, Load{}, err
	}
	better := func(best *Load, l Load) {
		best.PerSecond = max(best.PerSecond, l.PerSecond)
		if best.Latency == 0 || l.Latency < best.Latency {
			best.Latency = l.Latency
		}
	}
	for range rounds {
		l, err := drive(ctx, url)
		if err != nil {
			return Load{}, Load{}, err
		}
		better(&ours, l)
		res, err := m.c.Sandboxes.Exec(ctx, id, client.Command{Argv: slices.Concat([]string{remoteBinary}, m.Inside.Load, []string{fmt.Sprintf("http://127.0.0.1:%d/", proxyPort)})})
		if err != nil {
			return Load{}, Load{}, err
		}
		if err := json.Unmarshal(res.Stdout, &l); err != nil {
			return Load{}, Load{}, fmt.Errorf("load from inside: exit code %d: %s", res.ExitCode, res.Stderr)
		}
		better(&inside, l)
	}
	return ours, inside, nil
}
