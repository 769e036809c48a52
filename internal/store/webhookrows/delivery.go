package webhookrows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/webhook"
)

// Deliveries implements [webhook.Store].
func (r Rows) Deliveries(ctx context.Context, id webhook.ID, f webhook.Filter) (page.Page[webhook.Delivery], error) {
	const order = "deliveries desc"
	size, err := page.Request{Limit: f.Limit}.Size()
	if err != nil {
		return page.Page[webhook.Delivery]{}, err
	}
	text, args := "SELECT "+deliveryColumns+" FROM webhook_deliveries WHERE webhook_id = $1", []any{id}
	if f.State != "" {
		args = append(args, f.State)
		text += " AND state = $" + strconv.Itoa(len(args))
	}
	var last int64
	further, err := page.Parse(f.Cursor, order, &last)
	if err != nil {
		return page.Page[webhook.Delivery]{}, err
	}
	if further {
		args = append(args, last)
		text += " AND seq < $" + strconv.Itoa(len(args))
	}
	list, err := database.Collect(ctx, r.db.Reader(), scanDelivery, text+" ORDER BY seq DESC LIMIT "+strconv.Itoa(size+1), args...)
	if err != nil {
		return page.Page[webhook.Delivery]{}, fmt.Errorf("list deliveries of webhook %s: %w", id, err)
	}
	return page.Cut(list, size, func(d webhook.Delivery) string { return page.Cursor(order, d.Seq) }), nil
}

// Delivery implements [webhook.Store].
func (r Rows) Delivery(ctx context.Context, id webhook.ID, delivery string) (webhook.Delivery, error) {
	return oneDelivery(ctx, r.db.Reader(), id, delivery)
}

func oneDelivery(ctx context.Context, q querier, id webhook.ID, delivery string) (webhook.Delivery, error) {
	return scanDelivery(q.QueryRowContext(ctx, "SELECT "+deliveryColumns+" FROM webhook_deliveries WHERE webhook_id = $1 AND id = $2", id, delivery))
}

// enabled returns the error for a webhook that is not there or disabled.
func enabled(ctx context.Context, tx *sql.Tx, id webhook.ID) error {
	var on bool
	err := tx.QueryRowContext(ctx, "SELECT enabled FROM webhooks WHERE id = $1", id).Scan(&on)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return noWebhook()
	case err != nil:
		return err
	case !on:
		return sandbox.Errorf(sandbox.Conflict, "the webhook is disabled; enable it first")
	}
	return nil
}

// Add implements [webhook.Store].
func (r Rows) Add(ctx context.Context, d webhook.Delivery) error {
	err := r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := enabled(ctx, tx, d.Webhook); err != nil {
			return err
		}
		var pending int
		if err := tx.QueryRowContext(ctx, "SELECT sum(pending) FROM webhooks WHERE workspace_id = $1", d.Workspace).Scan(&pending); err != nil {
			return err
		}
		if pending >= webhook.MaxPending {
			return sandbox.Errorf(sandbox.QuotaExceeded, "%d deliveries of the workspace wait, which is the limit", pending)
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO webhook_deliveries (id, webhook_id, workspace_id, event_seq, sandbox_id, sandbox_name, time, type, message, data,
			created_at, retry_until, next_attempt_at) VALUES ($1, $2, $3, 0, '', '', $4, $5, $6, '{}', $7, $8, 0)`,
			d.ID, d.Webhook, d.Workspace, nanos(d.Event.Time), d.Event.Type, d.Event.Message, nanos(d.CreatedAt), nanos(d.RetryUntil))
		return err
	})
	if err != nil {
		return fmt.Errorf("record delivery %s: %w", d.ID, err)
	}
	return nil
}

// Redeliver implements [webhook.Store].
func (r Rows) Redeliver(ctx context.Context, id webhook.ID, delivery string, until time.Time) (d webhook.Delivery, err error) {
	err = r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := enabled(ctx, tx, id); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE webhook_deliveries SET state = 'pending', round = round + 1, attempts = 0, retry_until = $3,
			next_attempt_at = 0, ended_at = 0 WHERE webhook_id = $1 AND id = $2`, id, delivery, nanos(until)); err != nil {
			return err
		}
		d, err = oneDelivery(ctx, tx, id, delivery)
		return err
	})
	if err != nil {
		return webhook.Delivery{}, fmt.Errorf("deliver again: %w", err)
	}
	return d, nil
}

