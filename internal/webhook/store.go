package webhook

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Store stores webhooks and deliveries. It is safe for concurrent use.
type Store interface {
	// Create records a webhook. Errors: QuotaExceeded when the workspace has limit webhooks.
	Create(ctx context.Context, w Webhook, limit int) error
	// Webhook returns a webhook of a workspace. Errors: NotFound.
	Webhook(ctx context.Context, ws sandbox.WorkspaceID, id ID) (Webhook, error)
	// Webhooks returns the webhooks of a workspace, the oldest first.
	Webhooks(ctx context.Context, ws sandbox.WorkspaceID) ([]Webhook, error)
	// Update replaces prev, a webhook as a read returned it, by next, but for its counts of deliveries.
	// A webhook with another address has not answered yet. When the webhook is disabled, deliveries that wait
	// become cancelled, and of all its deliveries the newest MaxKept stay. Errors: NotFound; Conflict when the
	// webhook is not prev any more.
	Update(ctx context.Context, prev, next Webhook) error
	// Delete deletes a webhook with its deliveries. Errors: NotFound.
	Delete(ctx context.Context, ws sandbox.WorkspaceID, id ID) error
	// Deliveries returns a page of the deliveries of a webhook, the newest first. Errors: Invalid.
	Deliveries(ctx context.Context, id ID, f Filter) (page.Page[Delivery], error)
	// Delivery returns a delivery of a webhook. Errors: NotFound.
	Delivery(ctx context.Context, id ID, delivery string) (Delivery, error)
	// Add records a delivery. Errors: NotFound; Conflict when the webhook is disabled; QuotaExceeded
	// when MaxPending deliveries of the workspace wait.
	Add(ctx context.Context, d Delivery) error
	// Redeliver begins another round of a delivery, with an attempt at once, and attempts until a time.
	// An attempt of the round before that is under way changes nothing any more. Errors: NotFound;
	// Conflict when its webhook is disabled.
	Redeliver(ctx context.Context, id ID, delivery string, until time.Time) (Delivery, error)
}

// Queue has the deliveries that wait. It is safe for concurrent use.
type Queue interface {
	// Committed returns a channel that the next commit closes.
	Committed() <-chan struct{}
	// Waiting returns the enabled webhooks that have deliveries that wait, in any order.
	Waiting(ctx context.Context) ([]Waiting, error)
	// Due returns a webhook, and at most limit of its deliveries that are due, the first due first.
	// Errors: NotFound for a webhook that was deleted or disabled.
	Due(ctx context.Context, id ID, now time.Time, limit int) (Webhook, []Delivery, error)
	// Record records an attempt, unless another round of the delivery has begun: the delivery, and what
	// it means for its webhook. It reports whether it disabled the webhook.
	Record(ctx context.Context, d Delivery, o Outcome) (disabled bool, err error)
	// Purge deletes ended deliveries from before a time, and ended deliveries beyond kept of a webhook.
	Purge(ctx context.Context, before time.Time, kept int) error
	// Expire makes the deliveries failed that wait although their attempts were to end before a time.
	Expire(ctx context.Context, before, now time.Time) error
}

// Waiting is a webhook with deliveries that wait.
type Waiting struct {
	Workspace sandbox.WorkspaceID
	Webhook   ID
	// User made the webhook.
	User sandbox.UserID
	// Answered says that a delivery to its present address has arrived.
	Answered bool
	// Pending is the number of its deliveries that wait, and Due is when the first is due.
	Pending int64
	Due     time.Time
}

// Outcome says how an attempt ended.
type Outcome string

// The outcomes.
const (
	Success Outcome = "delivered"
	Retry   Outcome = "retry"
	// GaveUp disables the webhook when nothing has been delivered for DisableAfter.
	GaveUp Outcome = "failed"
	// Gone disables the webhook.
	Gone Outcome = "gone"
)
