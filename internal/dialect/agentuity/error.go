package agentuity

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

// The codes for which the clients have error types.
const (
	codeSandboxNotFound   = "SANDBOX_NOT_FOUND"
	codeSandboxTerminated = "SANDBOX_TERMINATED"
	codeSandboxBusy       = "SANDBOX_BUSY"
	codeExecutionNotFound = "EXECUTION_NOT_FOUND"
	codeSnapshotNotFound  = "SNAPSHOT_NOT_FOUND"
	codeSandboxSuspended  = "SANDBOX_SUSPENDED" // the clients throw their general error with it
	codeNotFound          = "NOT_FOUND"         // of /cli/sandbox/{id}, and for files and programs
)

// typed is an error for which the clients have a type.
type typed struct {
	code   string
	status int // for routes that use the status
	err    error
}

func (t *typed) Error() string { return t.err.Error() }
func (t *typed) Unwrap() error { return t.err }

func noSandbox() error {
	return &typed{codeSandboxNotFound, http.StatusNotFound, sandbox.Errorf(sandbox.NotFound, "there is no such sandbox")}
}

func noExecution() error {
	return &typed{codeExecutionNotFound, http.StatusNotFound, sandbox.Errorf(sandbox.NotFound, "there is no such execution")}
}

func suspended(err error) error { return &typed{codeSandboxSuspended, http.StatusConflict, err} }

func busy() error {
	return &typed{codeSandboxBusy, http.StatusConflict, sandbox.Errorf(sandbox.Conflict, "the sandbox is running another command")}
}

// known converts errors of calls into an existing sandbox to typed errors.
func known(err error) error {
	if sandbox.CodeOf(err) == sandbox.Ended {
		return &typed{codeSandboxTerminated, http.StatusGone, err}
	}
	return err
}

// style is how a route reports errors. The clients read a code only from an answer with status 200;
// for an execute they derive two codes from the status, and for files and archives they read none.
type style int

const (
	byCode    style = iota // typed errors have status 200
	byExecute              // not found and busy have their own status
	byStatus               // every error has its own status
)

// status returns the HTTP status for a typed error.
func (s style) status(t *typed) int {
	if s == byStatus || s == byExecute && (t.code == codeSandboxNotFound || t.code == codeSandboxBusy) {
		return t.status
	}
	return http.StatusOK
}

// fieldNames replaces names of /v1 fields in error messages by the names in this dialect.
var fieldNames = strings.NewReplacer(
	"apt_packages", "dependencies", "npm_packages", "packages", "timeout_seconds", "timeout",
	"timeouts.idle_seconds", "timeout.idle", "timeouts.paused_seconds", "timeout.paused", "timeouts.execution_seconds", "timeout.execution",
)

// write answers with an error.
func (s style) write(w http.ResponseWriter, r *http.Request, err error) {
	p := edge.Problem(r.Context(), err)
	answer := failure{Message: fieldNames.Replace(p.Detail), Code: strings.ToUpper(string(p.Code))}
	if p.Code == sandbox.FileNotFound || p.Code == sandbox.ProgramNotFound {
		answer.Code = codeNotFound
	}
	status := p.Status
	var t *typed
	switch {
	case errors.As(err, &t):
		answer.Code, status = t.code, s.status(t)
	case p.Code == sandbox.Unsupported && s != byStatus:
		status = http.StatusOK // the clients would retry for ever
	}
	p.SetRetryAfter(w.Header())
	writeJSON(w, status, answer)
}

// failure is the answer to a failed request.
type failure struct {
	Success bool   `json:"success"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}

// done is the answer without another result.
type done struct {
	Success bool `json:"success"`
}

// envelope is the answer with a result.
type envelope struct {
	Success bool `json:"success"`
	Data    any  `json:"data"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone when this fails
}

func answer(w http.ResponseWriter, data any) error {
	writeJSON(w, http.StatusOK, envelope{Success: true, Data: data})
	return nil
}

func answerDone(w http.ResponseWriter) error {
	writeJSON(w, http.StatusOK, done{Success: true})
	return nil
}
