package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestBuildsAreAdmittedAgainstWhatTheServerPromises(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir()+"/db")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ws, _, err := s.Workspaces.EnsureDefaults(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	most := sandbox.Resources{MemoryBytes: 2 << 30, CPUMilli: 1000, DiskBytes: 4 << 30}
	a := quota.Admission{Most: quota.Promise{MemoryBytes: 3 << 30, DiskBytes: 16 << 30}}
	if _, err := s.Quotas.BeginBuild(t.Context(), sandbox.NewID(), ws, most, most, a); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Quotas.Promised(t.Context()); err != nil || p != (quota.Promise{MemoryBytes: 2 << 30, DiskBytes: 4 << 30}) {
		t.Errorf("promised: %+v, %v", p, err)
	}
	_, err = s.Quotas.BeginBuild(t.Context(), sandbox.NewID(), ws, most, most, a)
	if sandbox.CodeOf(err) != sandbox.QuotaExceeded || !errors.Is(err, quota.ErrServerFull) ||
		!strings.Contains(err.Error(), "3Gi of memory (setting capacity.memory_overcommit), of which 2Gi are promised, and this needs 2Gi") {
		t.Errorf("a second build: %v, want it refused with what is promised and the setting", err)
	}
	if got, err := s.Quotas.BeginBuild(t.Context(), sandbox.NewID(), ws, sandbox.Resources{}, most, a); err != nil || got.MemoryBytes != 1<<30 {
		t.Errorf("one that is content with what is left: %+v, %v", got, err)
	}
	a.Most.MemoryBytes = 1 << 30
	if _, err := s.Quotas.BeginBuild(t.Context(), sandbox.NewID(), ws, most, most, a); !errors.Is(err, quota.ErrNeverFits) {
		t.Errorf("one that is more than all: %v, want that it never fits", err)
	}
}
