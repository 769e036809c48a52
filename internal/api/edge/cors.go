package edge

import (
	"net/http"

	"github.com/rs/cors"
)

// corsMaxAge is the number of seconds for which browsers remember a permission.
const corsMaxAge = 600

// AllowOrigins lets pages of the origins call next from a browser: it answers the browser's
// questions (preflight requests), and marks answers as readable for the pages. "*" is every origin. Without
// origins it returns next. Requests are authenticated as all others are: a page needs a token, and
// cookies are not permitted.
func AllowOrigins(origins []string, next http.Handler) http.Handler {
	if len(origins) == 0 {
		return next
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
		AllowedHeaders: []string{"Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "Mcp-Protocol-Version", "Mcp-Session-Id", "Range", "X-Workspace-Id"},
		ExposedHeaders: []string{RequestIDHeader, "Content-Range", "Mcp-Session-Id", "Retry-After", "Modbox-Auto-Resumed", "Modbox-Memory-Lost"},
		MaxAge:         corsMaxAge,
	}).Handler(next)
}
