package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/imagerows"
	"github.com/modbox/modbox/test/testserver"
)

// TestPublicSnapshotInAnotherWorkspace has a second workspace use a snapshot of
// the first, which deletes it meanwhile: its files stay as long as they are of use.
func TestPublicSnapshotInAnotherWorkspace(t *testing.T) {
	s := testserver.StartSmall(t)
	ws, err := s.Workspaces.Create(t.Context(), client.WorkspaceOptions{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	other := func() *client.Client { // the server's address changes
		t.Helper()
		c, err := client.New(s.URL, s.Token, client.WithWorkspace(ws.ID))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	source := s.MustCreate(client.CreateOptions{Image: image})
	taken := map[string]*client.Snapshot{}
	for _, name := range []string{"shared", "private", "first", "second"} {
		asRoot(t, s, source.ID, "echo "+name+" >/srv/marker")
		sn, err := s.Snapshots.Create(t.Context(), source.ID, client.SnapshotOptions{Name: name, Public: name == "shared"})
		if err != nil {
			t.Fatal(err)
		}
		taken[name] = sn
	}
	shared := taken["shared"]
	create := func(ref string) (*client.Sandbox, error) {
		return other().Sandboxes.Create(t.Context(), client.CreateOptions{Snapshot: ref, WaitUpTo: 5 * time.Minute})
	}
	sb, err := create(shared.FullName)
	if err != nil || sb.State != client.Running {
		t.Fatalf("a sandbox from %s: %+v, %v", shared.FullName, sb, err)
	}
	marker := func() {
		t.Helper()
		res, err := other().Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"cat", "/srv/marker"}})
		if err != nil || string(res.Stdout) != "shared\n" {
			t.Fatalf("the marker in the other workspace's sandbox: %+v, %v", res, err)
		}
	}
	marker()
	if _, err := create(taken["private"].ID); !client.IsCode(err, client.Invalid) {
		t.Errorf("a sandbox from the first workspace's private snapshot: %v, want invalid", err)
	}
	if err := other().Snapshots.Delete(t.Context(), shared.ID); !client.IsCode(err, client.NotFound) {
		t.Errorf("deleting another workspace's snapshot: %v, want not_found", err)
	}

	remove := func(name string) {
		t.Helper()
		if err := s.Snapshots.Delete(t.Context(), taken[name].ID); err != nil {
			t.Fatal(err)
		}
	}
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(s.StateDir, "images", "images", strings.TrimPrefix(taken[name].Digest, "sha256:")+".erofs"))
		return err == nil
	}
	gone := func(name string) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); there(name); time.Sleep(50 * time.Millisecond) { // polling another process
			if time.Now().After(deadline) {
				t.Fatalf("the root filesystem of snapshot %s is still there", name)
			}
		}
	}
	s.Stop()
	age(t, s)
	s.Launch()
	remove("shared")
	remove("first") // everything collected after this is unused
	gone("first")
	if !there("shared") {
		t.Fatal("the root filesystem of a sandbox that runs was removed")
	}
	if _, err := other().Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := other().Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	marker()
	if _, err := create(shared.ID); !client.IsCode(err, client.Invalid) {
		t.Errorf("a sandbox from a deleted snapshot: %v, want invalid", err)
	}
	if _, err := other().Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	remove("second")
	gone("second")
	gone("shared")
	if !there("private") {
		t.Error("the root filesystem of a snapshot was removed")
	}
}

// age makes everything in the image store two hours older, which is longer than new images are
// protected. The server must not be running.
func age(t *testing.T, s *testserver.Server) {
	t.Helper()
	st, err := store.OpenExisting(t.Context(), filepath.Join(s.StateDir, statedir.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	rows := imagerows.New(st.DB)
	list, err := rows.Images(t.Context())
	for i := range list {
		list[i].UpdatedAt = time.Now().Add(-2 * time.Hour)
	}
	if err := errors.Join(err, rows.ChangeImages(t.Context(), list, nil), st.Close()); err != nil {
		t.Fatal(err)
	}
}
