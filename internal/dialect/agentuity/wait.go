package agentuity

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// lookEvery is how often a request that waits looks for what nothing tells.
const lookEvery = 100 * time.Millisecond

// reached returns sb once it has one of the statuses that the request waits for,
// or as it is when the time is up.
func (d *Dialect) reached(r *http.Request, sb sandbox.Sandbox) (look, error) {
	wait, err := number(r, "waitMs", 0, 0, 1<<30)
	if err != nil {
		return look{}, err
	}
	var want []string
	if s := r.URL.Query().Get("waitForStatus"); s != "" {
		want = strings.Split(s, ",")
	}
	deadline := time.Now().Add(min(time.Duration(wait)*time.Millisecond, holdMax))
	for {
		l, err := d.look(r.Context(), sb)
		left := time.Until(deadline)
		if err != nil || left <= 0 || len(want) == 0 || slices.Contains(want, l.status()) || sb.State.Ended() {
			return l, err
		}
		if err := d.changed(r.Context(), &l, left); err != nil {
			return l, err
		}
		if sb, err = d.svc.Get(r.Context(), caller(r.Context()), string(sb.ID)); err != nil {
			return l, err
		}
	}
}

// changed returns when something may have changed, at the latest after left.
func (d *Dialect) changed(ctx context.Context, l *look, left time.Duration) error {
	if l.State == sandbox.Provisioning {
		_, err := d.svc.Wait(ctx, caller(ctx), string(l.ID), sandbox.Running, left)
		return err
	}
	timer := time.NewTimer(min(left, lookEvery))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
