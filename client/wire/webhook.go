package wire

import "time"

// Webhook is an address that gets events.
type Webhook struct {
	ID             string     `json:"id" doc:"Its id."`
	URL            string     `json:"url" doc:"Where events are sent."`
	Description    string     `json:"description,omitempty" doc:"What it is for."`
	Types          []string   `json:"types" nullable:"false" doc:"The types of the events; empty for all."`
	Enabled        bool       `json:"enabled" doc:"Whether events are sent."`
	DisabledReason string     `json:"disabled_reason,omitempty" doc:"Why the server disabled it."`
	Pending        int64      `json:"pending" doc:"Deliveries that wait for an attempt."`
	Dropped        int64      `json:"dropped" doc:"Events that were not sent because too many deliveries waited."`
	FailingSince   *time.Time `json:"failing_since,omitempty" doc:"Since when every attempt has failed."`
	CreatedBy      string     `json:"created_by" doc:"The user who made it."`
	CreatedAt      time.Time  `json:"created_at" doc:"When it was made."`
	UpdatedAt      time.Time  `json:"updated_at" doc:"When it was last changed."`
}

// NewWebhook is a webhook with its secret, which no other answer has.
type NewWebhook struct {
	Webhook
	Secret string `json:"secret" doc:"The key of its signatures, whsec_…; it cannot be read again."`
}

// CreateWebhook is a new webhook.
type CreateWebhook struct {
	URL         string   `json:"url" minLength:"1" maxLength:"2048" doc:"Where events are sent: an address with https."`
	Description string   `json:"description,omitempty" doc:"What it is for, at most 255 characters."`
	Types       []string `json:"types,omitempty" maxItems:"64" nullable:"false" doc:"The types of the events; all when omitted or empty."`
	Enabled     *bool    `json:"enabled,omitempty" doc:"Whether events are sent; true when omitted."`
}

// UpdateWebhook changes a webhook; omitted fields stay.
type UpdateWebhook struct {
	URL         *string   `json:"url,omitempty" minLength:"1" maxLength:"2048" doc:"Where events are sent: an address with https."`
	Description *string   `json:"description,omitempty" doc:"What it is for, at most 255 characters."`
	Types       *[]string `json:"types,omitempty" maxItems:"64" nullable:"false" doc:"The types of the events; empty for all."`
	Enabled     *bool     `json:"enabled,omitempty" doc:"Whether events are sent. Deliveries that wait are cancelled when it becomes false."`
}

// RotateWebhook gives a webhook another secret.
type RotateWebhook struct {
	OverlapSeconds *int `json:"overlap_seconds,omitempty" minimum:"0" maximum:"86400" doc:"How long the secret before signs as well; a day when omitted."`
}

// WebhookDelivery is an event on its way to a webhook.
type WebhookDelivery struct {
	ID            string     `json:"id" doc:"The id of the message, the same in all attempts: the header webhook-id."`
	WebhookID     string     `json:"webhook_id" doc:"The webhook."`
	Type          string     `json:"type" doc:"The type of the event; ping for a test."`
	EventSeq      int64      `json:"event_seq,omitempty" doc:"The number of the event."`
	SandboxID     string     `json:"sandbox_id,omitempty" doc:"The sandbox of the event."`
	State         string     `json:"state" enum:"pending,delivered,failed,cancelled" doc:"pending: waits for an attempt. delivered: the receiver has accepted it. failed: no attempt follows. cancelled: the webhook was disabled before."`
	Attempts      int64      `json:"attempts" doc:"Attempts so far."`
	CreatedAt     time.Time  `json:"created_at" doc:"When the event happened."`
	AttemptedAt   *time.Time `json:"attempted_at,omitempty" doc:"When the last attempt began."`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty" doc:"When the next attempt is due."`
	EndedAt       *time.Time `json:"ended_at,omitempty" doc:"When it was delivered, failed or was cancelled."`
	Status        int        `json:"status,omitempty" doc:"The HTTP status of the last answer; absent without an answer."`
	DurationMS    int64      `json:"duration_ms,omitempty" doc:"Milliseconds of the last attempt."`
	Error         string     `json:"error,omitempty" doc:"Why the last attempt failed."`
	Response      string     `json:"response,omitempty" doc:"The first KiB of the last answer."`
}
