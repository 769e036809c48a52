package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

const (
	stormKills   = 8
	stormCallers = 3
	stormPause   = 4 * time.Second // between two kills
	// stormKept is the number of sandboxes that a caller has at most.
	stormKept = 2
)

// stormCaller makes calls at random servers, and remembers what was answered with success.
type stormCaller struct {
	t      *testing.T
	g      *group
	name   string
	random *rand.Rand
	kept   map[string]string // id → the text of its file
	ended  map[string]bool
	unsure map[string]bool // the answer to a call that changes it did not come
	done   *atomic.Int64
	failed *atomic.Int64
}

// at returns a random server.
func (c *stormCaller) at() *client.Client { return c.g.servers[c.random.IntN(len(c.g.servers))].Client }

// told counts an operation, and reports whether it was answered with success. Answers that no server may give fail the test.
func (c *stormCaller) told(what string, err error) bool {
	if err == nil {
		c.done.Add(1)
		return true
	}
	c.failed.Add(1)
	var answer *client.Error
	if errors.As(err, &answer) && answer.Code != client.Unavailable && answer.Code != client.Conflict {
		c.t.Errorf("%s: %s: %v", c.name, what, err)
	}
	return false
}

// step makes a random call.
func (c *stormCaller) step(ctx context.Context, n int) {
	for id, text := range c.kept {
		switch c.random.IntN(6) {
		case 0:
			c.pause(ctx, id)
		case 1:
			if len(c.kept) == stormKept {
				c.end(ctx, id)
			}
		default:
			c.check(ctx, id, text)
		}
		break
	}
	if len(c.kept) < stormKept {
		c.create(ctx, fmt.Sprintf("%s-%d", c.name, n))
	}
}

func (c *stormCaller) create(ctx context.Context, name string) {
	sb, err := c.at().Sandboxes.Create(ctx, client.CreateOptions{Name: name, Image: "app:v1", IdempotencyKey: name, Resources: client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}, WaitUpTo: time.Minute})
	if !c.told("create "+name, err) || sb.State != client.Running {
		return
	}
	_, err = c.at().Sandboxes.Files.Write(ctx, name, "/srv/text", strings.NewReader(name), client.WriteOptions{})
	if c.told("write a file of "+name, err) {
		c.kept[sb.ID] = name
	}
}

func (c *stormCaller) pause(ctx context.Context, id string) {
	_, err := c.at().Sandboxes.Pause(ctx, id)
	c.told("pause "+id, err)
}

func (c *stormCaller) end(ctx context.Context, id string) {
	_, err := c.at().Sandboxes.Delete(ctx, id)
	delete(c.kept, id)
	if c.told("delete "+id, err) {
		c.ended[id] = true
	} else {
		c.unsure[id] = true
	}
}

// check reads the file of a sandbox, which resumes it if it is paused.
func (c *stormCaller) check(ctx context.Context, id, text string) {
	out, err := c.at().Sandboxes.Exec(ctx, id, client.Command{Argv: []string{"/bin/cat", "/srv/text"}, Timeout: time.Minute})
	if c.told("exec in "+id, err) && string(out.Stdout) != text {
		c.t.Errorf("%s: the file of %s is %q, want %q", c.name, id, out.Stdout, text)
	}
}

// TestActiveServersStorm kills one of three servers of which two are active, again and again, while callers use all. All changes that were answered with success stay, and in
// the end nothing remains.
func TestActiveServersStorm(t *testing.T) {
	g := startGroup(t, 3)
	active, _ := g.twoActive()
	active[0].buildBusybox()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done, failed atomic.Int64
	var callers []*stormCaller
	var working sync.WaitGroup
	for i := range stormCallers {
		c := &stormCaller{t: t, g: g, name: fmt.Sprintf("caller-%d", i), random: rand.New(rand.NewPCG(1, uint64(i))), kept: map[string]string{}, ended: map[string]bool{}, unsure: map[string]bool{}, done: &done, failed: &failed}
		callers = append(callers, c)
		working.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c.step(t.Context(), n)
			}
		})
	}
	kills := rand.New(rand.NewPCG(2, 2))
	for range stormKills {
		time.Sleep(stormPause)
		s := g.servers[kills.IntN(len(g.servers))]
		s.end(os.Kill)
		s.launch()
	}
	cancel()
	working.Wait()
	g.twoActive()
	for _, s := range g.servers {
		s.ready(s.url+" answers", func(string) bool { return true })
	}
	t.Logf("%d calls were answered with success, and %d failed", done.Load(), failed.Load())
	if done.Load() < 10*stormKills {
		t.Errorf("%d calls were answered with success in %d kills", done.Load(), stormKills)
	}
	lost, kept := 0, 0
	for _, c := range callers {
		for id, text := range c.kept {
			kept++
			out, err := g.servers[0].Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"/bin/cat", "/srv/text"}, Timeout: time.Minute})
			if err != nil || string(out.Stdout) != text {
				lost++
				sb, _ := g.servers[0].Sandboxes.Get(t.Context(), id)
				t.Errorf("%s is lost: %+v, %v; it is %+v", id, out, err, sb)
			}
		}
		for id := range c.ended {
			if sb, err := g.servers[1].Sandboxes.Get(t.Context(), id); err == nil && sb.State != client.Destroyed {
				t.Errorf("%s, which was destroyed, is %s", id, sb.State)
			}
		}
	}
	t.Logf("%d of %d sandboxes were lost", lost, kept)
	g.empty()
}

// empty ends all sandboxes, through each server in turn, and checks that no box and no saved state remains.
func (g *group) empty() {
	g.t.Helper()
	n := 0
	for sb, err := range g.servers[0].Sandboxes.List(client.ListOptions{}).All(g.t.Context()) {
		if err != nil {
			g.t.Fatal(err)
		}
		n++
		if _, err := g.servers[n%len(g.servers)].Sandboxes.Delete(g.t.Context(), sb.ID); err != nil && !errors.Is(err, client.Ended) {
			g.t.Errorf("delete %s: %v", sb.ID, err)
		}
	}
	var left []string
	until(g.t, "no box and no saved state remains", func() bool {
		left = nil
		for _, pattern := range []string{filepath.Join(g.stateDir, "checkpoints", "*-*"), filepath.Join(g.stateDir, "checkpoints", "forks", "*", "*"), filepath.Join(g.workers[0].run, "boxes", "*"), filepath.Join(g.workers[1].run, "boxes", "*")} {
			found, _ := filepath.Glob(pattern)
			left = append(left, found...)
		}
		return len(left) == 0
	}, func() string { return fmt.Sprint(left) })
}
