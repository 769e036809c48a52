package e2b

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

// Failure is the body of an error. The clients read Code, not only the status.
type Failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// fieldNames replaces names of /v1 fields in messages by the names in this dialect.
var fieldNames = strings.NewReplacer("ttl_seconds", "timeout", "env.", "envVars.", "image_id", "templateID", "image:", "templateID:")

// statuses are the statuses that the clients expect where /v1 has others.
var statuses = map[sandbox.Code]int{
	sandbox.Invalid: http.StatusBadRequest,
	sandbox.Ended:   http.StatusNotFound,
	// The clients retry no other status, and have no error for this one.
	sandbox.Unsupported: http.StatusBadRequest,
}

// WriteError answers with an error.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	p := edge.Problem(r.Context(), err)
	p.SetRetryAfter(w.Header())
	f := failureOf(p)
	WriteJSON(w, f.Code, f)
}

// failureOf returns an error of /v1 as the clients expect it.
func failureOf(p *apierror.Problem) Failure {
	status := p.Status
	if s, ok := statuses[p.Code]; ok {
		status = s
	}
	return Failure{Code: status, Message: fieldNames.Replace(p.Detail)}
}

// WriteJSON answers with a value.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone when this fails
}

func answer(w http.ResponseWriter, status int, v any) error {
	WriteJSON(w, status, v)
	return nil
}

func answerNothing(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func noSandbox(id string) error {
	return sandbox.Errorf(sandbox.NotFound, "sandbox %q does not exist, or has ended", sandbox.Excerpt(id))
}
