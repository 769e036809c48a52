package backup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/archive"
	"github.com/modbox/modbox/internal/backup"
	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestPruneKeepsArchivedSandboxes prunes a bucket that has no backup and one archived state; earlier versions refuse the bucket.
func TestPruneKeepsArchivedSandboxes(t *testing.T) {
	bucket, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pages.img"), []byte("memory"), 0o600); err != nil {
		t.Fatal(err)
	}
	states, err := archive.Open(t.Context(), "file://"+bucket, "", true, ballast.NewBudget(0))
	if err != nil {
		t.Fatal(err)
	}
	defer states.Close()
	id := sandbox.NewCheckpointID()
	if _, _, err := states.Put(t.Context(), archive.Source{Owner: "s", ID: id, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(bucket, "store.json")); err != nil || !strings.Contains(string(text), `"format":2`) {
		t.Errorf("store.json is %s, %v, want format 2", text, err)
	}
	b, err := backup.OpenBucket(t.Context(), "file://"+bucket, "", false)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if p, err := b.Prune(t.Context(), 1, 0); err != nil || p.Removed != 0 || p.Kept != 1 {
		t.Errorf("Prune = %+v, %v, want the blob kept", p, err)
	}
	if err := states.Fetch(t.Context(), id, filepath.Join(t.TempDir(), "s"), nil); err != nil {
		t.Error(err)
	}
	if err := states.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if p, err := b.Prune(t.Context(), 1, 0); err != nil || p.Removed != 1 {
		t.Errorf("Prune without the state = %+v, %v, want the blob removed", p, err)
	}
}
