package webhookrows_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
	"github.com/modbox/modbox/internal/store/webhookrows"
	"github.com/modbox/modbox/internal/webhook"
)

// world is a database with a sandbox in a workspace.
type world struct {
	*testing.T
	store *store.Store
	webhookrows.Rows
	ws  sandbox.WorkspaceID
	box sandbox.ID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	keys, err := secret.Open(filepath.Join(t.TempDir(), "secret.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	st := storetest.Open(t, filepath.Join(t.TempDir(), "modbox.db"), store.WithKeys(keys))
	w := &world{T: t, store: st, Rows: webhookrows.New(st.DB), box: sandbox.NewID()}
	if w.ws, _, err = st.Workspaces.EnsureDefaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	sb := sandbox.Sandbox{ID: w.box, Workspace: w.ws, Name: "box", HostLabel: "box", State: sandbox.Provisioning, Image: "i", CreatedBy: "owner", CreatedAt: now, UpdatedAt: now}
	if _, err := st.Sandboxes.CreateSandbox(t.Context(), sandbox.Creation{Sandbox: sb, RequestHash: "h", Event: sandbox.Event{Time: now, Type: sandbox.EventCreated}}, quota.Admission{}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) hook(types ...sandbox.EventType) webhook.ID {
	w.Helper()
	h := webhook.Webhook{ID: webhook.ID(sandbox.NewID()), Workspace: w.ws, URL: "https://a.example", Types: types, Enabled: true, CreatedBy: "owner", CreatedAt: time.Now(), Secret: secret.Sealed{KeyID: "k", Data: []byte("s")}}
	if err := w.Create(w.Context(), h, 100); err != nil {
		w.Fatal(err)
	}
	return h.ID
}

func (w *world) event(typ sandbox.EventType) {
	w.Helper()
	if err := w.store.Sandboxes.AppendEvent(w.Context(), sandbox.Event{Sandbox: w.box, Time: time.Now().UTC(), Type: typ, Message: string(typ), Data: map[string]string{"a": "b"}}); err != nil {
		w.Fatal(err)
	}
}

// exec runs SQL.
func (w *world) exec(text string, args ...any) {
	w.Helper()
	if err := webhookrows.Exec(w.Context(), w.store.DB, text, args...); err != nil {
		w.Fatalf("%s: %v", text, err)
	}
}

// fill adds n deliveries that are due to each webhook of a condition.
func (w *world) fill(n int, of string) {
	w.Helper()
	w.exec(`WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1)
		INSERT INTO webhook_deliveries (id, webhook_id, workspace_id, event_seq, sandbox_id, sandbox_name, time, type, message, data, created_at, retry_until, next_attempt_at)
		SELECT CAST($3 AS TEXT) || '-' || id || '-' || n, id, workspace_id, 0, '', '', 1, 'ping', '', '{}', 1, $2, 0 FROM webhooks, numbers WHERE `+of,
		n, time.Now().Add(webhook.Window).UnixNano(), fmt.Sprint("msg_", time.Now().UnixNano()))
}

// count returns the number of deliveries of a condition.
func (w *world) count(of string, args ...any) int {
	w.Helper()
	n, err := webhookrows.Count(w.Context(), w.store.DB, "SELECT count(*) FROM webhook_deliveries WHERE "+of, args...)
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// disable disables a webhook. A replacement of what the webhook was before is refused.
func (w *world) disable(id webhook.ID) {
	w.Helper()
	prev := w.read(id)
	next := prev
	next.Enabled = false
	if err := w.Update(w.Context(), prev, next); err != nil {
		w.Fatal(err)
	}
	if err := w.Update(w.Context(), prev, prev); sandbox.CodeOf(err) != sandbox.Conflict {
		w.Errorf("a replacement of what it was before: %v, want conflict", err)
	}
}

func (w *world) read(id webhook.ID) webhook.Webhook {
	w.Helper()
	h, err := w.Webhook(w.Context(), w.ws, id)
	if err != nil {
		w.Fatal(err)
	}
	return h
}

func (w *world) due(id webhook.ID) []webhook.Delivery {
	w.Helper()
	_, list, err := w.Due(w.Context(), id, time.Now(), 100)
	if err != nil {
		w.Fatal(err)
	}
	return list
}

func (w *world) record(d webhook.Delivery, o webhook.Outcome) (disabled bool) {
	w.Helper()
	disabled, err := w.Record(w.Context(), d, o)
	if err != nil {
		w.Fatal(err)
	}
	return disabled
}

func TestEventsBecomeDeliveries(t *testing.T) {
	w := newWorld(t)
	all, some := w.hook(), w.hook(sandbox.EventPaused, sandbox.EventExec)
	w.event(sandbox.EventExec)
	w.event(sandbox.EventRunning)
	list := w.due(all)
	if len(list) != 2 || len(w.due(some)) != 1 || w.read(all).Pending != 2 || w.read(some).Pending != 1 {
		t.Fatalf("deliveries %v and %v, want 2 and 1", list, w.due(some))
	}
	d := list[0]
	if d.ID == list[1].ID || d.Event.Seq == 0 || d.Event.SandboxName != "box" || d.Event.Type != sandbox.EventExec || d.Event.Data["a"] != "b" || !d.RetryUntil.Equal(d.Event.Time.Add(webhook.Window)) {
		t.Errorf("the delivery is %+v", d)
	}
	waits, err := w.Waiting(t.Context())
	if err != nil || len(waits) != 2 || waits[0].Workspace != w.ws || !waits[0].Due.IsZero() {
		t.Errorf("waiting are %+v, %v", waits, err)
	}
	d.State, d.EndedAt = webhook.Delivered, time.Now()
	w.record(d, webhook.Success)
	if h := w.read(all); h.Pending != 1 {
		t.Errorf("%d deliveries wait, want 1", h.Pending)
	}
	w.disable(all)
	w.event(sandbox.EventExec)
	if _, _, err := w.Due(t.Context(), all, time.Now(), 9); sandbox.CodeOf(err) != sandbox.NotFound || w.read(all).Pending != 0 || len(w.due(some)) != 2 {
		t.Errorf("after disabling: due %v, %d wait; the other webhook has %d", err, w.read(all).Pending, len(w.due(some)))
	}
	if err := w.Delete(t.Context(), w.ws, some); err != nil {
		t.Fatal(err)
	}
	if waits, err := w.Waiting(t.Context()); err != nil || len(waits) != 0 {
		t.Errorf("after deleting, waiting are %v, %v", waits, err)
	}
}

// TestMaximum checks the numbers that the migration and the package both have.
func TestMaximum(t *testing.T) {
	w := newWorld(t)
	first, second := w.hook(), w.hook()
	share := webhook.MaxPending / 2
	w.exec("UPDATE webhooks SET pending = $1 WHERE id = $2", share-1, first)
	for range 3 {
		w.event(sandbox.EventExec)
	}
	if h := w.read(first); h.Pending != int64(share) || h.Dropped != 2 {
		t.Errorf("of a full webhook %d deliveries wait and %d events are dropped, want %d and 2", h.Pending, h.Dropped, share)
	}
	if h := w.read(second); h.Pending != 3 || h.Dropped != 0 {
		t.Errorf("of the other webhook %d deliveries wait and %d events are dropped, want 3 and 0", h.Pending, h.Dropped)
	}
	ping := webhook.Delivery{ID: "msg_p", Webhook: second, Workspace: w.ws, Event: sandbox.Event{Type: webhook.Ping}, CreatedAt: time.Now()}
	w.exec("UPDATE webhooks SET pending = $1", share)
	if err := w.Add(t.Context(), ping); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("a ping of a full workspace: %v, want quota_exceeded", err)
	}
	if err := w.Create(t.Context(), webhook.Webhook{ID: "x", Workspace: w.ws}, 2); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("a third webhook of two: %v, want quota_exceeded", err)
	}
}

func TestRedeliverSupersedesAttempts(t *testing.T) {
	w := newWorld(t)
	id := w.hook()
	w.event(sandbox.EventExec)
	under := w.due(id)[0]
	until := time.Now().UTC().Add(time.Hour)
	again, err := w.Redeliver(t.Context(), id, under.ID, until)
	if err != nil || again.Round != 1 || again.State != webhook.Pending || !again.RetryUntil.Equal(until) {
		t.Fatalf("again: %+v, %v", again, err)
	}
	under.State, under.NextAttemptAt, under.Attempts = webhook.Pending, time.Now().Add(time.Hour), 5
	w.record(under, webhook.Retry)
	if list := w.due(id); len(list) != 1 || list[0].Attempts != 0 || w.read(id).Pending != 1 {
		t.Errorf("after the attempt of the round before, due are %+v, want the delivery, without attempts", list)
	}
	again.State, again.EndedAt = webhook.Delivered, time.Now()
	w.record(again, webhook.Success)
	if again, err = w.Redeliver(t.Context(), id, under.ID, until); err != nil || again.Round != 2 || w.read(id).Pending != 1 || !again.EndedAt.IsZero() {
		t.Errorf("a delivered delivery again: %+v, %v", again, err)
	}
	for missing, of := range map[string]webhook.ID{"msg_x": id, under.ID: "x"} {
		if _, err := w.Redeliver(t.Context(), of, missing, until); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("%s of %s again: %v, want not_found", missing, of, err)
		}
	}
	w.disable(id)
	if _, err := w.Redeliver(t.Context(), id, under.ID, until); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("again of a disabled webhook: %v, want conflict", err)
	}
	// The attempt that was under way arrives: its delivery was cancelled, but it has arrived.
	again.State, again.EndedAt = webhook.Delivered, time.Now()
	w.record(again, webhook.Success)
	if d, err := w.Delivery(t.Context(), id, under.ID); err != nil || d.State != webhook.Delivered || w.read(id).Pending != 0 {
		t.Errorf("a delivery that arrived after the webhook was disabled: %+v, %v", d, err)
	}
}

