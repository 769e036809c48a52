package crash_test

import (
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestWebhookAcrossKill kills the server while a delivery is under way and others wait. The next server
// delivers the event of every record, and what it sends again has the id of before.
func TestWebhookAcrossKill(t *testing.T) {
	s := testserver.StartSmall(t, testserver.AllowReceivers...)
	r := testserver.NewReceiver(t)
	hook, err := s.Client.Webhooks.Create(t.Context(), client.WebhookOptions{URL: r.URL})
	if err != nil {
		t.Fatal(err)
	}
	r.Block.Store(true)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	first := r.Next(hook.Secret)
	s.Kill()
	r.Block.Store(false)
	s.Launch()
	if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Wait(t.Context(), sb.ID, client.Destroyed); err != nil {
		t.Fatal(err)
	}
	missing := map[int64]bool{first.Event.Seq: true} // once more
	for e, err := range s.Client.Events.List(client.EventFilter{Sandbox: sb.ID}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		missing[e.Seq] = true
	}
	if len(missing) < 3 {
		t.Errorf("events %v, want at least created, running and destroyed", missing)
	}
	ids := map[int64]string{first.Event.Seq: first.ID}
	for len(missing) > 0 {
		m := r.Next(hook.Secret)
		if id, known := ids[m.Event.Seq]; known && id != m.ID {
			t.Errorf("event %d comes as %s, before as %s", m.Event.Seq, m.ID, id)
		}
		ids[m.Event.Seq] = m.ID
		delete(missing, m.Event.Seq)
	}
}