// The queries of each look of the dispatcher. The first looks at an index once for each webhook with
// deliveries that wait.
const (
	waitingQuery = `SELECT workspace_id, id, created_by, answered, pending, (SELECT min(next_attempt_at) FROM webhook_deliveries
		WHERE webhook_id = webhooks.id AND state = 'pending') FROM webhooks WHERE pending > 0 AND enabled = 1`
	dueQuery = "SELECT " + deliveryColumns + ` FROM webhook_deliveries
		WHERE webhook_id = $1 AND state = 'pending' AND next_attempt_at <= $2 ORDER BY next_attempt_at, seq LIMIT $3`
)

// Waiting implements [webhook.Queue].
func (r Rows) Waiting(ctx context.Context) ([]webhook.Waiting, error) {
	list, err := database.Collect(ctx, r.db.Reader(), func(row database.Scanner) (w webhook.Waiting, err error) {
		var due int64
		err = row.Scan(&w.Workspace, &w.Webhook, &w.User, &w.Answered, &w.Pending, &due)
		w.Due = moment(due)
		return w, err
	}, waitingQuery)
	if err != nil {
		return nil, fmt.Errorf("read waiting deliveries: %w", err)
	}
	return list, nil
}

// Due implements [webhook.Queue].
func (r Rows) Due(ctx context.Context, id webhook.ID, now time.Time, limit int) (webhook.Webhook, []webhook.Delivery, error) {
	w, err := scan(r.db.Reader().QueryRowContext(ctx, "SELECT "+columns+" FROM webhooks WHERE id = $1 AND enabled = 1", id))
	if err != nil {
		return webhook.Webhook{}, nil, err
	}
	list, err := database.Collect(ctx, r.db.Reader(), scanDelivery, dueQuery, id, nanos(now), limit)
	if err != nil {
		return webhook.Webhook{}, nil, fmt.Errorf("read deliveries of webhook %s: %w", id, err)
	}
	return w, list, nil
}

// Record implements [webhook.Queue].
func (r Rows) Record(ctx context.Context, d webhook.Delivery, o webhook.Outcome) (disabled bool, err error) {
	write := r.db.Note // a loss of power repeats the attempt
	if o == webhook.Gone || o == webhook.GaveUp {
		write = r.db.Write
	}
	err = write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		disabled = false
		// A delivery that was cancelled meanwhile stays cancelled, unless it has arrived.
		if _, err := tx.ExecContext(ctx, `UPDATE webhook_deliveries SET state = CASE WHEN state = 'pending' OR $2 = 'delivered' THEN $2 ELSE state END,
			attempts = $3, next_attempt_at = $4, attempted_at = $5, ended_at = coalesce(nullif(CAST($6 AS BIGINT), 0), ended_at),
			status = $7, duration = $8, error = $9, response = $10 WHERE webhook_id = $1 AND id = $11 AND round = $12`,
			d.Webhook, d.State, d.Attempts, nanos(d.NextAttemptAt), nanos(d.AttemptedAt), nanos(d.EndedAt),
			d.Status, int64(d.Duration), d.Error, d.Response, d.ID, d.Round); err != nil {
			return err
		}
		disabled, err = outcome(ctx, tx, &d, o)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("record an attempt of %s: %w", d.ID, err)
	}
	return disabled, nil
}

