// Package webhooks has the routes of /v1 about webhooks.
package webhooks

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/webhook"
)

// Webhooks are the routes of webhooks and their deliveries.
type Webhooks struct{ Service *webhook.Service }

// WebhookRef is the path parameter that names a webhook. It is exported because huma passes over
// embedded types that are not.
type WebhookRef struct {
	ID string `path:"webhook" maxLength:"64" doc:"The webhook's id."`
}

// DeliveryRef are the path parameters that name a delivery.
type DeliveryRef struct {
	WebhookRef
	Delivery string `path:"delivery" maxLength:"64" doc:"The delivery's id."`
}

type createInput struct{ Body wire.CreateWebhook }

type updateInput struct {
	WebhookRef
	Body wire.UpdateWebhook
}

type rotateInput struct {
	WebhookRef
	Body *wire.RotateWebhook `required:"false"`
}

type deliveriesInput struct {
	WebhookRef
	State string `query:"state" enum:"pending,delivered,failed,cancelled" doc:"Only deliveries in this state."`
	route.PageInput
}

type deliveryInput struct {
	DeliveryRef
	WaitSeconds int `query:"wait_seconds" minimum:"0" maximum:"60" doc:"Answer when an attempt under way or due has ended, but after this many seconds at the latest."`
}

// Register adds the routes.
func (h *Webhooks) Register(m *route.Mux) {
	tags := []string{"webhooks"}
	const one = "/v1/webhooks/{webhook}"
	const delivery = one + "/deliveries/{delivery}"
	route.JSON(m, huma.Operation{
		OperationID: "create-webhook", Method: http.MethodPost, Path: "/v1/webhooks", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Add a webhook", Description: "An address that gets the events of the workspace from now on. The answer has the secret with which deliveries are signed; no other answer does.",
	}, h.create)
	route.JSON(m, huma.Operation{
		OperationID: "list-webhooks", Method: http.MethodGet, Path: "/v1/webhooks", Tags: tags, Summary: "List webhooks", Description: "The oldest first.",
	}, h.list)
	route.JSON(m, huma.Operation{OperationID: "get-webhook", Method: http.MethodGet, Path: one, Tags: tags, Summary: "Get a webhook"}, h.get)
	route.JSON(m, huma.Operation{
		OperationID: "update-webhook", Method: http.MethodPatch, Path: one, Tags: tags,
		Summary: "Change a webhook", Description: "Omitted fields stay. Enabling a webhook that the server disabled begins with the next event.",
	}, h.update)
	route.JSON(m, huma.Operation{
		OperationID: "delete-webhook", Method: http.MethodDelete, Path: one, Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a webhook", Description: "With its deliveries.",
	}, h.delete)
	route.JSON(m, huma.Operation{
		OperationID: "rotate-webhook", Method: http.MethodPost, Path: one + "/rotate", Tags: tags,
		Summary: "Give a webhook another secret", Description: "Deliveries have signatures by both secrets for a time, a day when omitted.",
	}, h.rotate)
	route.JSON(m, huma.Operation{
		OperationID: "test-webhook", Method: http.MethodPost, Path: one + "/test", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Send a test to a webhook", Description: "A delivery of type ping.",
	}, h.test)
	route.JSON(m, huma.Operation{
		OperationID: "list-webhook-deliveries", Method: http.MethodGet, Path: one + "/deliveries", Tags: tags,
		Summary: "List the deliveries of a webhook", Description: "The newest first. Ended deliveries stay for 7 days, and the newest 1000.",
	}, h.deliveries)
	route.JSON(m, huma.Operation{
		OperationID: "get-webhook-delivery", Method: http.MethodGet, Path: delivery, Tags: tags, Summary: "Get a delivery, or wait for its attempt",
	}, h.delivery)
	route.JSON(m, huma.Operation{
		OperationID: "redeliver-webhook-delivery", Method: http.MethodPost, Path: delivery + "/redeliver", Tags: tags,
		Summary: "Send a delivery again", Description: "With the same id, now, and again for 3 days if it fails.",
	}, h.redeliver)
}

func (h *Webhooks) create(ctx context.Context, in *createInput) (*route.Body[wire.NewWebhook], error) {
	b := &in.Body
	w, secret, err := h.Service.Create(ctx, route.Caller(ctx), webhook.Fields{URL: &b.URL, Description: &b.Description, Types: &b.Types, Enabled: b.Enabled})
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.NewWebhook{Webhook: show(w), Secret: secret}), nil
}

func (h *Webhooks) list(ctx context.Context, in *route.PageInput) (*route.Body[wire.Page[wire.Webhook]], error) {
	list, err := h.Service.List(ctx, route.Caller(ctx).Workspace)
	return route.PagedOf(*in, list, err, page.Order[webhook.Webhook]{
		Name: "webhooks", Key: func(w webhook.Webhook) string { return page.ByTime(w.CreatedAt, string(w.ID)) },
	}, show)
}

