package agentuity

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// reached returns sb once it has one of the statuses that the request waits for, or its state after
// the timeout.
func (h *finder) reached(r *http.Request, sb sandbox.Sandbox) (look, error) {
	wait, err := number(r, "waitMs", 0, 0, 1<<30)
	if err != nil {
		return look{}, err
	}
	var want []string
	if s := r.URL.Query().Get("waitForStatus"); s != "" {
		want = strings.Split(s, ",")
	}
	timer := time.NewTimer(min(time.Duration(wait)*time.Millisecond, maxWait))
	defer timer.Stop()
	ctx, ref := r.Context(), string(sb.ID)
	for {
		changed, err := h.svc.Changed(ctx, caller(ctx), ref)
		if err != nil {
			return look{}, err
		}
		if sb, err = h.svc.Get(ctx, caller(ctx), ref); err != nil {
			return look{}, err
		}
		l, err := h.look(ctx, sb)
		if err != nil || wait == 0 || len(want) == 0 || slices.Contains(want, l.status()) || sb.State.Ended() {
			return l, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return l, nil
		case <-ctx.Done():
			return l, ctx.Err()
		}
	}
}
