package soak_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

const (
	callers   = 3
	timeLimit = 5 * time.Minute
	poolSize  = 1
	// part is how long callers work between two counts in a short soak.
	part = 6 * time.Second
)

var small = client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}

// length returns how long callers work between two counts.
func length(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("MODBOX_TEST_SOAK_MINUTES")
	if text == "" {
		return part
	}
	minutes, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		t.Fatalf("MODBOX_TEST_SOAK_MINUTES: %v", err)
	}
	return max(part, time.Duration(minutes)*time.Minute/counts)
}

// counts is how often the server's holdings are counted, after the count before the first operation.
const counts = 3

// caller makes one call after the other, each with sandboxes that it destroys.
type caller struct {
	*client.Client
	name   string
	random *rand.Rand
	made   int
}

// life creates a sandbox, uses it in random ways, and destroys it.
func (c *caller) life(ctx context.Context) (operations int, err error) {
	c.made++
	o := client.CreateOptions{Name: fmt.Sprintf("%s-%d", c.name, c.made), Image: "modbox/base", Resources: small, TTL: 10 * time.Minute, WaitUpTo: timeLimit}
	switch c.random.IntN(4) {
	case 0:
		o.Network = client.Network{Enabled: true} // not from the pool
	case 1:
		o.Resources.Memory = "160Mi" // not from the pool
	}
	sb, err := c.Sandboxes.Create(ctx, o)
	if err != nil {
		return 0, fmt.Errorf("create: %w", err)
	}
	uses := []func(context.Context, string) error{c.exec, c.abort, c.refused, c.file, c.archive, c.job, c.pause, c.checkpoint, c.fork, c.snapshot, c.port, c.follow}
	for range 4 {
		if err = uses[c.random.IntN(len(uses))](ctx, sb.ID); err != nil {
			break
		}
		operations++
	}
	if _, gone := c.Sandboxes.Delete(ctx, sb.ID); gone != nil {
		return operations, errors.Join(err, fmt.Errorf("delete: %w", gone))
	}
	return operations + 2, err
}

func (c *caller) exec(ctx context.Context, id string) error {
	res, err := c.Sandboxes.Exec(ctx, id, client.Command{Shell: "head -c 300000 /dev/zero; echo done >&2"})
	if err == nil && (len(res.Stdout) != 300000 || string(res.Stderr) != "done\n") {
		err = fmt.Errorf("%d bytes of output, %q", len(res.Stdout), res.Stderr)
	}
	return wrap("exec", err)
}

// abort leaves a command while it runs.
func (c *caller) abort(ctx context.Context, id string) error {
	aborted, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := c.Sandboxes.Exec(aborted, id, client.Command{Shell: "sleep 60"})
	if err == nil {
		return errors.New("abort: a command of a minute ended")
	}
	return ctx.Err()
}

// refused makes calls that must fail.
func (c *caller) refused(ctx context.Context, id string) error {
	if _, err := c.Sandboxes.Exec(ctx, id, client.Command{Argv: []string{"/no/program"}}); err == nil {
		return errors.New("refused: a missing program runs")
	}
	if _, err := c.Sandboxes.Files.Stat(ctx, id, "/no/file"); err == nil {
		return errors.New("refused: a missing file is there")
	}
	if _, err := c.Sandboxes.Create(ctx, client.CreateOptions{Image: "modbox/no-image"}); err == nil {
		return errors.New("refused: a missing image is there")
	}
	return ctx.Err()
}

