package template

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// Template is a template of a workspace.
type Template struct {
	Name string
	// Tags are its tags, sorted.
	Tags []Tag
	Settings
	SizeBytes int64
	CreatedAt time.Time // of its oldest tag
	UpdatedAt time.Time // of its newest tag
}

// Tag is a tag of a template.
type Tag struct {
	Name      string
	ImageID   sandbox.ImageID
	CreatedAt time.Time
}

// Settings are the limits of the sandboxes of a template, and its ready command; zero values are the defaults of the server.
type Settings struct {
	CPUCount, MemoryMB int64
	// ReadyCommand succeeds when a new sandbox is ready.
	ReadyCommand string
}

// Settings returns the settings of the template that ref names; none if the workspace has not built ref.
func (b *Builds) Settings(ctx context.Context, ws sandbox.WorkspaceID, ref string) (Settings, error) {
	img, err := b.deps.Images.Built(ctx, ws, ref)
	switch sandbox.CodeOf(err) {
	case "":
		return b.settings(img)
	case sandbox.NotFound, sandbox.Invalid:
		return Settings{}, nil
	}
	return Settings{}, err
}

func (b *Builds) settings(img spec.Image) (s Settings, err error) {
	config, err := b.deps.Images.OCIConfig(img)
	if err != nil {
		return s, err
	}
	labels := config.Config.Labels
	// The labels may come of a Dockerfile of the workspace: a number that is none is no setting.
	s.CPUCount, _ = strconv.ParseInt(labels[labelCPU], 10, 64)
	s.MemoryMB, _ = strconv.ParseInt(labels[labelMemory], 10, 64)
	s.ReadyCommand = labels[labelReady]
	return s, nil
}

// List returns the templates of a workspace, sorted by name.
func (b *Builds) List(ctx context.Context, ws sandbox.WorkspaceID) ([]Template, error) {
	built, err := b.deps.Images.BuiltBy(ctx, ws)
	if err != nil {
		return nil, err
	}
	var list []Template
	for _, img := range built {
		if len(list) == 0 || list[len(list)-1].Name != img.Name {
			s, err := b.settings(img)
			if err != nil {
				return nil, err
			}
			list = append(list, Template{Name: img.Name, Settings: s, CreatedAt: img.CreatedAt})
		}
		t := &list[len(list)-1]
		t.Tags = append(t.Tags, Tag{Name: External(img.Tag), ImageID: img.ID, CreatedAt: img.CreatedAt})
		t.SizeBytes = max(t.SizeBytes, img.SizeBytes)
		if img.CreatedAt.Before(t.CreatedAt) {
			t.CreatedAt = img.CreatedAt
		}
		if img.CreatedAt.After(t.UpdatedAt) {
			t.UpdatedAt = img.CreatedAt
		}
	}
	return list, nil
}

// Get returns a template of a workspace by its name, with or without a tag. Errors: NotFound.
func (b *Builds) Get(ctx context.Context, ws sandbox.WorkspaceID, name string) (Template, error) {
	list, err := b.List(ctx, ws)
	if err != nil {
		return Template{}, err
	}
	bare, _, err := reference.BuiltName(name)
	i := slices.IndexFunc(list, func(t Template) bool { return t.Name == bare })
	if err != nil || i < 0 {
		return Template{}, missing(name)
	}
	return list[i], nil
}

func missing(name string) error {
	return sandbox.Errorf(sandbox.NotFound, "there is no template %q", sandbox.Excerpt(name))
}

// Assign gives the template that target names, with or without a tag, other tags, and returns the id of its
// image. Errors: NotFound; Invalid, naming the field; errors of builds.
func (b *Builds) Assign(ctx context.Context, c sandbox.Caller, target string, tags []string) (sandbox.ImageID, error) {
	if len(tags) == 0 || len(tags) > tagsMax {
		return "", sandbox.InvalidField("tags", "must be 1 to %d tags", tagsMax)
	}
	img, err := b.built(ctx, c.Workspace, target)
	if err != nil {
		return "", err
	}
	for _, tag := range tags {
		if err := checkTag(img.Name, tag); err != nil {
			return "", err
		}
	}
	for _, tag := range tags {
		if err := b.tag(ctx, c, img.Ref(), img.Name+":"+Internal(tag)); err != nil {
			return "", err
		}
	}
	return img.ID, nil
}

// Remove removes tags of a template, or all of its tags if none is named. Sandboxes of it stay. Errors: NotFound.
func (b *Builds) Remove(ctx context.Context, c sandbox.Caller, name string, tags []string) error {
	t, err := b.Get(ctx, c.Workspace, name)
	if err != nil {
		return err
	}
	if len(tags) == 0 {
		for _, tag := range t.Tags {
			tags = append(tags, tag.Name)
		}
	}
	for _, tag := range tags {
		if !slices.ContainsFunc(t.Tags, func(has Tag) bool { return has.Name == External(Internal(tag)) }) {
			return sandbox.Errorf(sandbox.NotFound, "the template %q has no tag %q", sandbox.Excerpt(t.Name), sandbox.Excerpt(tag))
		}
	}
	for _, tag := range tags {
		if _, err := b.deps.Images.Discard(ctx, image.Remover{Workspace: c.Workspace}, t.Name+":"+Internal(tag)); err != nil {
			return err
		}
	}
	return nil
}

// built returns the image of a template.
func (b *Builds) built(ctx context.Context, ws sandbox.WorkspaceID, ref string) (spec.Image, error) {
	img, err := b.deps.Images.Built(ctx, ws, Reference(ref))
	if code := sandbox.CodeOf(err); code == sandbox.NotFound || code == sandbox.Invalid {
		return img, missing(ref)
	}
	return img, err
}

// Reference returns the reference of the image of a template: its name, and its tag unless that is the default tag.
func Reference(name string) string { return strings.TrimSuffix(name, ":"+defaultTag) }