func TestDeadReceiversDisable(t *testing.T) {
	w := newWorld(t)
	id := w.hook()
	for range 4 {
		w.event(sandbox.EventExec)
	}
	list := w.due(id)
	begun := time.Now().UTC().Truncate(time.Second)
	fail := func(i int, o webhook.Outcome, at time.Time) bool {
		d := list[i]
		d.AttemptedAt, d.NextAttemptAt, d.Error = at, at.Add(time.Hour), "the receiver answered 500"
		if o == webhook.GaveUp {
			d.State, d.EndedAt = webhook.Failed, at
		}
		return w.record(d, o)
	}
	fail(0, webhook.Retry, begun)
	fail(1, webhook.Retry, begun.Add(time.Hour))
	if h := w.read(id); !h.FailingSince.Equal(begun) {
		t.Errorf("the webhook fails since %s, want %s", h.FailingSince, begun)
	}
	if fail(0, webhook.GaveUp, begun.Add(webhook.DisableAfter-time.Second)) {
		t.Error("the webhook is disabled too early")
	}
	arrived := list[1]
	arrived.State, arrived.EndedAt = webhook.Delivered, begun
	w.record(arrived, webhook.Success)
	if h := w.read(id); !h.FailingSince.IsZero() || h.Pending != 2 {
		t.Errorf("after a success the webhook is %+v", h)
	}
	late := begun.Add(2 * webhook.DisableAfter)
	if fail(2, webhook.GaveUp, late) {
		t.Error("the webhook is disabled although a delivery has arrived")
	}
	if !fail(3, webhook.GaveUp, late.Add(webhook.DisableAfter)) {
		t.Error("the webhook is not disabled")
	}
	if h := w.read(id); h.Enabled || h.DisabledReason != "no delivery has arrived for 48 hours" || h.Pending != 0 {
		t.Errorf("the webhook is %+v", h)
	}
	other := w.hook()
	w.event(sandbox.EventExec)
	w.event(sandbox.EventExec)
	list = w.due(other)
	if !fail(0, webhook.Gone, begun) || w.read(other).Enabled || w.read(other).Pending != 0 {
		t.Errorf("after 410 the webhook is %+v", w.read(other))
	}
}

