package image

import (
	"context"
	"fmt"

	ociname "github.com/google/go-containerregistry/pkg/name"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// Push sends an image that a workspace has built to a registry, under a reference with the name of
// the registry. It sends only the blobs that the registry does not have, and signs in as for a
// pull. It reports to progress, which may be nil and must return soon.
//
// Errors: Invalid, naming to; NotFound for the image; Forbidden when the registry wants other
// credentials; Timeout and Unavailable, with the words of the registry.
func (s *Store) Push(ctx context.Context, who registry.Puller, ref, to string, progress func(phase.Event)) error {
	dest, err := ociname.NewTag(to, ociname.WithDefaultRegistry(reference.Local))
	if err != nil || !reference.WellFormed(dest) || dest.RegistryStr() == reference.Local || len(to) > sandbox.ImageRefMax {
		return sandbox.InvalidField("to", "%.100q does not name a registry, as registry.example.com/team/app:v1 does", to)
	}
	built, err := s.names.built(ctx, who.Workspace, ref)
	if err != nil {
		return err
	}
	ix, err := s.index.Load()
	if err != nil {
		return err
	}
	rec := ix.Owned(who.Workspace, built.Ref())
	if rec == nil {
		return sandbox.Errorf(sandbox.NotFound, "the workspace has built no image %.100q", ref)
	}
	if err := s.verifier.Blobs(ctx, rec); err != nil {
		return err
	}
	img, err := s.committer.ociImage(rec)
	if err != nil {
		return err
	}
	repo, err := s.registries.Open(ctx, dest.Context(), who, remote.Push)
	if err != nil {
		return err
	}
	report := func(done, total int64) {
		if progress != nil {
			progress(phase.Event{Phase: phase.Pushing, Done: done, Total: total, Message: "to " + dest.Name()})
		}
	}
	if err := repo.Push(ctx, dest.TagStr(), img, report); err != nil {
		return fmt.Errorf("push %s: %w", ref, err)
	}
	return nil
}

// SignIn asks a registry whether it accepts a login: see [remote.Client.SignIn].
func (s *Store) SignIn(ctx context.Context, host string, login registry.Login) error {
	return s.registries.SignIn(ctx, host, login)
}
