package server

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
)

func TestDigestsInUse(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), filepath.Join(dir, statedir.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	ws, user, err := st.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string) sandbox.ID {
		now := time.Now().UTC()
		c := sandbox.Creation{RequestHash: name, Sandbox: sandbox.Sandbox{
			ID: sandbox.NewID(), Workspace: ws, Name: name, HostLabel: sandbox.HostLabel(name), State: sandbox.Provisioning,
			Image: "x", Resources: sandbox.Resources{MemoryBytes: 1, CPUMilli: 1, DiskBytes: 1}, CreatedBy: user, CreatedAt: now, UpdatedAt: now,
		}}
		if _, err := st.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{}); err != nil {
			t.Fatal(err)
		}
		return c.Sandbox.ID
	}
	inUse := DigestsInUse(config.Config{StateDir: dir})
	starts, ended := create("starts"), create("ended")
	if _, err := st.Sandboxes.SetBox(t.Context(), ended, "sha256:old", nil); err != nil {
		t.Fatal(err)
	}
	for _, step := range [][2]sandbox.State{{sandbox.Provisioning, sandbox.Destroying}, {sandbox.Destroying, sandbox.Destroyed}} {
		if _, err := st.Sandboxes.Transition(t.Context(), ended, step[0], step[1], sandbox.Change{}, sandbox.Event{Type: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := inUse(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("while a sandbox is being started: %v, %v; want unavailable", got, err)
	}
	if _, err := st.Sandboxes.SetBox(t.Context(), starts, "sha256:new", nil); err != nil {
		t.Fatal(err)
	}
	got, err := inUse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"sha256:new"}, got); diff != "" {
		t.Errorf("digests in use (-want +got):\n%s", diff)
	}
	if got, err := DigestsInUse(config.Config{StateDir: t.TempDir()})(t.Context()); got != nil || err != nil {
		t.Errorf("without a server: %v, %v", got, err)
	}
}

// TestImagesCloseTheStateDirectory starts with a state directory that an older version made
// accessible to all users, and without one.
func TestImagesCloseTheStateDirectory(t *testing.T) {
	for name, mode := range map[string]os.FileMode{"new": 0, "open": 0o755} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Config{StateDir: filepath.Join(t.TempDir(), "state")}
			if mode != 0 {
				if err := os.Mkdir(cfg.StateDir, mode); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := OpenImages(cfg); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{cfg.StateDir, filepath.Join(cfg.StateDir, statedir.ImagesDir)} {
				if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%s has mode %v, %v, want 0700", dir, info.Mode(), err)
				}
			}
		})
	}
}
