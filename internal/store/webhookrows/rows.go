// Package webhookrows keeps webhooks and their deliveries in the database. It has the SQL; package
// internal/webhook has the rules.
package webhookrows

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/webhook"
)

// Rows are the webhooks in a database. They are safe for concurrent use.
type Rows struct{ db *database.DB }

var (
	_ webhook.Store = Rows{}
	_ webhook.Queue = Rows{}
)

// New returns the webhooks in a database.
func New(db *database.DB) Rows { return Rows{db} }

// Committed implements [webhook.Queue].
func (r Rows) Committed() <-chan struct{} { return r.db.Committed() }

type querier interface {
	// QueryRowContext runs a query that returns at most one row.
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

const columns = "id, workspace_id, url, description, types, enabled, disabled_reason, secret, old_secret, old_until, pending, dropped, failing_since, created_by, created_at, updated_at"

func scan(row database.Scanner) (webhook.Webhook, error) {
	var w webhook.Webhook
	var types, current, former string
	var until, failing, created, updated int64
	err := row.Scan(&w.ID, &w.Workspace, &w.URL, &w.Description, &types, &w.Enabled, &w.DisabledReason, &current, &former, &until,
		&w.Pending, &w.Dropped, &failing, &w.CreatedBy, &created, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return w, noWebhook()
	}
	if err != nil {
		return w, fmt.Errorf("read webhook: %w", err)
	}
	for _, name := range strings.FieldsFunc(types, func(r rune) bool { return r == ',' }) {
		w.Types = append(w.Types, sandbox.EventType(name))
	}
	w.OldUntil, w.FailingSince, w.CreatedAt, w.UpdatedAt = moment(until), moment(failing), moment(created), moment(updated)
	if w.Secret, err = decode(current); err == nil {
		w.OldSecret, err = decode(former)
	}
	return w, err
}

func noWebhook() error { return sandbox.Errorf(sandbox.NotFound, "there is no such webhook") }

// Encrypted text has the same form in all tables, so that a rotation of keys finds it.
const sealedPrefix = "sealed:"

func encode(s secret.Sealed) string {
	if s.KeyID == "" {
		return ""
	}
	return sealedPrefix + s.KeyID + ":" + base64.RawStdEncoding.EncodeToString(s.Data)
}

func decode(text string) (secret.Sealed, error) {
	if text == "" {
		return secret.Sealed{}, nil
	}
	key, data, _ := strings.Cut(strings.TrimPrefix(text, sealedPrefix), ":")
	raw, err := base64.RawStdEncoding.DecodeString(data)
	if err != nil {
		return secret.Sealed{}, errors.New("the secret of a webhook is damaged") // without the text
	}
	return secret.Sealed{KeyID: key, Data: raw}, nil
}

func joined(types []sandbox.EventType) string {
	if len(types) == 0 {
		return ""
	}
	var b strings.Builder
	for _, t := range types {
		b.WriteString("," + string(t))
	}
	return b.String() + ","
}

func moment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Create implements [webhook.Store].
func (r Rows) Create(ctx context.Context, w webhook.Webhook, limit int) error {
	err := r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var count int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM webhooks WHERE workspace_id = $1", w.Workspace).Scan(&count); err != nil {
			return err
		}
		if count >= limit {
			return sandbox.Errorf(sandbox.QuotaExceeded, "the workspace has %d webhooks, which is the limit; delete some", count)
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO webhooks (id, workspace_id, url, description, types, enabled, secret, created_by, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			w.ID, w.Workspace, w.URL, w.Description, joined(w.Types), w.Enabled, encode(w.Secret), w.CreatedBy, nanos(w.CreatedAt), nanos(w.UpdatedAt))
		return err
	})
	if err != nil {
		return fmt.Errorf("record webhook %s: %w", w.ID, err)
	}
	return nil
}

// Webhook implements [webhook.Store].
func (r Rows) Webhook(ctx context.Context, ws sandbox.WorkspaceID, id webhook.ID) (webhook.Webhook, error) {
	return one(ctx, r.db.Reader(), ws, id)
}

func one(ctx context.Context, q querier, ws sandbox.WorkspaceID, id webhook.ID) (webhook.Webhook, error) {
	return scan(q.QueryRowContext(ctx, "SELECT "+columns+" FROM webhooks WHERE workspace_id = $1 AND id = $2", ws, id))
}

