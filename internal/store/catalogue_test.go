package store_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/storetest"
)

func TestCatalogueImages(t *testing.T) {
	s := storetest.Open(t, filepath.Join(t.TempDir(), "modbox.db"))
	ws, user, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	entry := func(name string, isDefault bool) catalogue.Entry {
		now = now.Add(time.Second)
		return catalogue.Entry{
			ID: catalogue.NewID(), Workspace: ws, Name: name, Image: "ghcr.io/a/b", Tag: "v1", Description: "d", Enabled: true,
			IsDefault: isDefault, MemoryBytes: 1 << 30, ReadinessPort: 65535, TTL: time.Hour, Registry: "r", CreatedBy: user, CreatedAt: now, UpdatedAt: now,
		}
	}
	one, two := entry("one", true), entry("two", true)
	for _, e := range []catalogue.Entry{one, two} {
		if err := s.Catalogue.CreateCatalogueImage(t.Context(), e, 2); err != nil {
			t.Fatal(err)
		}
	}
	one.IsDefault = false // two took it
	if got, err := s.Catalogue.CatalogueImages(t.Context(), ws); err != nil || !cmp.Equal(got, []catalogue.Entry{one, two}) {
		t.Errorf("CatalogueImages = %v, %v", cmp.Diff(got, []catalogue.Entry{one, two}), err)
	}
	pinned := entry("pinned", false)
	pinned.Image, pinned.Tag = "ghcr.io/a/c@sha256:1", ""
	if err := s.Catalogue.CreateCatalogueImage(t.Context(), pinned, 3); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Catalogue.CatalogueReferences(t.Context()); err != nil || !cmp.Equal(slices.Sorted(slices.Values(got)), []string{"ghcr.io/a/b:v1", pinned.Image}) {
		t.Errorf("CatalogueReferences = %v, %v", got, err)
	}
	if err := s.Catalogue.DeleteCatalogueImage(t.Context(), ws, pinned.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Catalogue.CreateCatalogueImage(t.Context(), entry("three", false), 2); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one more than the limit: %v", err)
	}
	if err := s.Catalogue.CreateCatalogueImage(t.Context(), entry("two", true), 3); sandbox.CodeOf(err) != sandbox.Exists {
		t.Errorf("a name twice: %v", err)
	}
	if got, err := s.Catalogue.DefaultCatalogueImage(t.Context(), ws); err != nil || got.ID != two.ID {
		t.Errorf("DefaultCatalogueImage after a refused one = %+v, %v", got, err)
	}
	if _, err := s.Catalogue.CatalogueImage(t.Context(), "other", one.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("another workspace's: %v", err)
	}
	if err := s.Catalogue.DeleteCatalogueImage(t.Context(), "other", one.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("delete of another workspace's: %v", err)
	}
	for _, enabled := range []bool{false, false, true, true} { // each twice: idempotent
		if err := s.Catalogue.SetImageEnabled(t.Context(), "builtin", enabled, user, now); err != nil {
			t.Fatal(err)
		}
		off, err := s.Catalogue.ImageDisabled(t.Context(), "builtin")
		all, allErr := s.Catalogue.DisabledImages(t.Context())
		if at, there := all["builtin"]; off == enabled || err != nil || there == enabled || there && !at.Equal(now) || allErr != nil {
			t.Errorf("enabled %v: disabled %v, %v, of all %v, %v", enabled, off, err, all, allErr)
		}
	}
}
