package image

import (
	"context"
	"slices"
	"strings"

	ociname "github.com/google/go-containerregistry/pkg/name"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// names finds the images of references: in the index, and among the built-in recipes.
type names struct {
	index           *index.Table
	recipes         []*recipe.Recipe // the built-in recipes, the default first
	defaultRegistry string           // see Options
}

// list is [Store.List].
func (ns *names) list(ctx context.Context) ([]spec.Image, error) {
	ix, err := ns.index.Load()
	if err != nil {
		return nil, err
	}
	var images []spec.Image
	for _, r := range ns.recipes {
		images = append(images, ns.entry(r, ix.Current(r.Ref())))
	}
	builtin := len(images)
	for i := range ix.Images {
		if rec := &ix.Images[i]; rec.Current && ns.recipe(rec.Ref()) == nil {
			images = append(images, ix.Image(rec))
		}
	}
	slices.SortFunc(images[builtin:], func(a, b spec.Image) int { return strings.Compare(a.Ref(), b.Ref()) })
	return images, nil
}

// entry returns the description of a built-in image; rec is nil when it is not built.
func (ns *names) entry(r *recipe.Recipe, rec *index.Record) spec.Image {
	img := r.Image()
	if rec != nil {
		img = rec.Image()
		img.IsDefault = r.Default()
	}
	img.Builtin = true
	return img
}

// imageOf returns the description of a record's image.
func (ns *names) imageOf(rec *index.Record) spec.Image {
	if r := ns.recipe(rec.Ref()); r != nil && rec.Owner == "" {
		return ns.entry(r, rec)
	}
	ix, err := ns.index.Load()
	if err != nil {
		return rec.Image() // the next use of the store fails
	}
	return ix.Image(rec)
}

func (ns *names) recipe(ref string) *recipe.Recipe {
	for _, r := range ns.recipes {
		if r.Ref() == ref {
			return r
		}
	}
	return nil
}

// source returns the reference of a recipe's image in the default registry, without a registry if there is
// none; "" for an image that is built here.
func (ns *names) source(r *recipe.Recipe) string {
	parsed, err := reference.Parse(r.Pull(), ns.defaultRegistry)
	if r.Pull() == "" || err != nil || parsed.Remote == nil {
		return r.Pull()
	}
	return reference.RepositoryName(parsed.Remote) + reference.Identifier(parsed.Remote)
}

// builtIn is [Store.Recipe].
func (ns *names) builtIn(ref string) (*recipe.Recipe, error) {
	parsed, err := reference.Parse(ns.orDefault(ref), ns.defaultRegistry)
	if err != nil {
		return nil, err
	}
	for _, n := range parsed.Names {
		if r := ns.recipe(n); r != nil {
			return r, nil
		}
	}
	var names []string
	for _, r := range ns.recipes {
		names = append(names, r.Ref())
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no recipe for %q; there are %s", ref, strings.Join(names, ", "))
}

// orDefault returns ref, or the reference of the default image when it is empty.
func (ns *names) orDefault(ref string) string {
	if ref == "" && len(ns.recipes) > 0 {
		return ns.recipes[0].Ref()
	}
	return ref
}

// find returns the record that ref means.
func (ns *names) find(ctx context.Context, ix *index.Index, ref string) (*index.Record, error) {
	parsed, err := reference.Parse(ns.orDefault(ref), ns.defaultRegistry)
	if err != nil {
		return nil, err
	}
	if parsed.Digest != "" {
		if rec := ix.ByDigest(parsed.Digest, parsed.Names...); rec != nil && !rec.IsChain() {
			return rec, nil
		}
	} else {
		for _, n := range parsed.Names {
			if rec := ix.Current(n); rec != nil {
				return rec, nil
			}
			if r := ns.recipe(n); r != nil {
				return nil, sandbox.Errorf(sandbox.NotFound, "image %s is not built yet; build it with: modbox images build %s", n, r.Image().Name)
			}
		}
	}
	return nil, ns.unknown(ctx, ref)
}

// unknown returns the error for a reference that names no image.
func (ns *names) unknown(ctx context.Context, ref string) error {
	images, err := ns.list(ctx)
	if err != nil {
		return err
	}
	return sandbox.Errorf(sandbox.NotFound, "there is no image %q; %s", ref, known(images))
}

// lookup is [Store.Lookup].
func (ns *names) lookup(ctx context.Context, ref string) (spec.Image, error) {
	ix, err := ns.index.Load()
	if err != nil {
		return spec.Image{}, err
	}
	rec, err := ns.find(ctx, ix, ref)
	if err == nil {
		return ns.imageOf(rec), nil
	}
	if r, recipeErr := ns.builtIn(ref); recipeErr == nil {
		return ns.entry(r, nil), nil
	}
	if parsed, refErr := reference.Parse(ref, ns.defaultRegistry); refErr == nil && parsed.Remote != nil {
		return remoteImage(parsed), nil
	}
	return spec.Image{}, err
}

// built is [Store.Built].
func (ns *names) built(_ context.Context, owner sandbox.WorkspaceID, ref string) (spec.Image, error) {
	missing := sandbox.Errorf(sandbox.NotFound, "the workspace has built no image %.100q", ref)
	name, tag, err := reference.BuiltName(ref)
	if err != nil || owner == "" {
		return spec.Image{}, missing
	}
	ix, err := ns.index.Load()
	if err != nil {
		return spec.Image{}, err
	}
	rec := ix.Owned(owner, name+":"+tag)
	if rec == nil {
		return spec.Image{}, missing
	}
	return ix.Image(rec), nil
}

// isNamed reports whether a list names a record by a digest or a reference.
func (ns *names) isNamed(r *index.Record, list []string) bool {
	return slices.ContainsFunc(list, func(name string) bool {
		if r.Has(name) || r.Name != "" && r.Ref() == name {
			return true
		}
		parsed, err := reference.Parse(name, ns.defaultRegistry)
		if err != nil || parsed.Digest != "" {
			return err == nil && r.Has(parsed.Digest)
		}
		return r.Current && slices.Contains(parsed.Names, r.Ref())
	})
}

// named returns the record that an id or a reference names for a workspace; its own images take
// precedence, and images of other workspaces do not exist for it.
func (ns *names) named(ix *index.Index, who Remover, ref string, parsed reference.Reference) (*index.Record, error) {
	var digests []*index.Record
	for i := range ix.Images {
		rec := &ix.Images[i]
		img := rec.Image()
		if !rec.Current || !img.VisibleTo(who.Workspace) {
			continue
		}
		if string(img.ID) == ref {
			return rec, nil
		}
		if parsed.Digest != "" && rec.Has(parsed.Digest) && (len(parsed.Names) == 0 || slices.Contains(parsed.Names, rec.Name)) {
			digests = append(digests, rec)
		}
	}
	if len(digests) == 1 {
		return digests[0], nil
	}
	if len(digests) > 1 {
		var names []string
		for _, rec := range digests {
			names = append(names, rec.Ref())
		}
		return nil, sandbox.Errorf(sandbox.Conflict, "several images have this digest: %s; remove them by these names", strings.Join(names, ", "))
	}
	if parsed.Digest == "" {
		if rec := ns.tagged(ix, who, ref, parsed); rec != nil {
			return rec, nil
		}
	}
	for _, r := range ns.recipes { // an image that is not built
		if img := r.Image(); string(img.ID) == ref || slices.Contains(parsed.Names, img.Ref()) {
			if !who.Administrator {
				return nil, notForOne(img.Ref())
			}
			return nil, sandbox.Errorf(sandbox.NotFound, "the image %s is not built", img.Ref())
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no image %.100q", ref)
}

// tagged returns the record of a name with a tag for a workspace, or nil.
func (ns *names) tagged(ix *index.Index, who Remover, ref string, parsed reference.Reference) *index.Record {
	if name, tag, err := reference.BuiltName(ref); err == nil && who.Workspace != "" {
		if rec := ix.Owned(who.Workspace, name+":"+tag); rec != nil {
			return rec
		}
	}
	for _, n := range parsed.Names {
		if rec := ix.Current(n); rec != nil {
			if img := rec.Image(); img.VisibleTo(who.Workspace) {
				return rec
			}
		}
	}
	return nil
}

// importName returns the name and tag of an image that is imported.
func (ns *names) importName(ref string) (name, tag string, err error) {
	parsed, err := ociname.NewTag(ref, ociname.WithDefaultRegistry(reference.Local))
	if err != nil {
		return "", "", sandbox.InvalidField("name", "%.100q is not an image's name; give one like team/app:v1", ref)
	}
	name, tag = parsed.RepositoryStr(), parsed.TagStr()
	if parsed.RegistryStr() != reference.Local {
		return reference.RepositoryName(parsed), tag, nil
	}
	if _, err := ns.builtIn(ref); err == nil || strings.HasPrefix(name, reference.BuiltinPrefix) {
		return "", "", sandbox.InvalidField("name", "%.100q is the name of a built-in image; give another", ref)
	}
	return name, tag, nil
}

// builtInCalled returns the built-in recipe that a name in a file names; nil for none.
func (ns *names) builtInCalled(name string) *recipe.Recipe {
	if name == "" {
		return nil // elsewhere "" names the default image
	}
	r, err := ns.builtIn(name)
	if err != nil || r.Pull() != "" { // a pulled image is imported under its name in the registry
		return nil
	}
	return r
}

// known lists the available images for a message.
func known(images []spec.Image) string {
	if len(images) == 0 {
		return "there are none"
	}
	var names []string
	for _, img := range images {
		if img.Readers != nil {
			continue // not for all workspaces
		}
		n := img.Ref()
		if img.Digest == "" {
			n += " (not built; build it with: modbox images build " + img.Name + ")"
		}
		names = append(names, n)
	}
	return "there are " + strings.Join(names, ", ")
}
