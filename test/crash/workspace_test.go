package crash_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestKillInTheMiddleOfDeletingAWorkspace kills the server while it deletes a workspace with
// running and paused sandboxes, checkpoints and a snapshot. After the restart nothing of it
// remains, and the other workspace is unchanged.
func TestKillInTheMiddleOfDeletingAWorkspace(t *testing.T) {
	s := testserver.StartSmall(t, "--pool-size", "0")
	small := client.CreateOptions{
		Image: "modbox/base", WaitUpTo: 5 * time.Minute, Resources: client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"},
	}
	kept, err := s.Sandboxes.Create(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	s.Bash(kept.ID, "echo kept >/tmp/marker", time.Minute)
	images := names(t, s, "images/images")
	for round := range 4 {
		ws, err := s.Workspaces.Create(t.Context(), client.WorkspaceOptions{Name: "doomed"})
		if err != nil {
			t.Fatal(err)
		}
		member := memberOf(t, s, ws.ID)
		var ids []string
		for i := range 3 {
			sb, err := member.Sandboxes.Create(t.Context(), small)
			if err != nil || sb.State != client.Running {
				t.Fatalf("create: %+v, %v", sb, err)
			}
			ids = append(ids, sb.ID)
			if i == 0 {
				continue
			}
			if _, err := member.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, ""); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := member.Snapshots.Create(t.Context(), ids[0], client.SnapshotOptions{Name: "s", Public: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := member.Sandboxes.Pause(t.Context(), ids[2]); err != nil {
			t.Fatal(err)
		}
		if err := member.Workspaces.Delete(t.Context(), ws.ID); err != nil {
			t.Fatal(err)
		}
		// The moment is random on purpose: between any two steps.
		<-time.After(time.Duration(rand.IntN(400)) * time.Millisecond)
		s.Kill()
		s.Launch()
		if _, err := memberOf(t, s, ws.ID).Sandboxes.List(client.ListOptions{}).Page(t.Context(), client.PageOptions{}); err == nil {
			t.Errorf("round %d: the workspace can still be used", round)
		}
		for _, id := range ids {
			until(t, "the processes of sandbox "+id+" to end", func() bool {
				return !slices.ContainsFunc(s.Leftovers(), func(left string) bool { return strings.Contains(left, id) })
			})
			until(t, "what was saved of sandbox "+id+" to be removed", func() bool { return len(names(t, s, "checkpoints/"+id)) == 0 })
		}
		until(t, "its snapshot to be deleted", func() bool {
			page, err := s.Snapshots.List(client.SnapshotFilter{Public: true}).Page(t.Context(), client.PageOptions{})
			return err == nil && len(page.Items) == 0
		})
		if res := s.Bash(kept.ID, "cat /tmp/marker", time.Minute); string(res.Stdout) != "kept\n" {
			t.Errorf("round %d: the other workspace's sandbox says %q %q", round, res.Stdout, res.Stderr)
		}
	}
	for _, dir := range []string{"spool", "images/tmp"} {
		if left := names(t, s, dir); len(left) > 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
	// The root filesystems of the snapshots stay for an hour; no older root filesystem was removed.
	for _, image := range images {
		if !slices.Contains(names(t, s, "images/images"), image) {
			t.Errorf("root filesystem %s is gone", image)
		}
	}
}

// memberOf returns a client that works in a workspace.
func memberOf(t *testing.T, s *testserver.Server, ws string) *client.Client {
	t.Helper()
	c, err := client.New(s.URL, s.Token, client.WithWorkspace(ws))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
