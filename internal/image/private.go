package image

import (
	"slices"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// The store has an image that was pulled with credentials once, for all workspaces, but a workspace
// may use it only after the registry has authorized it. The store records the authorizations by
// workspace and credential; an authorization ends when the credential gets another password, or
// when a tag has to be checked again.

// private returns the record of an image that not all workspaces may use, or nil.
func (ns *names) private(ix *index.Index, ref string, who registry.Puller) *index.Record {
	if who == (registry.Puller{}) {
		return nil
	}
	parsed, err := reference.Parse(ns.orDefault(ref), ns.defaultRegistry)
	if err != nil {
		return nil
	}
	if parsed.Digest != "" && ix.IsOwn(parsed.Digest, who.Workspace) {
		return nil // the builder was authorized for the base image
	}
	var rec *index.Record
	if parsed.Digest != "" {
		rec = ix.PrivateOrigin(parsed.Digest, parsed.Names)
	}
	for i := 0; parsed.Digest == "" && rec == nil && i < len(parsed.Names); i++ {
		rec = ix.Current(parsed.Names[i])
	}
	if rec == nil || rec.Pull == nil || !rec.Pull.Private {
		return nil
	}
	return rec
}

// checkOwner returns NotFound for a digest that only other workspaces have.
func (ns *names) checkOwner(ix *index.Index, ref string, who registry.Puller) error {
	parsed, err := reference.Parse(ns.orDefault(ref), ns.defaultRegistry)
	if err != nil || parsed.Digest == "" || who == (registry.Puller{}) {
		return nil
	}
	others := false
	for i := range ix.Images {
		r := &ix.Images[i]
		if !r.Has(parsed.Digest) || len(parsed.Names) > 0 && !slices.Contains(parsed.Names, r.Name) {
			continue
		}
		if r.Owner == "" || r.Owner == who.Workspace {
			return nil
		}
		others = true
	}
	if !others {
		return nil
	}
	return sandbox.Errorf(sandbox.NotFound, "there is no image %.100q", ref)
}
