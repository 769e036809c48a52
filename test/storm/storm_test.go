package storm_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	callers = 3
	// atLeast is how many rounds a storm has, each ended by a kill.
	atLeast = 8
	// mostOwned bounds the sandboxes of a caller.
	mostOwned = 3
	timeLimit = 5 * time.Minute
)

// small are the resources of every sandbox, and of the boxes that the pool has without any demand.
var small = client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}

var settings = []string{
	"--pool-size", "3", // two of the boxes fit any image
	"--sandbox-default-memory", small.Memory, "--sandbox-default-disk", small.Disk, "--sandbox-default-cpu", small.CPU,
}

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// caller makes calls one after the other and remembers the answers.
type caller struct {
	s         *client.Client
	random    *rand.Rand
	name      string
	done      *atomic.Int64     // calls that were answered with success
	running   map[string]string // ID to marker: an answer said that it exists with the marker in a file
	ended     map[string]bool   // an answer said that it is destroyed
	unsure    map[string]bool   // the answer to a destroy did not come
	snapshots map[string]string // id to marker
	origin    string            // id of a snapshot with the file /origin
	copies    map[string]bool   // of running: made from origin
	claims    map[string]bool   // made from origin in this round before there could be another box of it
	made      int
}

// any returns the id of a sandbox; "" when there is none.
func (c *caller) any() string {
	ids := slices.Sorted(maps.Keys(c.running))
	if len(ids) == 0 {
		return ""
	}
	return ids[c.random.IntN(len(ids))]
}

// told counts an operation that was answered with success.
func (c *caller) told(err error) bool {
	if err == nil {
		c.done.Add(1)
	}
	return err == nil
}

// create creates a sandbox of an image or from a snapshot, and returns its id if all was answered with success.
func (c *caller) create(ctx context.Context, o client.CreateOptions) string {
	c.made++
	marker := fmt.Sprintf("%s-%d", c.name, c.made)
	o.Name, o.Resources, o.TTL, o.WaitUpTo = marker, small, time.Hour*20, timeLimit
	sb, err := c.s.Sandboxes.Create(ctx, o)
	if !c.told(err) || sb.State != client.Running {
		return ""
	}
	res, err := c.s.Sandboxes.Exec(ctx, sb.ID, client.Command{Shell: "echo " + marker + " > /marker", User: "root"})
	if !c.told(err) || res.ExitCode != 0 {
		c.unsure[sb.ID] = true
		return ""
	}
	c.running[sb.ID], c.copies[sb.ID] = marker, o.Snapshot != ""
	return sb.ID
}

// claim creates a sandbox that can only get a box of the pool that fits any image: the server has made no other sandbox from the
// snapshot since its start.
func (c *caller) claim(ctx context.Context) {
	if id := c.any(); len(c.running) >= mostOwned {
		c.destroy(ctx, id)
	}
	if id := c.create(ctx, client.CreateOptions{Snapshot: c.origin}); id != "" {
		c.claims[id] = true
	}
}

func (c *caller) destroy(ctx context.Context, id string) {
	delete(c.running, id)
	if _, err := c.s.Sandboxes.Delete(ctx, id); c.told(err) {
		c.ended[id] = true
	} else {
		c.unsure[id] = true
	}
}

func (c *caller) fork(ctx context.Context, id string) {
	children, err := c.s.Sandboxes.Fork(ctx, id, client.ForkOptions{Count: 1})
	if !c.told(err) {
		return
	}
	for _, child := range children {
		if child.Err == nil {
			c.running[child.Sandbox.ID], c.copies[child.Sandbox.ID] = c.running[id], c.copies[id]
		}
	}
}

// act makes one call that the caller's random numbers choose.
func (c *caller) act(ctx context.Context) {
	id := c.any()
	switch what := c.random.IntN(10); {
	case id == "" || what < 3 && len(c.running) < mostOwned:
		o := client.CreateOptions{Image: "modbox/base"}
		if c.random.IntN(2) == 0 {
			o = client.CreateOptions{Snapshot: c.origin}
		}
		c.create(ctx, o)
	case what < 3 || len(c.running) > mostOwned:
		c.destroy(ctx, id)
	case what < 5:
		_, err := c.s.Sandboxes.Exec(ctx, id, client.Command{Argv: []string{"cat", "/marker"}})
		c.told(err)
	case what < 7:
		_, err := c.s.Sandboxes.Pause(ctx, id)
		c.told(err)
	case what < 8:
		_, err := c.s.Sandboxes.Resume(ctx, id, client.ResumeOptions{})
		c.told(err)
	case what < 9:
		c.fork(ctx, id)
	default:
		if sn, err := c.s.Snapshots.Create(ctx, id, client.SnapshotOptions{Name: c.name, Tag: fmt.Sprintf("t%d", c.random.Uint32())}); c.told(err) {
			c.snapshots[sn.ID] = c.running[id]
		}
	}
}