func TestPurgeAndExpire(t *testing.T) {
	w := newWorld(t)
	id, other := w.hook(), w.hook()
	for range 10 {
		w.event(sandbox.EventExec)
	}
	now := time.Now().UTC()
	for i, d := range w.due(id)[:8] {
		d.State, d.EndedAt = webhook.Delivered, now.Add(-time.Duration(i)*time.Hour)
		w.record(d, webhook.Success)
	}
	if err := w.Purge(t.Context(), now.Add(-6*time.Hour-time.Minute), 5); err != nil {
		t.Fatal(err)
	}
	page, err := w.Deliveries(t.Context(), id, webhook.Filter{})
	var states []string
	for _, d := range page.Items {
		states = append(states, string(d.State))
	}
	if got := strings.Join(states, " "); err != nil || got != "pending pending delivered delivered delivered delivered delivered" && got != "pending pending delivered delivered delivered delivered" {
		t.Errorf("after the purge there are %s, %v, want 2 that wait and the newest that have ended", got, err)
	}
	if h := w.read(other); h.Pending != 10 {
		t.Errorf("%d deliveries of the other webhook wait, want 10", h.Pending)
	}
	w.exec("UPDATE webhook_deliveries SET retry_until = $1 WHERE webhook_id = $2", now.Add(-time.Hour).UnixNano(), other)
	if err := w.Expire(t.Context(), now.Add(-time.Minute), now); err != nil {
		t.Fatal(err)
	}
	page, err = w.Deliveries(t.Context(), other, webhook.Filter{State: webhook.Failed, Limit: 4})
	if err != nil || len(page.Items) != 4 || page.Next == "" || page.Items[0].Error != "no attempt was made in time" || w.read(other).Pending != 0 {
		t.Errorf("expired are %+v, %v", page, err)
	}
	seen := len(page.Items)
	for page.Next != "" {
		if page, err = w.Deliveries(t.Context(), other, webhook.Filter{State: webhook.Failed, Limit: 4, Cursor: page.Next}); err != nil {
			t.Fatal(err)
		}
		seen += len(page.Items)
	}
	if seen != 10 || w.read(id).Pending != 2 {
		t.Errorf("%d deliveries have expired, want 10", seen)
	}
}

