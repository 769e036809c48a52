package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
)

// Keys encrypts secrets; internal/secret implements it.
type Keys interface {
	// Seal encrypts a secret so that only Unseal for the same object decrypts it.
	Seal(plain, object string) (secret.Sealed, error)
	// Unseal decrypts a secret of an object. Errors: Unavailable when its key is missing.
	Unseal(s secret.Sealed, object string) (string, error)
}

// Config has the settings.
type Config struct {
	// MaxPerWorkspace is the number of webhooks that a workspace may have.
	MaxPerWorkspace int
	// AllowCIDRs are the closed ranges to which the server connects.
	AllowCIDRs []netip.Prefix
}

// Sandboxes are the sandboxes that the events are about. It is safe for concurrent use.
type Sandboxes interface {
	// Settle waits while a change of a sandbox is being recorded: look-ups then see every change that
	// the store had before.
	Settle(id sandbox.ID)
}

// Service manages webhooks and delivers events. Make it with [New]. Safe for concurrent use.
// Webhooks of other workspaces are NotFound.
type Service struct {
	store Store
	keys  Keys
	most  int  // webhooks of a workspace
	plain bool // http is permitted
	*dispatcher
}

// New returns a service that delivers nothing before [Service.Start].
func New(cfg Config, store Store, queue Queue, sandboxes Sandboxes, keys Keys, log *slog.Logger) *Service {
	return &Service{
		store: store, keys: keys, most: cfg.MaxPerWorkspace, plain: len(cfg.AllowCIDRs) > 0,
		dispatcher: newDispatcher(queue, sandboxes, keys, newSender(cfg.AllowCIDRs), log),
	}
}

// The objects for which secrets are encrypted; a rotation of the server's keys knows them as well.
func current(id ID) string { return string(id) + " secret" }
func former(id ID) string  { return string(id) + " old_secret" }

// Create makes a webhook, enabled unless f disables it, and returns its secret, which cannot be read
// again. Errors: Invalid, naming the field; QuotaExceeded.
func (s *Service) Create(ctx context.Context, c sandbox.Caller, f Fields) (Webhook, string, error) {
	if f.URL == nil {
		return Webhook{}, "", sandbox.InvalidField("url", "must be set")
	}
	now := time.Now().UTC()
	w := Webhook{ID: newID(), Workspace: c.Workspace, Enabled: true, CreatedBy: c.User, CreatedAt: now}
	if err := f.apply(&w, s.plain, now); err != nil {
		return Webhook{}, "", err
	}
	text := newSecret()
	var err error
	if w.Secret, err = s.keys.Seal(text, current(w.ID)); err != nil {
		return Webhook{}, "", err
	}
	audit.FromContext(ctx).Made("webhook", string(w.ID), "")
	return w, text, s.store.Create(ctx, w, s.most)
}

// Get returns a webhook. Errors: NotFound.
func (s *Service) Get(ctx context.Context, ws sandbox.WorkspaceID, id ID) (Webhook, error) {
	w, err := s.store.Webhook(ctx, ws, id)
	if err == nil {
		audit.FromContext(ctx).Object("webhook", string(w.ID), "")
	}
	return w, err
}

// List returns the webhooks of a workspace, the oldest first.
func (s *Service) List(ctx context.Context, ws sandbox.WorkspaceID) ([]Webhook, error) {
	return s.store.Webhooks(ctx, ws)
}

// Update changes the fields that are not nil. Errors: NotFound; Invalid, naming the field.
func (s *Service) Update(ctx context.Context, ws sandbox.WorkspaceID, id ID, f Fields) (Webhook, error) {
	if _, err := s.Get(ctx, ws, id); err != nil {
		return Webhook{}, err
	}
	return s.change(ctx, ws, id, func(w *Webhook) error { return f.apply(w, s.plain, time.Now().UTC()) })
}

// change reads a webhook and replaces it by what change makes of it. Errors: NotFound; Conflict when others
// change it all the time; errors of change.
func (s *Service) change(ctx context.Context, ws sandbox.WorkspaceID, id ID, change func(*Webhook) error) (Webhook, error) {
	var next Webhook
	err := retry.Change(ctx, func() error {
		prev, err := s.store.Webhook(ctx, ws, id)
		if err != nil {
			return err
		}
		next = prev
		if err := change(&next); err != nil {
			return fmt.Errorf("change webhook %s: %w", id, err)
		}
		if prev.Enabled && !next.Enabled {
			next.Pending = 0
		}
		return s.store.Update(ctx, prev, next)
	})
	if err != nil {
		return Webhook{}, err
	}
	return next, nil
}

