package e2b

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/dialect/e2b/template"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// imageOf has the images for templates that the clients name by themselves. The base template is the
// default image of the workspace.
var imageOf = map[string]string{
	templateBase:    "",
	templateCode:    "modbox/data:latest",
	templateDesktop: "modbox/desktop:latest",
}

// isOwn reports whether a name is a template of the server.
func isOwn(name string) bool {
	_, ok := imageOf[name]
	return ok
}

// request translates a create.
func (s *sandboxes) request(ctx context.Context, in *createInput) (req lifecycle.CreateRequest, err error) {
	if err := in.refusals(); err != nil {
		return req, err
	}
	asked := cmp.Or(in.TemplateID, templateBase)
	if len(asked) > sandbox.LabelMax {
		return req, sandbox.InvalidField("templateID", "must be at most %d bytes", sandbox.LabelMax)
	}
	timeout, err := seconds("timeout", *in.Timeout)
	if err != nil {
		return req, err
	}
	req = lifecycle.CreateRequest{
		Env: in.EnvVars, Metadata: in.Metadata, TTL: timeout, URLAccess: sandbox.URLKey,
		Labels: map[string]string{labelTemplate: asked, labelTimeout: timeoutLabel(timeout)},
	}
	if req.Image, req.Snapshot, err = s.source(ctx, asked); err != nil {
		return req, err
	}
	settings, err := s.settings(ctx, req.Image)
	if err != nil {
		return req, err
	}
	req.Resources.CPUMilli, req.Resources.MemoryBytes = settings.CPUCount*1000, settings.MemoryMB*mebibyte
	if req.Network, err = in.Network.egress("network.", in.AllowInternet); err != nil {
		return req, err
	}
	// A server without networks would refuse every create of a client that asks for nothing.
	if s.svc.Networks().Offered() != nil {
		req.Network = sandbox.Network{}
	}
	if err := in.Network.requests("network.", &req.Network); err != nil {
		return req, err
	}
	if p := in.Network.AllowPublicTraffic; p != nil && !*p {
		req.Labels[labelPrivate] = "true"
	}
	if in.AutoResume != nil && in.AutoResume.Enabled {
		req.Labels[labelAutoResume] = "true"
	}
	if in.AutoPause {
		// It pauses when nothing has used it for so long, and never while a command runs.
		req.TTL, req.Timeouts.Idle, req.Timeouts.OnIdle = 0, max(timeout, sandbox.IdleMin), sandbox.OnIdlePause
		if in.AutoPauseMemory != nil && !*in.AutoPauseMemory {
			req.Timeouts.OnIdle = sandbox.OnIdlePauseFiles
		}
	}
	return req, nil
}

// settings returns the settings of the template with an image; none for "" and for images that the workspace has
// not built.
func (b *base) settings(ctx context.Context, image string) (template.Settings, error) {
	if image == "" {
		return template.Settings{}, nil
	}
	return b.built.Settings(ctx, caller(ctx).Workspace, image)
}

// source returns the image or the snapshot that a template names: a template of the clients, the id
// or name of a snapshot, or the reference of an image. Errors: errors of the store.
func (b *base) source(ctx context.Context, asked string) (image, snapshot string, err error) {
	name, tag, _ := strings.Cut(asked, ":")
	if image, ok := imageOf[name]; ok && slices.Contains([]string{"", defaultTag, sandbox.DefaultTag}, tag) {
		return image, "", nil
	}
	sn, err := b.snapshot(ctx, asked)
	switch sandbox.CodeOf(err) {
	case "":
		return "", string(sn.ID), nil
	case sandbox.NotFound, sandbox.Invalid:
		return template.Reference(asked), "", b.gateway(ctx, name)
	}
	return "", "", err
}

// gateway returns an error if name is the template that the clients choose for a create with MCP servers, unless the
// workspace has built a template of this name: a registry could have an image of it by anybody. Errors: NotFound.
func (b *base) gateway(ctx context.Context, name string) error {
	if name != templateMCP {
		return nil
	}
	_, err := b.built.Get(ctx, caller(ctx).Workspace, name)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return sandbox.Errorf(sandbox.NotFound, "the template %s of E2B is not available on this server; build a template of this name that has a program mcp-gateway, or name another template", templateMCP)
	}
	return err
}
