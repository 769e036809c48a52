package catalogue_test

import (
	"errors"
	"testing"

	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestChoose(t *testing.T) {
	c, who := newCatalogue(t)
	name, image, tag, megabytes := "mine", "ghcr.io/org/app", "v2", int64(512)
	memory := megabytes << 20
	e, err := c.Create(t.Context(), who, catalogue.Fields{Name: &name, Image: &image, Tag: &tag, MemoryMB: &megabytes})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name       string
		want       catalogue.Wanted
		id         sandbox.ImageID
		reference  string
		memory     int64
		wrongField string
	}{
		{"server_default", catalogue.Wanted{}, "server default", "base:v1", 0, ""},
		{"reference", catalogue.Wanted{Ref: "app"}, "of all", "app:v1", 1 << 30, ""},
		{"built", catalogue.Wanted{Ref: "own"}, "built", "own:v1", 0, ""},
		{"digest", catalogue.Wanted{Ref: "app@sha256:1"}, "of all", "app@sha256:1", 1 << 30, ""},
		{"entry", catalogue.Wanted{ID: e.ID, Ref: "app", MemoryBytes: memory}, e.ID, "ghcr.io/org/app:v2", memory, ""},
		{"image", catalogue.Wanted{ID: "seen"}, "seen", "seen:v1", 0, ""},
		{"unknown_reference", catalogue.Wanted{Ref: "unknown"}, "", "", 0, "image"},
		{"unknown_id", catalogue.Wanted{ID: "none"}, "", "", 0, "image_id"},
		{"private", catalogue.Wanted{ID: "private"}, "", "", 0, "image_id"},
		{"built_in", catalogue.Wanted{ID: "near"}, "near", "near:v1", 0, ""},
		{"without_registry", catalogue.Wanted{Ref: "afar"}, "", "", 0, "image"},
		{"without_registry_id", catalogue.Wanted{ID: "afar"}, "", "", 0, "image_id"},
		{"without_registry_but_here", catalogue.Wanted{ID: "here"}, "afar", "afar:v1", 0, ""},
		{"memory_of_entry", catalogue.Wanted{ID: e.ID, MemoryBytes: memory + 1}, "", "", 0, "resources.memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := c.Choose(t.Context(), who.Workspace, tt.want)
			if tt.wrongField != "" {
				var public *sandbox.Error
				if !errors.As(err, &public) || public.Code != sandbox.Invalid || public.Field != tt.wrongField {
					t.Errorf("Choose = %v, want code invalid for %s", err, tt.wrongField)
				}
				return
			}
			if err != nil || got.ImageID != tt.id || got.Reference() != tt.reference || got.MemoryBytes != tt.memory {
				t.Errorf("Choose = %s %s with %d bytes, %v; want %s %s with %d", got.ImageID, got.Reference(), got.MemoryBytes, err, tt.id, tt.reference, tt.memory)
			}
		})
	}

	isDefault, enabled := true, false
	if _, err := c.Update(t.Context(), who, e.ID, catalogue.Fields{IsDefault: &isDefault}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Choose(t.Context(), who.Workspace, catalogue.Wanted{}); err != nil || got.ImageID != e.ID {
		t.Errorf("Choose = %s, %v; want the default entry", got.ImageID, err)
	}
	if _, err := c.Update(t.Context(), who, e.ID, catalogue.Fields{Enabled: &enabled}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Choose(t.Context(), who.Workspace, catalogue.Wanted{ID: e.ID}); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("Choose of a disabled entry = %s, %v; want code invalid", got.ImageID, err)
	}
}
