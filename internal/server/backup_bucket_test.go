package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestAutomaticBackupsNeedTheirDirectory: where nothing is mounted the server makes no directory and no backup.
func TestAutomaticBackupsNeedTheirDirectory(t *testing.T) {
	empty := t.TempDir()
	missing := filepath.Join(empty, "missing")
	for _, dir := range []string{empty, missing} {
		target := backupPlan{Bucket: "file://" + dir}.target(slog.New(slog.DiscardHandler), nil)
		if at, err := target.Last(t.Context()); err == nil {
			t.Errorf("%s: Last = %v, want an error", dir, at)
		}
		if id, err := target.Make(t.Context()); err == nil {
			t.Errorf("%s: Make = %q, want an error", dir, id)
		}
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) > 0 {
		t.Errorf("written: %v, %v", entries, err)
	}
}