// outcome changes the webhook of an attempt, and reports whether it disabled it.
func outcome(ctx context.Context, tx *sql.Tx, d *webhook.Delivery, o webhook.Outcome) (disabled bool, err error) {
	if o == webhook.Success {
		// An attempt that began before a change of the webhook may have gone to its former address.
		_, err := tx.ExecContext(ctx, `UPDATE webhooks SET failing_since = 0, answered = CASE WHEN updated_at <= $2 THEN 1 ELSE answered END
			WHERE id = $1 AND (failing_since > 0 OR answered = 0)`, d.Webhook, nanos(d.AttemptedAt))
		return false, err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE webhooks SET failing_since = $2 WHERE id = $1 AND failing_since = 0", d.Webhook, nanos(d.AttemptedAt)); err != nil {
		return false, err
	}
	switch o {
	case webhook.Gone:
		return disable(ctx, tx, d, "the receiver answered 410 (gone)", d.AttemptedAt)
	case webhook.GaveUp:
		return disable(ctx, tx, d, fmt.Sprintf("no delivery has arrived for %d hours", int(webhook.DisableAfter.Hours())), d.AttemptedAt.Add(-webhook.DisableAfter))
	}
	return false, nil
}

// disable disables the webhook of a delivery if it has failed since a time or longer.
func disable(ctx context.Context, tx *sql.Tx, d *webhook.Delivery, reason string, since time.Time) (bool, error) {
	res, err := tx.ExecContext(ctx, `UPDATE webhooks SET enabled = 0, disabled_reason = $2, updated_at = $3
		WHERE id = $1 AND enabled = 1 AND failing_since <= $4`, d.Webhook, reason, nanos(d.AttemptedAt), nanos(since))
	if err != nil {
		return false, err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	return true, cancelWaiting(ctx, tx, d.Webhook, d.AttemptedAt)
}

// purgeBatch is the number of rows that one transaction of Purge deletes.
const purgeBatch = 1000

// Purge implements [webhook.Queue].
func (r Rows) Purge(ctx context.Context, before time.Time, kept int) error {
	if err := r.batches(ctx, `DELETE FROM webhook_deliveries WHERE seq IN (SELECT seq FROM webhook_deliveries WHERE ended_at > 0 AND ended_at < $1 LIMIT $2)`,
		nanos(before)); err != nil {
		return fmt.Errorf("purge deliveries: %w", err)
	}
	ids, err := database.Collect(ctx, r.db.Reader(), func(row database.Scanner) (id webhook.ID, err error) {
		err = row.Scan(&id)
		return id, err
	}, "SELECT id FROM webhooks")
	if err != nil {
		return fmt.Errorf("purge deliveries: %w", err)
	}
	for _, id := range ids {
		var last int64
		err := r.db.Reader().QueryRowContext(ctx, `SELECT seq FROM webhook_deliveries WHERE webhook_id = $1 AND state <> 'pending'
			ORDER BY seq DESC LIMIT 1 OFFSET $2`, id, kept).Scan(&last)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err == nil {
			err = r.batches(ctx, `DELETE FROM webhook_deliveries WHERE seq IN (SELECT seq FROM webhook_deliveries
				WHERE webhook_id = $1 AND seq <= $3 AND state <> 'pending' LIMIT $2)`, id, last)
		}
		if err != nil {
			return fmt.Errorf("purge deliveries of webhook %s: %w", id, err)
		}
	}
	return nil
}

// Expire implements [webhook.Queue].
func (r Rows) Expire(ctx context.Context, before, now time.Time) error {
	err := r.batches(ctx, `UPDATE webhook_deliveries SET state = 'failed', ended_at = $3, error = CASE error WHEN '' THEN 'no attempt was made in time' ELSE error END
		WHERE seq IN (SELECT seq FROM webhook_deliveries WHERE state = 'pending' AND retry_until < $1 LIMIT $2)`, nanos(before), nanos(now))
	if err != nil {
		return fmt.Errorf("end deliveries: %w", err)
	}
	return nil
}

// batches repeats a statement, whose second parameter is the number of rows that it changes, until it
// changes fewer.
func (r Rows) batches(ctx context.Context, text string, first any, others ...any) error {
	args := append([]any{first, purgeBatch}, others...)
	for n := int64(purgeBatch); n == purgeBatch; {
		err := r.db.Note(ctx, func(ctx context.Context, tx *sql.Tx) error {
			res, err := tx.ExecContext(ctx, text, args...)
			if err == nil {
				n, err = res.RowsAffected()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
