package checkpoint_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/sandbox"
)

// noRecords are the rows of a database without checkpoints.
type noRecords struct{ checkpoint.Records }

func (noRecords) List(context.Context, sandbox.ID) ([]sandbox.Checkpoint, error) { return nil, nil }

// owners is a database with a single sandbox.
type owners struct{ row sandbox.Sandbox }

func (o owners) Owner(id sandbox.ID) (checkpoint.Owner, bool) {
	return checkpoint.Owner{Live: id == o.row.ID && !o.row.State.Ended()}, true
}

func (o owners) SandboxByID(context.Context, sandbox.ID) (sandbox.Sandbox, error) { return o.row, nil }

// noRows are owners whose rows cannot be read.
type noRows struct{ owners }

func (noRows) SandboxByID(context.Context, sandbox.ID) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errors.New("the row was read")
}

// TestSweepReadsNoRowsOfEmptyDirectories: each running sandbox that was paused once has an empty directory.
func TestSweepReadsNoRowsOfEmptyDirectories(t *testing.T) {
	dir := t.TempDir()
	s, err := checkpoint.Open(dir, nil, names{}, noRecords{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	id := sandbox.NewID()
	if err := os.Mkdir(filepath.Join(dir, string(id)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkpoint.NewSweeper(s, nil, noRows{owners{row: sandbox.Sandbox{ID: id, State: sandbox.Running}}}).Sweep(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSweepBesideASave: the sweep removes remains, and leaves the directory of a live sandbox, into which a pause or a fetch may be about to write.
func TestSweepBesideASave(t *testing.T) {
	for state, want := range map[sandbox.State]bool{sandbox.Paused: true, sandbox.Running: true, sandbox.Destroyed: false} {
		t.Run(string(state), func(t *testing.T) {
			dir := t.TempDir()
			s, err := checkpoint.Open(dir, nil, names{}, noRecords{}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			id := sandbox.NewID()
			owner := filepath.Join(dir, string(id))
			if err := os.MkdirAll(filepath.Join(owner, ".new-1"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := checkpoint.NewSweeper(s, nil, owners{row: sandbox.Sandbox{ID: id, State: state}}).Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(filepath.Join(owner, ".new-1")); !os.IsNotExist(err) {
				t.Errorf("the remains: %v", err)
			}
			if _, err := os.Lstat(owner); (err == nil) != want {
				t.Errorf("the directory: %v, want that it stays: %v", err, want)
			}
		})
	}
}
