package edge

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/audit"
)

// methodMax bounds what the log has of a method, which callers choose.
const methodMax = 16

// frequent are routes that machines ask again and again.
var frequent = map[string]bool{"GET /healthz": true, "GET /readyz": true, "GET /metrics": true}

// log writes the line of a request that has ended. Nothing in it is the caller's choice
// but the method: neither path nor headers, which may hold secrets.
func (o Options) log(r *http.Request, id string, record *access.Record, t *transfer, begun time.Time) {
	if o.Access == nil {
		return
	}
	level := slog.LevelInfo
	if frequent[record.Route()] || record.OfSandbox() && !o.AccessURLs {
		level = slog.LevelDebug
	}
	if !o.Access.Enabled(r.Context(), level) {
		return
	}
	address, _ := audit.Client(r.RemoteAddr)
	attributes := append([]slog.Attr{
		slog.String("request_id", id), slog.String("client", address), slog.String("method", r.Method[:min(len(r.Method), methodMax)]),
		slog.Int("status", cmp.Or(t.status, http.StatusOK)), slog.Int64("bytes", t.bytes), slog.Duration("duration", time.Since(begun)),
	}, record.Attributes()...)
	o.Access.LogAttrs(r.Context(), level, "request", attributes...)
}