// Rotate gives a webhook another secret and returns it; the secret before signs as well for overlap.
// Errors: NotFound; Invalid, naming overlap_seconds.
func (s *Service) Rotate(ctx context.Context, ws sandbox.WorkspaceID, id ID, overlap time.Duration) (Webhook, string, error) {
	if overlap < 0 || overlap > OverlapMax {
		return Webhook{}, "", sandbox.InvalidField("overlap_seconds", "must be 0 to %d", int(OverlapMax/time.Second))
	}
	if _, err := s.Get(ctx, ws, id); err != nil {
		return Webhook{}, "", err
	}
	text := newSecret()
	w, err := s.change(ctx, ws, id, func(w *Webhook) error {
		before, err := s.keys.Unseal(w.Secret, current(id))
		if err != nil {
			return err
		}
		if w.Secret, err = s.keys.Seal(text, current(id)); err != nil {
			return err
		}
		now := time.Now().UTC()
		w.OldSecret, w.OldUntil, w.UpdatedAt = secret.Sealed{}, time.Time{}, now
		if overlap > 0 {
			w.OldUntil = now.Add(overlap)
			w.OldSecret, err = s.keys.Seal(before, former(id))
		}
		return err
	})
	return w, text, err
}

// Delete deletes a webhook with its deliveries. Errors: NotFound.
func (s *Service) Delete(ctx context.Context, ws sandbox.WorkspaceID, id ID) error {
	if _, err := s.Get(ctx, ws, id); err != nil {
		return err
	}
	return s.store.Delete(ctx, ws, id)
}

// Deliveries returns a page of the deliveries of a webhook, the newest first. Errors: NotFound;
// Invalid, naming state, limit or cursor.
func (s *Service) Deliveries(ctx context.Context, ws sandbox.WorkspaceID, id ID, f Filter) (page.Page[Delivery], error) {
	if _, err := s.Get(ctx, ws, id); err != nil {
		return page.Page[Delivery]{}, err
	}
	return s.store.Deliveries(ctx, id, f)
}

// Delivery returns a delivery; with a wait, it waits that long for the end of an attempt. Errors: NotFound.
func (s *Service) Delivery(ctx context.Context, ws sandbox.WorkspaceID, id ID, delivery string, wait time.Duration) (Delivery, error) {
	if _, err := s.Get(ctx, ws, id); err != nil {
		return Delivery{}, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		changed := s.changed()
		d, err := s.store.Delivery(ctx, id, delivery)
		if err != nil || wait == 0 || d.State != Pending || d.NextAttemptAt.After(time.Now()) && d.Attempts > 0 {
			return d, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return d, nil
		case <-ctx.Done():
			return d, ctx.Err()
		}
	}
}

// changed returns a channel that is closed after the next attempt; if another server makes the attempts, after the next commit.
func (s *Service) changed() <-chan struct{} {
	if s.started.Load() {
		return s.attempted.Wait()
	}
	return s.queue.Committed()
}

// Redeliver sends a delivery again, with the same id. Errors: NotFound; Conflict when the webhook is
// disabled.
func (s *Service) Redeliver(ctx context.Context, ws sandbox.WorkspaceID, id ID, delivery string) (Delivery, error) {
	if _, err := s.Get(ctx, ws, id); err != nil {
		return Delivery{}, err
	}
	return s.store.Redeliver(ctx, id, delivery, time.Now().UTC().Add(Window))
}

// Test sends a ping. Errors: NotFound; Conflict when the webhook is disabled; QuotaExceeded.
func (s *Service) Test(ctx context.Context, ws sandbox.WorkspaceID, id ID) (Delivery, error) {
	if _, err := s.Get(ctx, ws, id); err != nil {
		return Delivery{}, err
	}
	now := time.Now().UTC()
	d := Delivery{
		ID: "msg_" + uuid.Must(uuid.NewV7()).String(), Webhook: id, Workspace: ws, State: Pending, CreatedAt: now, RetryUntil: now.Add(Window),
		Event: sandbox.Event{Time: now, Type: Ping, Message: "a test"},
	}
	if err := s.store.Add(ctx, d); err != nil {
		return Delivery{}, err
	}
	return s.store.Delivery(ctx, id, d.ID)
}