// Webhooks implements [webhook.Store].
func (r Rows) Webhooks(ctx context.Context, ws sandbox.WorkspaceID) ([]webhook.Webhook, error) {
	list, err := database.Collect(ctx, r.db.Reader(), scan, "SELECT "+columns+" FROM webhooks WHERE workspace_id = $1 ORDER BY created_at, id", ws)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	return list, nil
}

// Update implements [webhook.Store].
func (r Rows) Update(ctx context.Context, prev, next webhook.Webhook) error {
	err := r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now, err := one(ctx, tx, prev.Workspace, prev.ID)
		if err != nil {
			return err
		}
		now.Pending, now.Dropped = prev.Pending, prev.Dropped // counted, not stored with the webhook
		if !reflect.DeepEqual(now, prev) {
			return sandbox.Errorf(sandbox.Conflict, "another request changes the webhook at this moment; try again")
		}
		if _, err := tx.ExecContext(ctx, `UPDATE webhooks SET url = $2, description = $3, types = $4, enabled = $5, disabled_reason = $6,
			secret = $7, old_secret = $8, old_until = $9, failing_since = $10, updated_at = $11, answered = CASE WHEN url = $2 THEN answered ELSE 0 END WHERE id = $1`,
			prev.ID, next.URL, next.Description, joined(next.Types), next.Enabled, next.DisabledReason, encode(next.Secret), encode(next.OldSecret), nanos(next.OldUntil), nanos(next.FailingSince), nanos(next.UpdatedAt)); err != nil {
			return err
		}
		if prev.Enabled && !next.Enabled {
			return cancelWaiting(ctx, tx, prev.ID, next.UpdatedAt)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("change webhook %s: %w", prev.ID, err)
	}
	return nil
}

// cancelWaiting cancels the deliveries that wait for a webhook that is disabled. The webhook keeps as many
// deliveries as a purge would leave, so that disabling it again and again leaves no more rows.
func cancelWaiting(ctx context.Context, tx *sql.Tx, id webhook.ID, at time.Time) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM webhook_deliveries WHERE webhook_id = $1 AND seq <= (SELECT seq FROM webhook_deliveries
		WHERE webhook_id = $1 ORDER BY seq DESC LIMIT 1 OFFSET $2)`, id, webhook.MaxKept); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE webhook_deliveries SET state = 'cancelled', ended_at = $2 WHERE webhook_id = $1 AND state = 'pending'", id, nanos(at))
	return err
}

// Delete implements [webhook.Store].
func (r Rows) Delete(ctx context.Context, ws sandbox.WorkspaceID, id webhook.ID) error {
	err := r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM webhooks WHERE workspace_id = $1 AND id = $2", ws, id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return noWebhook()
	})
	if err != nil {
		return fmt.Errorf("delete webhook %s: %w", id, err)
	}
	return nil
}

const deliveryColumns = `seq, id, webhook_id, workspace_id, event_seq, sandbox_id, sandbox_name, time, type, message, data, state, round, attempts,
	created_at, retry_until, next_attempt_at, attempted_at, ended_at, status, duration, error, response`

func scanDelivery(row database.Scanner) (webhook.Delivery, error) {
	var d webhook.Delivery
	var data string
	var at, created, until, next, attempted, ended int64
	err := row.Scan(&d.Seq, &d.ID, &d.Webhook, &d.Workspace, &d.Event.Seq, &d.Event.Sandbox, &d.Event.SandboxName, &at, &d.Event.Type, &d.Event.Message, &data,
		&d.State, &d.Round, &d.Attempts, &created, &until, &next, &attempted, &ended, &d.Status, &d.Duration, &d.Error, &d.Response)
	if errors.Is(err, sql.ErrNoRows) {
		return d, sandbox.Errorf(sandbox.NotFound, "there is no such delivery; ended deliveries are deleted after %s", webhook.Retention)
	}
	if err != nil {
		return d, fmt.Errorf("read delivery: %w", err)
	}
	if err := json.Unmarshal([]byte(data), &d.Event.Data); err != nil {
		return d, fmt.Errorf("data of delivery %s: %w", d.ID, err)
	}
	d.Event.Time, d.CreatedAt, d.RetryUntil, d.NextAttemptAt, d.AttemptedAt, d.EndedAt = moment(at), moment(created), moment(until), moment(next), moment(attempted), moment(ended)
	return d, nil
}
