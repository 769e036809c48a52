package sandboxes

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/preview"
	"github.com/modbox/modbox/internal/sandbox"
)

// Ports are the routes of the published ports of sandboxes.
type Ports struct {
	Sandboxes *lifecycle.Service
	Networks  *network.Service
	Links     *preview.Links
	View      View
}

// PortRef is the path parameters that name a port of a sandbox. It is exported because
// huma passes over embedded types that are not.
type PortRef struct {
	route.SandboxRef
	Port int `path:"port" minimum:"1" maximum:"65535" doc:"The port in the sandbox."`
}

type (
	listPortsInput struct {
		route.SandboxRef
		route.PageInput
	}
	publishPortInput struct {
		PortRef
		Body *wire.PublishPort
	}
	createPortLinkInput struct {
		PortRef
		Body *wire.CreatePortLink
	}
)

// Register adds the routes.
func (h *Ports) Register(m *route.Mux) {
	const all, one = "/v1/sandboxes/{sandbox}/ports", "/v1/sandboxes/{sandbox}/ports/{port}"
	tags := []string{"sandboxes"}
	route.JSON(m, huma.Operation{
		OperationID: "list-ports", Method: http.MethodGet, Path: all, Tags: tags,
		Summary: "List published ports", Description: "Sorted by number. The URL of a port gives access to that port, and to no other part of the sandbox.",
	}, h.listPorts)
	route.JSON(m, huma.Operation{
		OperationID: "publish-port", Method: http.MethodPut, Path: one, Tags: tags,
		Summary: "Publish a port", Description: "Gives the port a URL of its own, or changes the access of a port that has one, which cuts off all visitors. 32 ports of a sandbox at most.",
	}, h.publishPort)
	route.JSON(m, huma.Operation{
		OperationID: "unpublish-port", Method: http.MethodDelete, Path: one, Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Unpublish a port", Description: "Its URL and all links to it stop working at once, open connections included. Published again it gets another URL.",
	}, h.unpublishPort)
	route.JSON(m, huma.Operation{
		OperationID: "rotate-port", Method: http.MethodPost, Path: one + "/rotate", Tags: tags,
		Summary: "Give a port another URL", Description: "The URL before and all links to it stop working at once, open connections included.",
	}, h.rotatePort)
	route.JSON(m, huma.Operation{
		OperationID: "create-port-link", Method: http.MethodPost, Path: one + "/links", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make a link to a private port", Description: "Visitors may use the port by the link until it expires, the token that made it is revoked, its maker may not use the sandbox any more, or the port is unpublished or gets another URL. The link is shown only now, and the server does not store it.",
	}, h.createPortLink)
}

func (h *Ports) listPorts(ctx context.Context, in *listPortsInput) (*route.Body[wire.Page[wire.PublishedPort]], error) {
	sb, err := h.Sandboxes.Get(ctx, route.Caller(ctx), in.Ref)
	return route.PagedOf(in.PageInput, sb.Published, err, page.Order[sandbox.PublishedPort]{
		Name: "ports", Key: func(p sandbox.PublishedPort) string { return fmt.Sprintf("%05d", p.Port) },
	}, h.View.port)
}

func (h *Ports) publishPort(ctx context.Context, in *publishPortInput) (*route.Body[wire.PublishedPort], error) {
	access := sandbox.PortPublic
	if in.Body != nil && in.Body.Access != "" {
		access = sandbox.PortAccess(in.Body.Access)
	}
	return h.changePort(ctx, in.Ref, network.PortChange{Port: uint16(in.Port), Access: access})
}

func (h *Ports) rotatePort(ctx context.Context, in *PortRef) (*route.Body[wire.PublishedPort], error) {
	return h.changePort(ctx, in.Ref, network.PortChange{Port: uint16(in.Port), Relabel: true})
}

func (h *Ports) changePort(ctx context.Context, ref string, change network.PortChange) (*route.Body[wire.PublishedPort], error) {
	sb, err := h.Networks.ChangePort(ctx, route.Caller(ctx), ref, change)
	if err != nil {
		return nil, err
	}
	port, err := publishedPort(&sb, change.Port)
	if err != nil {
		return nil, err
	}
	return route.Reply(h.View.port(port)), nil
}

func (h *Ports) unpublishPort(ctx context.Context, in *PortRef) (*struct{}, error) {
	_, err := h.Networks.ChangePort(ctx, route.Caller(ctx), in.Ref, network.PortChange{Port: uint16(in.Port), Remove: true})
	return nil, err
}

func (h *Ports) createPortLink(ctx context.Context, in *createPortLinkInput) (*route.Body[wire.PortLink], error) {
	id, _ := auth.FromContext(ctx)
	var lifetime time.Duration
	if in.Body != nil {
		lifetime = route.Seconds(in.Body.ExpiresInSeconds)
	}
	expires, err := linkExpiry(id, lifetime, time.Now())
	if err != nil {
		return nil, err
	}
	sb, err := h.Sandboxes.Get(ctx, route.Caller(ctx), in.Ref)
	if err != nil {
		return nil, err
	}
	audit.FromContext(ctx).Object("sandbox", string(sb.ID), sb.Name)
	if sb.State.Ended() {
		return nil, sandbox.Errorf(sandbox.Ended, "sandbox %s has ended", sb.Name)
	}
	port, err := publishedPort(&sb, uint16(in.Port))
	if err != nil {
		return nil, err
	}
	if port.Access != sandbox.PortPrivate {
		return nil, sandbox.Errorf(sandbox.Conflict, "port %d is public: its URL needs no link; make it private first", port.Port)
	}
	token, err := h.Links.Sign(preview.Link, sb.ID, port, preview.Grant{
		Maker: preview.Maker{User: id.User, Token: id.TokenID}, Expires: expires,
	})
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.PortLink{
		URL: h.View.url(port.Label) + "/?" + url.Values{preview.Parameter: {token}}.Encode(), Token: token, ExpiresAt: expires,
	}), nil
}

// linkExpiry is when a link that works so long expires. It does not outlive the token
// that it is made with.
func linkExpiry(id auth.Identity, lifetime time.Duration, now time.Time) (time.Time, error) {
	if lifetime != 0 && (lifetime < preview.LifetimeMin || lifetime > preview.LifetimeMax) {
		return time.Time{}, sandbox.InvalidField("expires_in_seconds", "must be %d to %d", int(preview.LifetimeMin.Seconds()), int(preview.LifetimeMax.Seconds()))
	}
	expires := now.Add(cmp.Or(lifetime, preview.LifetimeDefault)).UTC().Truncate(time.Second)
	if id.Expires.IsZero() || !expires.After(id.Expires) {
		return expires, nil
	}
	if lifetime != 0 {
		return time.Time{}, &sandbox.Error{Code: sandbox.Forbidden, Field: "expires_in_seconds",
			Message: "this token expires at " + id.Expires.Format(time.RFC3339) + ", and so must the links it makes, or before"}
	}
	return id.Expires.UTC().Truncate(time.Second), nil
}

// publishedPort returns a port that the sandbox publishes. Errors: NotFound.
func publishedPort(sb *sandbox.Sandbox, port uint16) (sandbox.PublishedPort, error) {
	p, ok := sb.PublishedPort(port)
	if !ok {
		return p, sandbox.Errorf(sandbox.NotFound, "sandbox %s does not publish port %d", sb.Name, port)
	}
	return p, nil
}
