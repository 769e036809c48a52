package crash_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestKillInTheMiddleOfSnapshots kills the server at random moments while snapshots of a running
// and a paused sandbox are made. After each restart both sandboxes exist, every listed snapshot is
// complete, and nothing remains of the others.
func TestKillInTheMiddleOfSnapshots(t *testing.T) {
	s := testserver.StartSmall(t)
	const rounds = 5
	create := func(o client.CreateOptions) string {
		t.Helper()
		o.WaitUpTo, o.Resources = 5*time.Minute, client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}
		sb, err := s.Sandboxes.Create(t.Context(), o)
		if err != nil || sb.State != client.Running {
			t.Fatalf("create: %+v, %v", sb, err)
		}
		return sb.ID
	}
	marked := func(id string) {
		t.Helper()
		res, err := s.Sandboxes.Exec(t.Context(), id, client.Command{Shell: "cat /marker; wc -c /data", User: "root"})
		if err != nil || !strings.HasPrefix(string(res.Stdout), "kept\n8388608 ") {
			t.Errorf("files of sandbox %s: %+v, %v", id, res, err)
		}
	}
	ids := make([]string, 2)
	for i := range ids {
		ids[i] = create(client.CreateOptions{Image: "modbox/base"})
		res, err := s.Sandboxes.Exec(t.Context(), ids[i], client.Command{Shell: "echo kept > /marker; head -c 8M /dev/urandom > /data", User: "root"})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("write: %+v, %v", res, err)
		}
	}
	for range rounds {
		if _, err := s.Sandboxes.Pause(t.Context(), ids[1]); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, id := range ids {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = s.Snapshots.Create(ctx, id, client.SnapshotOptions{Name: "s"}) // the server is killed under it
				}
			})
		}
		// The moment is random on purpose: between any two steps.
		<-time.After(time.Duration(200+rand.IntN(1500)) * time.Millisecond)
		s.Kill()
		cancel()
		wg.Wait()
		s.Launch()
		for _, id := range ids {
			marked(id)
		}
		page, err := s.Snapshots.List(client.SnapshotFilter{}).Page(t.Context(), client.PageOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Items) > 0 {
			child := create(client.CreateOptions{Snapshot: page.Items[0].ID})
			marked(child)
			if _, err := s.Sandboxes.Delete(t.Context(), child); err != nil {
				t.Error(err)
			}
		}
	}
	for _, dir := range []string{"spool", "images/tmp"} {
		until(t, dir+" to be empty", func() bool { return len(names(t, s, dir)) == 0 })
	}
	// However few came to be above: after all that one can be taken of each.
	for _, id := range ids {
		sn, err := s.Snapshots.Create(t.Context(), id, client.SnapshotOptions{Name: "last"})
		if err != nil {
			t.Fatal(err)
		}
		marked(create(client.CreateOptions{Snapshot: sn.ID}))
	}
}
