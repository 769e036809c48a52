package image

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/oci"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// Only the workspace that built an image can see and use it, and the names are the workspace's own,
// so that two workspaces may each have an app:latest. The root filesystem carries a mark of owner
// and configuration, so that its digest identifies this image and no other image with the same
// files.

// Built returns the image that a workspace has built as ref. Errors: NotFound.
func (s *Store) Built(_ context.Context, owner sandbox.WorkspaceID, ref string) (spec.Image, error) {
	missing := sandbox.Errorf(sandbox.NotFound, "the workspace has built no image %.100q", ref)
	name, tag, err := reference.BuiltName(ref)
	if err != nil || owner == "" {
		return spec.Image{}, missing
	}
	ix, err := s.index.Load()
	if err != nil {
		return spec.Image{}, err
	}
	rec := ix.Owned(owner, name+":"+tag)
	if rec == nil {
		return spec.Image{}, missing
	}
	return rec.Image(), nil
}

// ForgetBuilt removes the names of all images that a workspace has built, its cached layers, and
// the images that only its credentials gave access to: the workspace is being deleted. Idempotent.
func (s *Store) ForgetBuilt(ctx context.Context, owner sandbox.WorkspaceID) error {
	ix, unlock, err := s.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	changed := false
	for i := range ix.Images {
		rec := &ix.Images[i]
		if rec.Owner == "" && slices.Contains(rec.Readers(), owner) {
			changed = true
			rec.Pull.Forget(owner)
			rec.Current = rec.Current && len(rec.Pull.Proofs) > 0
		}
		if !rec.CountsFor(owner) || !rec.Current && rec.CacheKey == "" {
			continue
		}
		changed = true
		if delete(rec.Users, owner); len(rec.Users) == 0 {
			rec.Current, rec.CacheKey = false, ""
		}
	}
	if !changed {
		return nil
	}
	return s.index.Write(ix)
}

// BuiltBy returns the images that a workspace has built, by name.
func (s *Store) BuiltBy(_ context.Context, owner sandbox.WorkspaceID) ([]spec.Image, error) {
	ix, err := s.index.Load()
	if err != nil {
		return nil, err
	}
	var list []spec.Image
	for i := range ix.Images {
		if rec := &ix.Images[i]; rec.Current && owner != "" && rec.Owner == owner {
			list = append(list, rec.Image())
		}
	}
	slices.SortFunc(list, func(a, b spec.Image) int { return strings.Compare(a.Ref(), b.Ref()) })
	return list, nil
}

// checkOwner returns NotFound for a digest that only other workspaces have.
func (s *Store) checkOwner(ix *index.Index, ref string, who registry.Puller) error {
	parsed, err := reference.Parse(s.orDefault(ref), s.defaultRegistry)
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

// OCIConfig returns the OCI configuration of an image that [Store.Resolve] returned, even if its
// reference has come to name another image since. Errors: NotFound for a removed image.
func (s *Store) OCIConfig(of spec.Image) (*v1.ConfigFile, error) {
	ix, err := s.index.Load()
	if err != nil {
		return nil, err
	}
	rec := ix.Entry(of)
	if rec == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "the image %s was removed", of.Ref())
	}
	img, err := s.ociImage(rec)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration of image %s: %w", of.Ref(), err)
	}
	return config.DeepCopy(), nil
}

// ociImage returns the OCI image of a record.
func (s *Store) ociImage(rec *index.Record) (v1.Image, error) {
	img, err := s.layout.Image(rec.Manifest.Digest)
	if err != nil {
		return nil, fmt.Errorf("read OCI image of %s: %w", rec.Ref(), err)
	}
	return img, nil
}

// FinishRequest describes a built image.
type FinishRequest struct {
	// Base is the digest of its root filesystem, in the store already.
	Base string
	// Config is its complete OCI configuration.
	Config v1.Config
	Author string
	// Owner is the workspace that has it, under the name and tag; an image without a name has only its
	// digest, and exists as long as something uses it.
	Owner     sandbox.WorkspaceID
	Name, Tag string
}

// Finish stages an image and publishes it at once: see [Store.StageBuilt].
func (s *Store) Finish(ctx context.Context, req FinishRequest) (spec.Image, error) {
	staged, err := s.StageBuilt(ctx, req)
	if err != nil {
		return spec.Image{}, err
	}
	defer staged.Discard()
	done, err := staged.Publish(ctx, nil)
	return done.Image, err
}

// StageBuilt prepares an image for a workspace: the files of a root filesystem with a
// configuration. [Staged.Publish] moves the name from the image that has it.
//
// Errors: NotFound for the base; Invalid for a configuration that no program can run with.
func (s *Store) StageBuilt(ctx context.Context, req FinishRequest) (*Staged, error) {
	base, err := s.commitBase(ctx, req.Base)
	if err != nil {
		return nil, err
	}
	if base == nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the image has no files")
	}
	rec := index.Record{
		Name: req.Name, Tag: req.Tag, Owner: req.Owner, Current: req.Name != "", UpdatedAt: time.Now().UTC(), Packages: base.Packages,
	}
	if rec.Config, err = oci.RunConfig(&req.Config); err != nil {
		return nil, err
	}
	work, err := s.workDir(ctx)
	if err != nil {
		return nil, err
	}
	undo := cleanup.Make(func() { _ = work.Close() })
	undo.Add(func() { _ = os.RemoveAll(work.Name()) }) // the next Open removes a directory that stays
	defer undo.Clean()
	data, err := json.Marshal([]any{"built 1", req.Owner, req.Config})
	if err != nil {
		return nil, err
	}
	mark := sha256.Sum256(data)
	root := &made{Result: rootfs.Result{EROFS: filepath.Join(work.Name(), "root.erofs"), Files: base.FileCount}, mark: mark[:rootfs.MarkLength]}
	if err := rootfs.LinkOrCopy(ctx, s.erofsPath(base.Digest), root.EROFS); err != nil {
		return nil, fmt.Errorf("name root filesystem: %w", err)
	}
	staged := &Staged{store: s, root: root, rec: &rec, task: fmt.Sprintf("finish image %s:%s", req.Name, req.Tag), write: func(rootfs.Blob) (archive.Ref, error) {
		img, err := s.builtImage(base, req)
		if err != nil {
			return archive.Ref{}, err
		}
		return s.layout.Add(img)
	}}
	if err := s.complete(ctx, root, &rec); err != nil {
		return nil, fmt.Errorf("%s: %w", staged.task, err)
	}
	staged.undo = cleanup.Make(undo.Release())
	return staged, nil
}

// builtImage returns the OCI image of a request over its base's layers.
func (s *Store) builtImage(base *index.Record, req FinishRequest) (v1.Image, error) {
	img, err := s.ociImage(base)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Created = v1.Time{Time: time.Now().UTC().Truncate(time.Second)}
	config.Author, config.Config = req.Author, req.Config
	return mutate.ConfigFile(mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON), config)
}

// markConfig gives an EROFS a UUID that identifies the configuration. So images with the same files
// and different configurations have different digests: the digest of a sandbox's image identifies
// the image.
func markConfig(file string, config *spec.Config) error {
	all := func(list []string) []string { return append([]string{}, list...) } // nil and an empty list are the same
	data, err := json.Marshal([]any{
		"run 1", all(config.Entrypoint), all(config.Cmd), all(config.Env), config.WorkingDir, config.User, append([]uint16{}, config.ExposedPorts...),
	})
	if err != nil {
		return err
	}
	mark := sha256.Sum256(data)
	return rootfs.Mark(file, mark[:])
}