func (c *caller) file(ctx context.Context, id string) error {
	content := bytes.Repeat([]byte(c.name), 500_000)
	if _, err := c.Sandboxes.Files.Write(ctx, id, "/tmp/file", bytes.NewReader(content), client.WriteOptions{}); err != nil {
		return wrap("write", err)
	}
	r, err := c.Sandboxes.Files.Read(ctx, id, "/tmp/file")
	if err != nil {
		return wrap("read", err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err == nil && !bytes.Equal(got, content) {
		err = fmt.Errorf("%d other bytes than the %d that were written", len(got), len(content))
	}
	return wrap("read", err)
}

func (c *caller) archive(ctx context.Context, id string) error {
	r, err := c.Sandboxes.Files.DownloadArchive(ctx, id, "/usr/lib/apt", client.TarGzip)
	if err != nil {
		return wrap("archive", err)
	}
	defer r.Close()
	return wrap("archive", c.Sandboxes.Files.UploadArchive(ctx, id, "/tmp/copy", r, client.UploadArchiveOptions{Format: client.TarGzip}))
}

func (c *caller) job(ctx context.Context, id string) error {
	e, err := c.Executions.Start(ctx, id, client.Command{Shell: "for i in 1 2 3; do echo $i; done"}, client.ExecutionOptions{})
	if err != nil {
		return wrap("job", err)
	}
	if e, err = c.Executions.Get(ctx, e.ID, time.Minute); err == nil && e.ExitCode == nil {
		err = fmt.Errorf("it is %s", e.State)
	}
	return wrap("job", err)
}

func (c *caller) pause(ctx context.Context, id string) error {
	if _, err := c.Sandboxes.Pause(ctx, id); err != nil {
		return wrap("pause", err)
	}
	_, err := c.Sandboxes.Resume(ctx, id, client.ResumeOptions{})
	return wrap("resume", err)
}

func (c *caller) checkpoint(ctx context.Context, id string) error {
	p, err := c.Sandboxes.Checkpoints.Create(ctx, id, "soak")
	if err != nil {
		return wrap("checkpoint", err)
	}
	if _, err := c.Sandboxes.Checkpoints.Restore(ctx, id, p.ID); err != nil {
		return wrap("restore", err)
	}
	return wrap("delete checkpoint", c.Sandboxes.Checkpoints.Delete(ctx, id, p.ID))
}

func (c *caller) fork(ctx context.Context, id string) error {
	forks, err := c.Sandboxes.Fork(ctx, id, client.ForkOptions{Count: 2})
	for _, f := range forks {
		if f.Err != nil {
			err = errors.Join(err, f.Err)
			continue
		}
		_, gone := c.Sandboxes.Delete(ctx, f.Sandbox.ID)
		err = errors.Join(err, gone)
	}
	return wrap("fork", err)
}

func (c *caller) snapshot(ctx context.Context, id string) error {
	c.made++
	sn, err := c.Snapshots.Create(ctx, id, client.SnapshotOptions{Name: fmt.Sprintf("%s-%d", c.name, c.made)})
	if err != nil {
		return wrap("snapshot", err)
	}
	sb, err := c.Sandboxes.Create(ctx, client.CreateOptions{Snapshot: sn.ID, Resources: small, TTL: 10 * time.Minute, WaitUpTo: timeLimit})
	if err == nil {
		_, err = c.Sandboxes.Delete(ctx, sb.ID)
	}
	return wrap("snapshot", errors.Join(err, c.Snapshots.Delete(ctx, sn.ID)))
}

// port connects to a port where no program listens.
func (c *caller) port(ctx context.Context, id string) error {
	if _, err := c.Sandboxes.Ports.Publish(ctx, id, 8080, client.PortPublic); err != nil {
		return wrap("publish", err)
	}
	conn, err := c.Sandboxes.Ports.Dial(ctx, id, 8080)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	if err == nil {
		return errors.New("port: a byte came from a port where no program listens")
	}
	return wrap("unpublish", c.Sandboxes.Ports.Unpublish(ctx, id, 8080))
}

// follow reads the stream of events until an event of the sandbox comes.
func (c *caller) follow(ctx context.Context, id string) error {
	for e, err := range c.Events.Follow(ctx, client.FollowOptions{Sandbox: id, Since: time.Now().Add(-time.Hour)}) {
		if err != nil {
			return wrap("follow", err)
		}
		if e.SandboxID == id {
			break
		}
	}
	return ctx.Err()
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// work has callers work for a time, and ends when all their sandboxes are destroyed.
func work(t *testing.T, s *testserver.Server, round int, d time.Duration) (operations int64) {
	t.Helper()
	var done atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		c := &caller{Client: s.Client, name: fmt.Sprintf("r%dc%d", round, i), random: rand.New(rand.NewPCG(uint64(round), uint64(i)))}
		wg.Go(func() {
			for until := time.Now().Add(d); time.Now().Before(until); {
				n, err := c.life(t.Context())
				done.Add(int64(n))
				if err != nil {
					t.Errorf("sandbox %d of %s: %v", c.made, c.name, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return done.Load()
}

func TestSoak(t *testing.T) {
	d := length(t)
	s := testserver.StartSmall(t, "--pool-size", strconv.Itoa(poolSize), "--sandbox-retention", "1m", "--exec-retention", "1m")
	work(t, s, 0, part) // fills caches and pools of connections
	before, images := rest(t, s), files(t, filepath.Join(s.StateDir, "images"), "")
	t.Logf("before: %s", before)
	for round := 1; round <= counts; round++ {
		operations := work(t, s, round, d)
		after, grown := settled(t, s, before, timeLimit)
		t.Logf("after %d more operations: %s", operations, after)
		if len(grown) > 0 {
			t.Fatalf("grown:\n%s\nleft on the host:\n%s", strings.Join(grown, "\n"), strings.Join(s.Leftovers(), "\n"))
		}
	}
	if d > part { // a long soak, after which half an hour is short
		removedImages(t, s, images)
	}
}
