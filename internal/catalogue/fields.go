package catalogue

import (
	"context"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/sandbox"
)

// Fields are the writable fields of an entry, as in requests; nil leaves a field unchanged.
type Fields struct {
	Name, Image, Tag, Description *string
	Enabled, IsDefault            *bool
	// MemoryMB is in mebibytes; 0 means the image's value.
	MemoryMB *int64
	// ReadinessPort and TTLSeconds are 0 for none.
	ReadinessPort, TTLSeconds *int64
	// Registry is "" for any credential that the workspace has for the image's host.
	Registry *string
}

// The ranges of a TTL in seconds, and of a memory limit in mebibytes.
const (
	ttlMin    = int64(sandbox.TTLMin / time.Second)
	ttlMax    = int64(sandbox.TTLMax / time.Second)
	memoryMin = MemoryMin >> 20
	memoryMax = MemoryMax >> 20
)

// apply checks fields and writes them.
func (c *Catalogue) apply(ctx context.Context, own *Entry, f Fields, now time.Time) error {
	if f.Name != nil {
		if err := sandbox.CheckText("name", *f.Name, 1, NameMax); err != nil {
			return err
		}
		own.Name = *f.Name
	}
	if f.Description != nil {
		if n := utf8.RuneCountInString(*f.Description); n > DescriptionMax || !utf8.ValidString(*f.Description) {
			return sandbox.InvalidField("description", "must be text of at most %d characters", DescriptionMax)
		}
		own.Description = *f.Description
	}
	if f.Enabled != nil {
		own.Enabled = *f.Enabled
	}
	if f.IsDefault != nil {
		own.IsDefault = *f.IsDefault
	}
	if err := applyReference(own, f); err != nil {
		return err
	}
	fresh := own.UpdatedAt.IsZero()
	if fresh || f.Image != nil || f.Tag != nil || f.Registry != nil || f.MemoryMB != nil && *f.MemoryMB == 0 {
		if err := c.applyImage(ctx, own, f, fresh); err != nil {
			return err
		}
	}
	own.UpdatedAt = now
	return applyNumbers(own, f)
}

// applyReference writes image and tag: a tag or digest may be a part of the image.
func applyReference(own *Entry, f Fields) error {
	if f.Image == nil && f.Tag == nil {
		return nil
	}
	image, tag := own.Image, own.Tag
	if f.Tag != nil {
		tag = *f.Tag
	}
	if f.Image != nil {
		if err := sandbox.CheckText("image", *f.Image, 1, sandbox.ImageRefMax); err != nil {
			return err
		}
		image = *f.Image
	}
	if _, _, ok := strings.Cut(image, "@"); ok {
		if f.Tag != nil && *f.Tag != "" {
			return sandbox.InvalidField("tag", "must be empty: the image is named by its digest")
		}
		tag = ""
	} else if slash, colon := strings.LastIndexByte(image, '/'), strings.LastIndexByte(image, ':'); colon > slash {
		inside := image[colon+1:]
		if f.Tag != nil && *f.Tag != "" && *f.Tag != inside {
			return sandbox.InvalidField("tag", "is %q, and the image has the tag %q", *f.Tag, inside)
		}
		image, tag = image[:colon], inside
	} else if tag == "" {
		tag = ociname.DefaultTag
	}
	if len(tag) > TagMax {
		return sandbox.InvalidField("tag", "has %d characters, more than %d", len(tag), TagMax)
	}
	named := own.Tag != tag && f.Image == nil
	own.Image, own.Tag = image, tag
	if len(own.Ref()) > sandbox.ImageRefMax {
		return sandbox.InvalidField("image", "has more than %d characters with its tag", sandbox.ImageRefMax)
	}
	_, err := ociname.ParseReference(own.Ref())
	if _, bare := v1.NewHash(own.Ref()); err != nil || bare == nil {
		if named {
			return sandbox.InvalidField("tag", "%q is not a tag", tag)
		}
		return sandbox.InvalidField("image", "%q is not an image reference like ghcr.io/org/app", own.Ref())
	}
	return nil
}

// applyImage writes the fields that depend on the image.
func (c *Catalogue) applyImage(ctx context.Context, own *Entry, f Fields, fresh bool) error {
	img, err := c.images.LookupFor(ctx, own.Workspace, own.Ref())
	if code := sandbox.CodeOf(err); code == sandbox.NotFound || code == sandbox.Invalid {
		return sandbox.InvalidField("image", "there is no image %q; name its registry, as in ghcr.io/org/app, or an image that the workspace has built", own.Ref())
	}
	if err != nil {
		return err
	}
	if fresh || f.MemoryMB != nil && *f.MemoryMB == 0 {
		own.MemoryBytes = min(max(c.memoryOf(&img), MemoryMin), MemoryMax)
	}
	if fresh {
		own.ReadinessPort, own.TTL = img.ReadinessPort, img.TTL
	}
	if f.Registry != nil {
		own.Registry = sandbox.RegistryID(*f.Registry)
	}
	if own.Registry == "" || f.Image == nil && f.Registry == nil {
		return nil
	}
	r, err := c.registries.Registry(ctx, own.Workspace, own.Registry)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return sandbox.InvalidField("registry_id", "the workspace has no registry %q", own.Registry)
	}
	if err != nil {
		return err
	}
	repo, err := ociname.NewRepository(img.Name, ociname.StrictValidation)
	if img.Builtin || err != nil {
		return sandbox.InvalidField("registry_id", "the image %s belongs to this server and is not pulled", own.Ref())
	}
	if host := repo.RegistryStr(); host != r.Host {
		return sandbox.InvalidField("registry_id", "registry %q is for %s, but the image is at %s", r.Name, r.Host, host)
	}
	return nil
}

// applyNumbers writes memory, port and TTL.
func applyNumbers(own *Entry, f Fields) error {
	if n := f.MemoryMB; n != nil && *n != 0 {
		if *n < memoryMin || *n > memoryMax {
			return sandbox.InvalidField("memory_mb", "must be %d to %d", memoryMin, memoryMax)
		}
		own.MemoryBytes = *n << 20
	}
	if n := f.ReadinessPort; n != nil {
		if *n < 0 || *n > math.MaxUint16 {
			return sandbox.InvalidField("readiness_port", "must be 1 to %d, or 0 for none", math.MaxUint16)
		}
		own.ReadinessPort = uint16(*n)
	}
	if n := f.TTLSeconds; n != nil {
		if *n != 0 && (*n < ttlMin || *n > ttlMax) {
			return sandbox.InvalidField("ttl_seconds", "must be %d to %d, or 0 for no limit", ttlMin, ttlMax)
		}
		own.TTL = time.Duration(*n) * time.Second
	}
	return nil
}
