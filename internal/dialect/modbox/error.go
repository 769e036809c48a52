package modbox

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// bodyNames are the dialect's names for fields that have other names in lifecycle and /v1.
var bodyNames = map[string]string{"name": "task_id", "env": "env_vars"}

// handler is an HTTP handler that returns its error.
type handler func(w http.ResponseWriter, r *http.Request) error

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h(w, r); err != nil {
		writeError(w, r, err)
	}
}

// writeError answers as the product does: {"detail": …}, with a list of faults for status 422. The
// code is our addition.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	answer := struct {
		Detail any          `json:"detail"`
		Code   sandbox.Code `json:"code"`
	}{}
	status := http.StatusUnprocessableEntity
	var invalid *validationError
	var coded *sandbox.Error
	switch {
	case errors.As(err, &invalid):
		audit.FromContext(r.Context()).Fail(sandbox.Invalid)
		answer.Detail, answer.Code = invalid.faults, sandbox.Invalid
	case errors.As(err, &coded) && (coded.Code == sandbox.Invalid || coded.Code == sandbox.FileNotFound) && coded.Field != "":
		audit.FromContext(r.Context()).Fail(coded.Code)
		answer.Detail, answer.Code = []fault{{location(coded.Field), coded.Message, "value_error"}}, coded.Code
	default:
		p := edge.Problem(r.Context(), err)
		status, answer.Detail, answer.Code = p.Status, p.Detail, p.Code
		p.SetRetryAfter(w.Header())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client is gone when this fails
}

// location returns where in the dialect's body a field of lifecycle is.
func location(field string) []any {
	loc := []any{"body"}
	for i, part := range strings.SplitN(field, ".", 2) {
		if name, ok := bodyNames[part]; ok && i == 0 {
			part = name
		}
		loc = append(loc, part)
	}
	return loc
}

func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client is gone when this fails
	return nil
}