// verify returns the answers that no longer hold.
func (c *caller) verify(ctx context.Context) (lost []string) {
	for id, marker := range c.running {
		want := marker + "\n"
		if c.copies[id] {
			want += "origin\n"
		}
		res, err := c.s.Sandboxes.Exec(ctx, id, client.Command{Argv: []string{"cat", "/marker", "/origin"}}) // not all have the second
		if err != nil || string(res.Stdout) != want {
			sb, _ := c.s.Sandboxes.Get(ctx, id)
			lost = append(lost, fmt.Sprintf("files of sandbox %s: %+v, %v; it is %+v", id, res, err, sb))
		}
	}
	for id := range c.ended {
		if sb, err := c.s.Sandboxes.Get(ctx, id); err != nil && !client.IsCode(err, client.NotFound) || err == nil && sb.State != client.Destroyed {
			lost = append(lost, fmt.Sprintf("end of sandbox %s: %+v, %v", id, sb, err))
		}
	}
	for id := range c.snapshots {
		if _, err := c.s.Snapshots.Get(ctx, id); err != nil {
			lost = append(lost, fmt.Sprintf("snapshot %s: %v", id, err))
		}
	}
	for id := range c.unsure {
		if _, err := c.s.Sandboxes.Delete(ctx, id); err != nil && !client.IsCode(err, client.NotFound) {
			lost = append(lost, fmt.Sprintf("destroy of sandbox %s: %v", id, err))
		}
	}
	clear(c.unsure)
	clear(c.ended)
	return lost
}

// stuck waits until every sandbox runs or is paused, and returns the ids of the others.
func stuck(t *testing.T, s *testserver.Server) (ids []string) {
	t.Helper()
	for deadline := time.Now().Add(timeLimit); ; time.Sleep(100 * time.Millisecond) { // polling another process
		ids = nil
		for sb, err := range s.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if sb.State != client.Running && sb.State != client.Paused {
				ids = append(ids, fmt.Sprintf("sandbox %s is %s", sb.ID, sb.State))
			}
		}
		if len(ids) == 0 || time.Now().After(deadline) {
			return ids
		}
	}
}

// origin makes the snapshot from which callers make sandboxes.
func origin(t *testing.T, s *testserver.Server) string {
	t.Helper()
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", Resources: small})
	if res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "echo origin > /origin", User: "root"}); err != nil || res.ExitCode != 0 {
		t.Fatalf("write a file: %+v, %v", res, err)
	}
	sn, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "origin"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	return sn.ID
}

// hurried reports whether a round ends while callers claim boxes, before any has an answer.
func hurried(kills int) bool { return kills%3 == 2 }

func TestStorm(t *testing.T) {
	s := testserver.StartSmall(t, settings...)
	seed := number(t, "MODBOX_TEST_STORM_SEED", uint64(time.Now().UnixNano()))
	until := time.Now().Add(time.Duration(number(t, "MODBOX_TEST_STORM_MINUTES", 0)) * time.Minute)
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var operations atomic.Int64
	from := origin(t, s)
	all := make([]*caller, callers)
	for i := range all {
		all[i] = &caller{
			random: rand.New(rand.NewPCG(seed, uint64(i+1))), name: fmt.Sprintf("c%d", i), done: &operations,
			running: map[string]string{}, ended: map[string]bool{}, unsure: map[string]bool{}, snapshots: map[string]string{},
			origin: from, copies: map[string]bool{}, claims: map[string]bool{},
		}
	}
	kills, claims := 0, 0
	var lost, orphaned []string
	for kills < atLeast || time.Now().Before(until) {
		s.AwaitBlankBox()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		claimed := make(chan struct{}, callers)
		for _, c := range all {
			c.s = s.Client
			wg.Go(func() {
				c.claim(ctx)
				claimed <- struct{}{}
				for ctx.Err() == nil {
					c.act(ctx)
				}
			})
		}
		// The moment is random on purpose: between any two steps of any of the calls.
		if hurried(kills) {
			<-time.After(time.Duration(random.IntN(200)) * time.Millisecond)
		} else {
			<-claimed
			<-time.After(time.Duration(random.IntN(4000)) * time.Millisecond)
		}
		s.Kill()
		kills++
		cancel()
		wg.Wait()
		s.Launch()
		for _, c := range all {
			c.s = s.Client
			lost = append(lost, c.verify(t.Context())...)
			for id := range c.claims {
				if s.FromPool(id) {
					claims++
				}
			}
			clear(c.claims)
		}
		orphaned = append(orphaned, stuck(t, s)...)
	}
	all[0].snapshots[from] = ""
	for _, c := range all {
		for id := range c.snapshots {
			if err := s.Snapshots.Delete(t.Context(), id); err != nil {
				t.Errorf("delete snapshot %s: %v", id, err)
			}
		}
	}
	for sb, err := range s.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
			t.Errorf("delete %s: %v", sb.ID, err)
		}
	}
	s.Stop() // gives up its pool
	orphaned = append(orphaned, s.Left("")...)
	orphaned = append(orphaned, files(t, filepath.Join(s.StateDir, "checkpoints"))...)
	orphaned = append(orphaned, files(t, filepath.Join(s.StateDir, "spool"))...)
	found := strings.Count(s.Log(), "destroying a box without a sandbox")
	if claims == 0 {
		t.Error("no sandbox was given a box of the pool that fits any image")
	}
	t.Logf("kills %d, operations %d, %d sandboxes in boxes that fit any image, lost %d, orphaned %d; the sweep found %d boxes without a sandbox, of the pool or of calls cut short", kills, operations.Load(), claims, len(lost), len(orphaned), found)
	for _, what := range lost {
		t.Errorf("lost: %s", what)
	}
	for _, what := range orphaned {
		t.Errorf("orphaned: %s", what)
	}
}

// files lists the files below a directory.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, "file "+path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return list
}
