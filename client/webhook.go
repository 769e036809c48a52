package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// Webhook is an address to which the server sends events.
type Webhook = wire.Webhook

// NewWebhook is a webhook with its secret, which no other call returns.
type NewWebhook = wire.NewWebhook

// WebhookDelivery is an event on its way to a webhook.
type WebhookDelivery = wire.WebhookDelivery

// WebhookOptions are the settings of a new webhook; URL must be set.
type WebhookOptions = wire.CreateWebhook

// WebhookChanges are changes of a webhook; nil leaves a setting as it is.
type WebhookChanges = wire.UpdateWebhook

// Webhooks has the calls for the webhooks of the workspace.
type Webhooks struct{ *transport }

func webhookPath(id string, more ...string) string {
	path := "/v1/webhooks/" + url.PathEscape(id)
	for _, part := range more {
		path += "/" + url.PathEscape(part)
	}
	return path
}

// Create adds a webhook, to which the server sends the events from now on. Keep the secret: no other
// call returns it. Errors: Invalid, naming the field; QuotaExceeded; Forbidden.
func (c *Webhooks) Create(ctx context.Context, o WebhookOptions) (*NewWebhook, error) {
	return fetch[NewWebhook](ctx, c.transport, request{method: http.MethodPost, path: "/v1/webhooks", body: o})
}

// List lists the webhooks, the oldest first.
func (c *Webhooks) List() *List[Webhook] { return newList[Webhook](c.transport, "/v1/webhooks", nil) }

// Get returns a webhook. Errors: NotFound.
func (c *Webhooks) Get(ctx context.Context, id string) (*Webhook, error) {
	return fetch[Webhook](ctx, c.transport, request{method: http.MethodGet, path: webhookPath(id), repeat: true})
}

// Update changes a webhook. Disabling it cancels the deliveries that wait. Errors: NotFound; Invalid,
// naming the field.
func (c *Webhooks) Update(ctx context.Context, id string, changes WebhookChanges) (*Webhook, error) {
	return fetch[Webhook](ctx, c.transport, request{method: http.MethodPatch, path: webhookPath(id), body: changes, repeat: true})
}

// Delete deletes a webhook with its deliveries. Errors: NotFound.
func (c *Webhooks) Delete(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: webhookPath(id), repeat: true}, nil)
}

// Rotate gives a webhook another secret and returns it. Deliveries have signatures by both secrets for
// overlap, at most a day. Errors: NotFound; Invalid, naming overlap_seconds.
func (c *Webhooks) Rotate(ctx context.Context, id string, overlap time.Duration) (*NewWebhook, error) {
	long := seconds(overlap)
	body := wire.RotateWebhook{OverlapSeconds: &long}
	return fetch[NewWebhook](ctx, c.transport, request{method: http.MethodPost, path: webhookPath(id, "rotate"), body: body})
}

// Test sends a delivery of type ping. Errors: NotFound; Conflict when the webhook is disabled;
// QuotaExceeded.
func (c *Webhooks) Test(ctx context.Context, id string) (*WebhookDelivery, error) {
	return fetch[WebhookDelivery](ctx, c.transport, request{method: http.MethodPost, path: webhookPath(id, "test")})
}

// Deliveries lists the deliveries of a webhook in a state ("" for all), the newest first.
func (c *Webhooks) Deliveries(id, state string) *List[WebhookDelivery] {
	return newList[WebhookDelivery](c.transport, webhookPath(id, "deliveries"), map[string]string{"state": state})
}

// Delivery returns a delivery. With wait, at most a minute, it waits for the end of an attempt that is
// due or under way. Errors: NotFound.
func (c *Webhooks) Delivery(ctx context.Context, id, delivery string, wait time.Duration) (*WebhookDelivery, error) {
	query := url.Values{}
	if wait > 0 {
		query.Set("wait_seconds", strconv.Itoa(seconds(wait)))
	}
	return fetch[WebhookDelivery](ctx, c.transport, request{method: http.MethodGet, path: webhookPath(id, "deliveries", delivery), query: query, repeat: true})
}

// Redeliver sends a delivery again at once, with the same ID. Errors: NotFound; Conflict when the
// webhook is disabled.
func (c *Webhooks) Redeliver(ctx context.Context, id, delivery string) (*WebhookDelivery, error) {
	return fetch[WebhookDelivery](ctx, c.transport, request{method: http.MethodPost, path: webhookPath(id, "deliveries", delivery, "redeliver")})
}
