package modbox

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/sandbox"
)

// imageDetail is an image in the product's form.
type imageDetail struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Image         string    `json:"image"`
	Tag           string    `json:"tag"`
	Description   *string   `json:"description"`
	Enabled       bool      `json:"enabled"`
	IsDefault     bool      `json:"is_default"`
	MemoryMB      int64     `json:"memory_mb"`
	ReadinessPort *int64    `json:"readiness_port"`
	TTLSeconds    *int64    `json:"ttl_seconds"`
	RegistryID    *string   `json:"registry_id"`
	RegistryName  *string   `json:"registry_name"`
	WorkspaceID   *string   `json:"workspace_id"`
	CreatedAt     time.Time `json:"created_at"`
	UpdatedAt     time.Time `json:"updated_at"`
}

func showImage(e catalogue.Listing) imageDetail {
	return imageDetail{
		ID: string(e.ID), Name: e.Name, Image: e.Image, Tag: e.Tag, Description: optional(e.Description),
		Enabled: e.Enabled, IsDefault: e.IsDefault, MemoryMB: e.MemoryBytes >> 20,
		ReadinessPort: unlessZero(int64(e.ReadinessPort)), TTLSeconds: unlessZero(int64(e.TTL / time.Second)),
		RegistryID: optional(string(e.Registry)), RegistryName: optional(e.RegistryName), WorkspaceID: optional(string(e.Workspace)),
		CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt,
	}
}

func unlessZero(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// imageFields reads the writable fields of an image.
func imageFields(in *input, required bool) catalogue.Fields {
	const memoryMin, memoryMax = catalogue.MemoryMin >> 20, catalogue.MemoryMax >> 20
	f := catalogue.Fields{
		Name: in.text("name", required, 1, catalogue.NameMax), Image: in.text("image", required, 1, sandbox.ImageRefMax),
		Tag: in.text("tag", false, 0, catalogue.TagMax), Description: in.text("description", false, 0, catalogue.DescriptionMax),
		MemoryMB:      in.blankable("memory_mb", memoryMin, memoryMax),
		ReadinessPort: in.blankable("readiness_port", 1, math.MaxUint16),
		TTLSeconds:    in.blankable("ttl_seconds", ttlMin, ttlMax),
	}
	if text := in.text("registry_id", false, 0, 0); text != nil {
		if *text != "" {
			*text = in.uuid("registry_id")
		}
		f.Registry = text
	}
	for field, to := range map[string]**bool{"enabled": &f.Enabled, "is_default": &f.IsDefault} {
		if _, ok := in.raw(field, false); ok {
			b := in.boolean(field)
			*to = &b
		}
	}
	return f
}

// blankable is integer for a field that may be absent (nil), or 0 or "", which remove the value.
func (in *input) blankable(field string, min, max int) *int64 {
	v, ok := in.raw(field, false)
	if !ok {
		return nil
	}
	n := int64(0)
	if string(v) != `""` && string(v) != "0" {
		n = int64(in.integer(field, 0, min, max))
	}
	return &n
}

func changer(ctx context.Context) catalogue.Caller {
	id, _ := auth.FromContext(ctx)
	return catalogue.Caller{User: id.User, Workspace: id.Workspace, Administrator: id.May(account.Administer)}
}

func (c *Control) listImages(w http.ResponseWriter, r *http.Request) error {
	enabledOnly := false
	if s := r.URL.Query().Get("enabled_only"); s != "" {
		var err error
		if enabledOnly, err = strconv.ParseBool(s); err != nil {
			return &validationError{[]fault{{[]any{"query", "enabled_only"}, "Input should be a valid boolean, unable to interpret input", "bool_parsing"}}}
		}
	}
	list, err := c.catalogue.List(r.Context(), caller(r.Context()).Workspace, enabledOnly)
	if err != nil {
		return err
	}
	out := struct {
		Images []imageDetail `json:"images"`
		Total  int           `json:"total"`
	}{make([]imageDetail, 0, len(list)), len(list)}
	for _, e := range list {
		out.Images = append(out.Images, showImage(e))
	}
	return answer(w, out)
}

func (c *Control) createImage(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	f := imageFields(in, true)
	if err := in.err(); err != nil {
		return err
	}
	e, err := c.catalogue.Create(r.Context(), changer(r.Context()), f)
	if err != nil {
		return err
	}
	return made(w, showImage(e))
}

func (c *Control) getImage(w http.ResponseWriter, r *http.Request) error {
	e, err := c.catalogue.Get(r.Context(), caller(r.Context()).Workspace, sandbox.ImageID(r.PathValue("image_id")))
	if err != nil {
		return err
	}
	return answer(w, showImage(e))
}

func (c *Control) updateImage(w http.ResponseWriter, r *http.Request) error {
	in, err := readInput(w, r, bodyMax)
	if err != nil {
		return err
	}
	f := imageFields(in, false)
	if err := in.err(); err != nil {
		return err
	}
	e, err := c.catalogue.Update(r.Context(), changer(r.Context()), sandbox.ImageID(r.PathValue("image_id")), f)
	if err != nil {
		return err
	}
	return answer(w, showImage(e))
}

func (c *Control) deleteImage(w http.ResponseWriter, r *http.Request) error {
	if err := c.catalogue.Delete(r.Context(), caller(r.Context()).Workspace, sandbox.ImageID(r.PathValue("image_id"))); err != nil {
		return err
	}
	return answer(w, struct {
		Success bool `json:"success"`
	}{true})
}
