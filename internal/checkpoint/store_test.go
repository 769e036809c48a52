package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Holes take no space on the disk.
func TestSizeIsWithoutHoles(t *testing.T) {
	dir := t.TempDir()
	s, err := checkpoint.Open(dir, nil, nil, nil, slog.New(slog.DiscardHandler))
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

// names is a driver that only reads the names of files.
type names struct {
	driver.Driver
	driver.Checkpointer
	driver.Snapshotter
	read func(context.Context) error
}

func (names) Capabilities() driver.Capabilities { return driver.Capabilities{Checkpoint: true} }

func (n names) WriteNames(ctx context.Context, _ sandbox.ID, _ io.Writer) error { return n.read(ctx) }

// TestCheckFilesWithoutTurn: a check whose turn does not come in time finds nothing against a pause; it is repeated for no other
// reason, and an error that it found counts.
func TestCheckFilesWithoutTurn(t *testing.T) {
	busy := sandbox.Wrap(sandbox.Unavailable, driver.ErrBusy, "other sandboxes are being read")
	omitted := fmt.Errorf("layer: %w", driver.ErrOmitted)
	for name, tc := range map[string]struct {
		read func(ctx context.Context, call int) error
		want error
		once bool
	}{
		"always busy": {read: func(context.Context, int) error { return busy }},
		"ends while it waits": {read: func(ctx context.Context, call int) error {
			if call < 3 {
				return busy
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}},
		"finds a name": {read: func(_ context.Context, call int) error {
			if call < 3 {
				return busy
			}
			return omitted
		}, want: omitted},
		"finds a name too late": {read: func(ctx context.Context, _ int) error { <-ctx.Done(); return omitted }, want: omitted, once: true},
		"has no descriptors": {
			read: func(context.Context, int) error { return errShort }, want: errShort, once: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				read := func(ctx context.Context) error { calls++; return tc.read(ctx, calls) }
				s, err := checkpoint.Open(t.TempDir(), nil, names{read: read}, nil, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := s.CheckFiles(ctx, sandbox.NewID()); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
					t.Errorf("CheckFiles = %v, want %v", err, tc.want)
				}
				if (calls == 1) != tc.once {
					t.Errorf("the files were read %d times, want once: %v", calls, tc.once)
				}
			})
		})
	}
}

var errShort = sandbox.Errorf(sandbox.Unavailable, "the host is out of resources")

// TestSweepForksBesideForks removes what a killed server left while states are in use, and keeps these states and what is being written.
func TestSweepForksBesideForks(t *testing.T) {
	dir := t.TempDir()
	s, err := checkpoint.Open(dir, nil, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	left, part := filepath.Join(dir, "forks", string(sandbox.NewCheckpointID())), filepath.Join(dir, "forks", "part-1")
	used, release := s.Fork()
	for _, path := range []string{left, part, used} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, paths ...string) {
		t.Helper()
		if err := s.SweepForks(); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{left, part, used} {
			if _, err := os.Stat(path); (err == nil) != slices.Contains(paths, path) {
				t.Errorf("%s: %s: %v", what, path, err)
			}
		}
	}
	want("in use", part, used)
	if err := release(); err != nil {
		t.Fatal(err)
	}
	want("nothing in use")
}
