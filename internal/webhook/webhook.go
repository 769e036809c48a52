// Package webhook delivers events of sandboxes to addresses that workspaces name.
//
// A webhook is an address with a filter of events and a secret. The database adds a delivery for each
// webhook in the transaction of an event. The service sends deliveries, signed by the Standard Webhooks
// scheme, and repeats a delivery that fails with growing pauses for days. A delivery is sent at least
// once: a server that ends between an answer and its record sends the delivery again, with the same id.
//
// A receiver that fails or is slow costs others nothing: it has few places of the dispatcher, its pauses
// grow, and the number of deliveries that wait for it is bounded. So does a new receiver, until it has
// accepted a first delivery. The places are shared fairly by users, workspaces and webhooks. Events beyond that are dropped and
// counted, and a webhook to which nothing arrives for days is disabled.
package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
)

// Limits.
const (
	// MaxPending is the number of deliveries of a workspace that may wait, in equal shares for its enabled
	// webhooks; Window is the time for which a delivery is attempted. Migration 00041 has both as well.
	MaxPending = 20_000
	Window     = 3 * 24 * time.Hour
	// DescriptionMax and URLMax are in characters and bytes.
	DescriptionMax, URLMax = 255, 2048
	// OverlapMax bounds the time for which the secret before a rotation signs as well.
	OverlapMax = 24 * time.Hour
	// DisableAfter is the time without a delivery that arrived after which a delivery that fails for good
	// disables its webhook. It is below Window, because the last attempts are hours apart.
	DisableAfter = 2 * 24 * time.Hour
	// Ended deliveries stay in the database for Retention, and the newest MaxKept of each webhook.
	Retention, MaxKept = 7 * 24 * time.Hour, 1000
)

// secretPrefix begins the text of a secret.
const secretPrefix = "whsec_"

// ID identifies a webhook.
type ID string

// Webhook is an address that gets events.
type Webhook struct {
	ID          ID
	Workspace   sandbox.WorkspaceID
	URL         string
	Description string
	// Types are the types of the events; none means all.
	Types   []sandbox.EventType
	Enabled bool
	// DisabledReason says why the server disabled it.
	DisabledReason string
	// Secret is encrypted for ID; OldSecret signs as well until OldUntil.
	Secret, OldSecret secret.Sealed
	OldUntil          time.Time
	// Pending and Dropped count deliveries that wait, and events for which too many waited.
	Pending, Dropped int64
	// FailingSince is the time of the first attempt that failed after the last success; zero for none.
	FailingSince         time.Time
	CreatedBy            sandbox.UserID
	CreatedAt, UpdatedAt time.Time
}

// State is the state of a delivery.
type State string

// The states.
const (
	Pending   State = "pending"   // waits for its next attempt
	Delivered State = "delivered" // the receiver has accepted it
	Failed    State = "failed"    // all attempts failed
	Cancelled State = "cancelled" // its webhook was disabled before
)

// States lists the states.
var States = []State{Pending, Delivered, Failed, Cancelled}

// Ping is the type of deliveries without an event, for tests.
const Ping = "ping"

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Seq       int64
	ID        string // of the message, in all attempts
	Webhook   ID
	Workspace sandbox.WorkspaceID
	// Event is the event to deliver. A ping has Seq 0 and no sandbox.
	Event sandbox.Event
	State State
	// Round grows each time that a caller requests the delivery again; Attempts counts the attempts of the round.
	Round, Attempts int64
	// RetryUntil is when attempts end.
	CreatedAt, RetryUntil, NextAttemptAt, AttemptedAt, EndedAt time.Time
	// Status, Duration, Error and Response are of the last attempt.
	Status   int
	Duration time.Duration
	Error    string
	Response string
}

// Filter selects deliveries of a webhook.
type Filter struct {
	State  State // "" for all
	Limit  int
	Cursor string
}

// Fields are the writable fields of a webhook; nil leaves a field unchanged.
type Fields struct {
	URL, Description *string
	Types            *[]string
	Enabled          *bool
}

// apply changes the fields of w. Errors: Invalid, naming the field.
func (f Fields) apply(w *Webhook, plain bool, now time.Time) error {
	if f.URL != nil {
		if err := checkURL(*f.URL, plain); err != nil {
			return err
		}
		w.URL = *f.URL
	}
	if f.Description != nil {
		if utf8.RuneCountInString(*f.Description) > DescriptionMax {
			return sandbox.InvalidField("description", "must have at most %d characters", DescriptionMax)
		}
		w.Description = *f.Description
	}
	if f.Types != nil {
		w.Types = nil
		for _, name := range *f.Types {
			t := sandbox.EventType(name)
			if !t.Valid() {
				return sandbox.InvalidField("types", "%q is not a type of events; the types are %v", sandbox.Excerpt(name), sandbox.EventTypes)
			}
			if !slices.Contains(w.Types, t) {
				w.Types = append(w.Types, t)
			}
		}
	}
	if f.Enabled != nil && *f.Enabled != w.Enabled {
		w.Enabled, w.DisabledReason, w.FailingSince = *f.Enabled, "", time.Time{}
	}
	w.UpdatedAt = now
	return nil
}

// checkURL returns nil for an address that may get events; plain permits http.
func checkURL(text string, plain bool) error {
	u, err := url.Parse(text)
	switch {
	case len(text) > URLMax:
		return sandbox.InvalidField("url", "must have at most %d bytes", URLMax)
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return sandbox.InvalidField("url", "must be an address such as https://example.com/events")
	case u.Scheme != "https" && (u.Scheme != "http" || !plain):
		return sandbox.InvalidField("url", "must begin with https://")
	case u.User != nil:
		return sandbox.InvalidField("url", "must not have a user or password; receivers check the signature")
	case u.Fragment != "" || strings.HasSuffix(text, "#"):
		return sandbox.InvalidField("url", "must not have a fragment")
	}
	return nil
}

func newID() ID { return ID(uuid.Must(uuid.NewV7()).String()) }

// newSecret returns the text of a new secret: 32 random bytes.
func newSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}