func (h *Webhooks) get(ctx context.Context, in *WebhookRef) (*route.Body[wire.Webhook], error) {
	w, err := h.Service.Get(ctx, route.Caller(ctx).Workspace, webhook.ID(in.ID))
	return answer(w, err)
}

func (h *Webhooks) update(ctx context.Context, in *updateInput) (*route.Body[wire.Webhook], error) {
	b := &in.Body
	w, err := h.Service.Update(ctx, route.Caller(ctx).Workspace, webhook.ID(in.ID), webhook.Fields{URL: b.URL, Description: b.Description, Types: b.Types, Enabled: b.Enabled})
	return answer(w, err)
}

func (h *Webhooks) delete(ctx context.Context, in *WebhookRef) (*struct{}, error) {
	return nil, h.Service.Delete(ctx, route.Caller(ctx).Workspace, webhook.ID(in.ID))
}

func (h *Webhooks) rotate(ctx context.Context, in *rotateInput) (*route.Body[wire.NewWebhook], error) {
	overlap := webhook.OverlapMax
	if in.Body != nil && in.Body.OverlapSeconds != nil {
		overlap = route.Seconds(*in.Body.OverlapSeconds)
	}
	w, secret, err := h.Service.Rotate(ctx, route.Caller(ctx).Workspace, webhook.ID(in.ID), overlap)
	if err != nil {
		return nil, err
	}
	return route.Reply(wire.NewWebhook{Webhook: show(w), Secret: secret}), nil
}

func (h *Webhooks) test(ctx context.Context, in *WebhookRef) (*route.Body[wire.WebhookDelivery], error) {
	return answerDelivery(h.Service.Test(ctx, route.Caller(ctx).Workspace, webhook.ID(in.ID)))
}

func (h *Webhooks) deliveries(ctx context.Context, in *deliveriesInput) (*route.Body[wire.Page[wire.WebhookDelivery]], error) {
	p, err := h.Service.Deliveries(ctx, route.Caller(ctx).Workspace, webhook.ID(in.ID), webhook.Filter{State: webhook.State(in.State), Limit: in.Limit, Cursor: in.Cursor})
	return route.Paged(p, err, showDelivery)
}

func (h *Webhooks) delivery(ctx context.Context, in *deliveryInput) (*route.Body[wire.WebhookDelivery], error) {
	return answerDelivery(h.Service.Delivery(ctx, route.Caller(ctx).Workspace, webhook.ID(in.ID), in.Delivery, route.Seconds(in.WaitSeconds)))
}

func (h *Webhooks) redeliver(ctx context.Context, in *DeliveryRef) (*route.Body[wire.WebhookDelivery], error) {
	return answerDelivery(h.Service.Redeliver(ctx, route.Caller(ctx).Workspace, webhook.ID(in.ID), in.Delivery))
}

func answer(w webhook.Webhook, err error) (*route.Body[wire.Webhook], error) {
	if err != nil {
		return nil, err
	}
	return route.Reply(show(w)), nil
}

func answerDelivery(d webhook.Delivery, err error) (*route.Body[wire.WebhookDelivery], error) {
	if err != nil {
		return nil, err
	}
	return route.Reply(showDelivery(d)), nil
}

func show(w webhook.Webhook) wire.Webhook {
	types := make([]string, len(w.Types))
	for i, t := range w.Types {
		types[i] = string(t)
	}
	return wire.Webhook{
		ID: string(w.ID), URL: w.URL, Description: w.Description, Types: types, Enabled: w.Enabled, DisabledReason: w.DisabledReason,
		Pending: w.Pending, Dropped: w.Dropped, FailingSince: route.Optional(w.FailingSince), CreatedBy: string(w.CreatedBy), CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt,
	}
}

func showDelivery(d webhook.Delivery) wire.WebhookDelivery {
	out := wire.WebhookDelivery{
		ID: d.ID, WebhookID: string(d.Webhook), Type: string(d.Event.Type), EventSeq: d.Event.Seq, SandboxID: string(d.Event.Sandbox),
		State: string(d.State), Attempts: d.Attempts, CreatedAt: d.CreatedAt, AttemptedAt: route.Optional(d.AttemptedAt), EndedAt: route.Optional(d.EndedAt),
		Status: d.Status, DurationMS: d.Duration.Milliseconds(), Error: d.Error, Response: d.Response,
	}
	if d.State == webhook.Pending {
		next := d.NextAttemptAt
		if next.IsZero() {
			next = d.CreatedAt
		}
		out.NextAttemptAt = &next
	}
	return out
}
