package index

import (
	"strings"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
)

// Pulled returns the record of an image that was pulled as ref just now. asked is the digest that ref named.
func Pulled(ref ociname.Reference, asked v1.Hash, config spec.Config, description string) Record {
	name, tag := reference.RepositoryName(ref), ref.Identifier()
	if _, ok := ref.(ociname.Digest); ok {
		tag = ""
	}
	now := time.Now().UTC()
	rec := Record{
		Name: name, Tag: tag, Current: true, Config: config, Description: description, UpdatedAt: now,
		Pull: &Pull{Reference: name + reference.Identifier(ref), Asked: asked, CheckedAt: now},
	}
	if rec.Description = strings.ToValidUTF8(rec.Description, ""); len(rec.Description) > 200 {
		rec.Description = ""
	}
	return rec
}
