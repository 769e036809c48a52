// Package answer writes the answers of the calls of package agentapi, and reads their parameters.
package answer

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/modbox/modbox/internal/agentapi"
)

// ErrAborted reports that the answer has begun and cannot be completed: the stream is reset, so
// that the client does not mistake it for complete.
var ErrAborted = errors.New("answer broken off")

// statusOf gives each code an HTTP status; the client reads only the code.
var statusOf = map[agentapi.ErrorCode]int{
	agentapi.CodeInvalid:    http.StatusBadRequest,
	agentapi.CodeNotFound:   http.StatusNotFound,
	agentapi.CodeNoFile:     http.StatusNotFound,
	agentapi.CodeNoProgram:  http.StatusNotFound,
	agentapi.CodeNoCwd:      http.StatusNotFound,
	agentapi.CodeExists:     http.StatusConflict,
	agentapi.CodeNotDir:     http.StatusConflict,
	agentapi.CodeIsDir:      http.StatusConflict,
	agentapi.CodeNotEmpty:   http.StatusConflict,
	agentapi.CodeDenied:     http.StatusForbidden,
	agentapi.CodeDiskFull:   http.StatusInsufficientStorage,
	agentapi.CodePortClosed: http.StatusBadGateway,
	agentapi.CodeTooMany:    http.StatusTooManyRequests,
	agentapi.CodeOutputGone: http.StatusGone,
}

// Fail answers with an error.
func Fail(w http.ResponseWriter, err error) {
	e := Error(err)
	status := statusOf[e.Code]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	data, _ := json.Marshal(e) // strings always encode
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	w.Write(data)
}

// JSON answers with the JSON of v.
func JSON(w http.ResponseWriter, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.Write(data)
	return nil
}

// Decode reads the JSON of a request of at most agentapi.MaxStart bytes into v. Errors:
// [agentapi.CodeInvalid].
func Decode(r *http.Request, v any) error {
	data, err := io.ReadAll(io.LimitReader(r.Body, agentapi.MaxStart+1))
	switch {
	case err != nil:
		return err
	case len(data) > agentapi.MaxStart:
		return Invalid("the request has more than %d bytes", agentapi.MaxStart)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return Invalid("cannot decode the request: %v", err)
	}
	return nil
}
