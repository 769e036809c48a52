package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestWebhooks checks that the events of a sandbox arrive at a receiver, signed, in order, and once while
// all is well; and that a webhook for some types gets these only.
func TestWebhooks(t *testing.T) {
	s := testserver.StartSmall(t, testserver.AllowReceivers...)
	all, some := testserver.NewReceiver(t), testserver.NewReceiver(t)
	hooks := s.Client.Webhooks
	hook, err := hooks.Create(t.Context(), client.WebhookOptions{URL: all.URL})
	if err != nil {
		t.Fatal(err)
	}
	other, err := hooks.Create(t.Context(), client.WebhookOptions{URL: some.URL, Types: []string{"paused", "destroyed"}})
	if err != nil {
		t.Fatal(err)
	}
	sb := s.MustCreate(client.CreateOptions{Name: "watched", Image: image})
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	var types []string
	var last int64
	for !slices.Contains(types, "destroyed") {
		m := all.Next(hook.Secret)
		if m.Event.Seq <= last || m.Event.SandboxID != sb.ID || m.Event.SandboxName != "watched" || m.Event.Type != m.Type {
			t.Errorf("after event %d comes %+v", last, m)
		}
		last, types = m.Event.Seq, append(types, m.Type)
	}
	var want []string
	for e, err := range s.Client.Events.List(client.EventFilter{Sandbox: sb.ID}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if want = append(want, e.Type); e.Type == "destroyed" {
			break
		}
	}
	if !slices.Equal(types, want) || !slices.Contains(types, "created") || !slices.Contains(types, "paused") {
		t.Errorf("deliveries %v, want the events %v", types, want)
	}
	if first, second := some.Next(other.Secret), some.Next(other.Secret); first.Type != "paused" || second.Type != "destroyed" {
		t.Errorf("the webhook for paused and destroyed got %s and %s", first.Type, second.Type)
	}

	d, err := hooks.Test(t.Context(), hook.ID)
	if err != nil {
		t.Fatal(err)
	}
	if m := all.Next(hook.Secret); m.ID != d.ID || m.Type != "ping" {
		t.Errorf("a test arrives as %+v", m)
	}
	closed, err := hooks.Create(t.Context(), client.WebhookOptions{URL: strings.Replace(all.URL, "127.0.0.1", "127.0.0.2", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if d, err = hooks.Test(t.Context(), closed.ID); err != nil {
		t.Fatal(err)
	}
	for d.Attempts == 0 {
		if d, err = hooks.Delivery(t.Context(), closed.ID, d.ID, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if d.State != "pending" || !strings.Contains(d.Error, "webhooks.allow_cidrs") {
		t.Errorf("a delivery to an address that is closed: %+v", d)
	}
	if strings.Contains(s.Log(), "whsec_") {
		t.Error("the log has a secret")
	}
}