// TestDisabledWebhooksKeepFewRows checks that cancelled deliveries do not wait for a purge.
func TestDisabledWebhooksKeepFewRows(t *testing.T) {
	w := newWorld(t)
	id, other := w.hook(), w.hook()
	w.fill(3*webhook.MaxKept, "TRUE")
	for range 3 {
		prev := w.read(id)
		next := prev
		next.Enabled = false
		if err := w.Update(t.Context(), prev, next); err != nil {
			t.Fatal(err)
		}
		if n := w.count("webhook_id = $1", id); n != webhook.MaxKept {
			t.Errorf("a disabled webhook has %d deliveries, want the newest %d", n, webhook.MaxKept)
		}
		if h := w.read(id); h.Pending != 0 {
			t.Errorf("%d deliveries of a disabled webhook wait", h.Pending)
		}
		w.exec("UPDATE webhooks SET enabled = 1 WHERE id = $1", id)
		w.fill(webhook.MaxKept, "id = '"+string(id)+"'")
	}
	if n, h := w.count("webhook_id = $1 AND state = 'pending'", other), w.read(other); n != 3*webhook.MaxKept || h.Pending != int64(n) {
		t.Errorf("%d deliveries of the other webhook wait, counted as %d, want %d", n, h.Pending, 3*webhook.MaxKept)
	}
}

// TestFirstAnswer checks that a first delivery makes a webhook an answered webhook, and another address a new webhook.
func TestFirstAnswer(t *testing.T) {
	w := newWorld(t)
	id := w.hook()
	for range 4 {
		w.event(sandbox.EventExec)
	}
	list := w.due(id)
	want := func(when string, answered bool) {
		t.Helper()
		waits, err := w.Waiting(t.Context())
		if err != nil || len(waits) != 1 || waits[0].Answered != answered || waits[0].User != "owner" {
			t.Errorf("%s, waiting are %+v, %v, want one of the owner, answered %t", when, waits, err, answered)
		}
	}
	arrive := func(i int, at time.Time) {
		d := list[i]
		d.State, d.AttemptedAt, d.EndedAt = webhook.Delivered, at, at
		w.record(d, webhook.Success)
	}
	want("before an attempt", false)
	failed := list[0]
	failed.AttemptedAt, failed.Error = time.Now(), "the receiver answered 500"
	w.record(failed, webhook.Retry)
	want("after a failure", false)
	arrive(0, time.Now())
	want("after a success", true)
	prev := w.read(id)
	next := prev
	next.Description, next.UpdatedAt = "d", time.Now().UTC()
	if err := w.Update(t.Context(), prev, next); err != nil {
		t.Fatal(err)
	}
	want("with another description", true)
	began := time.Now()
	prev = w.read(id)
	next = prev
	next.URL, next.UpdatedAt = "https://b.example", time.Now().UTC()
	if err := w.Update(t.Context(), prev, next); err != nil {
		t.Fatal(err)
	}
	want("with another address", false)
	arrive(1, began)
	want("after a success that began before the change", false)
	arrive(2, time.Now())
	want("after a success at the other address", true)
}

// TestDeletedWorkspace checks that the webhooks of a workspace end when its deletion begins.
func TestDeletedWorkspace(t *testing.T) {
	w := newWorld(t)
	id := w.hook()
	w.event(sandbox.EventExec)
	w.exec("UPDATE workspaces SET deleting_at = 1 WHERE id = $1", w.ws)
	if _, err := w.Webhook(t.Context(), w.ws, id); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("the webhook of a deleted workspace: %v, want not_found", err)
	}
}

func TestLooksUseIndexes(t *testing.T) {
	if storetest.Postgres() {
		t.Skip("the test reads plans of SQLite")
	}
	w := newWorld(t)
	for query, want := range map[string]struct {
		index string
		args  []any
	}{
		webhookrows.WaitingQuery: {"webhooks_waiting", nil},
		webhookrows.DueQuery:     {"webhook_deliveries_due", []any{"h", 1, 1}},
	} {
		plan, err := webhookrows.Plan(t.Context(), w.store.DB, query, want.args...)
		if err != nil || !strings.Contains(plan, want.index) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s\nis answered by %s, %v, want index %s without sorting", query, plan, err, want.index)
		}
	}
}
