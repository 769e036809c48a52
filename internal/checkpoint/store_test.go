package checkpoint_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/checkpoint"
)

// Holes take no space on the disk.
func TestSizeIsWithoutHoles(t *testing.T) {
	dir := t.TempDir()
	s, err := checkpoint.Open(dir, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(dir, "sandbox", "checkpoint")
	if err := os.MkdirAll(saved, 0o700); err != nil {
		t.Fatal(err)
	}
	const data = 256 << 10
	if err := os.WriteFile(filepath.Join(saved, "layer"), make([]byte, data), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(saved, "layer"), 1<<30); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Size(saved); err != nil || n < data || n > 2*data {
		t.Errorf("Size() of %d bytes and a hole = %d, %v", data, n, err)
	}
}
