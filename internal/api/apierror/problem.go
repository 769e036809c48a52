// Package apierror is the shape of errors on /v1 ([Problem], RFC 9457), with the one table
// between error codes and HTTP statuses.
package apierror

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// MediaType is the media type of errors (RFC 9457).
const MediaType = "application/problem+json"

// statuses is the one table between codes and HTTP statuses. Several codes share
// a status; the code in the body tells them apart.
var statuses = map[sandbox.Code]int{
	sandbox.Invalid:          http.StatusUnprocessableEntity,
	sandbox.Unauthenticated:  http.StatusUnauthorized,
	sandbox.Forbidden:        http.StatusForbidden,
	sandbox.CodeBlocked:      http.StatusForbidden,
	sandbox.NotFound:         http.StatusNotFound,
	sandbox.FileNotFound:     http.StatusNotFound,
	sandbox.ProgramNotFound:  http.StatusNotFound,
	sandbox.Exists:           http.StatusConflict,
	sandbox.Conflict:         http.StatusConflict,
	sandbox.Ended:            http.StatusGone,
	sandbox.NotRunning:       http.StatusConflict,
	sandbox.TooLarge:         http.StatusRequestEntityTooLarge,
	sandbox.QuotaExceeded:    http.StatusTooManyRequests,
	sandbox.DiskFull:         http.StatusInsufficientStorage,
	sandbox.Unsupported:      http.StatusNotImplemented,
	sandbox.Unavailable:      http.StatusServiceUnavailable,
	sandbox.Timeout:          http.StatusGatewayTimeout,
	sandbox.AgentUnreachable: http.StatusBadGateway,
	sandbox.PortClosed:       http.StatusBadGateway,
	sandbox.Internal:         http.StatusInternalServerError,
}

// Status returns the HTTP status of a code; 500 for one it does not know.
func Status(code sandbox.Code) int {
	if s, ok := statuses[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// CodeOf returns the code to assume for a status when the body names none, e.g.
// because something between client and server answered.
func CodeOf(status int) sandbox.Code {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusUnsupportedMediaType, http.StatusNotAcceptable:
		return sandbox.Invalid
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return sandbox.NotFound
	case http.StatusConflict:
		return sandbox.Conflict
	case http.StatusRequestTimeout:
		return sandbox.Timeout
	case http.StatusBadGateway:
		return sandbox.Unavailable
	}
	for _, code := range sandbox.Codes {
		if statuses[code] == status {
			return code
		}
	}
	return sandbox.Internal
}

// FieldErrorsMax is how many inputs at fault an answer names.
const FieldErrorsMax = 20

// Problem is an error as it travels (RFC 9457, with a code).
type Problem struct {
	Type      string       `json:"type" doc:"Where this kind of error is described." example:"https://modbox.run/errors#not_found"`
	Title     string       `json:"title" doc:"The HTTP status in words." example:"Not Found"`
	Status    int          `json:"status" doc:"The HTTP status." example:"404"`
	Detail    string       `json:"detail" doc:"What happened, to which object, and what to do." example:"there is no sandbox \"demo\""`
	Code      sandbox.Code `json:"code" doc:"What kind of error it is, for programs; docs/errors.md lists all." example:"not_found"`
	RequestID string       `json:"request_id,omitempty" doc:"Find the request in the server's log by this."`
	Errors    []FieldError `json:"errors,omitempty" nullable:"false" doc:"The inputs at fault, when there are such; 20 at most."`
	// ErrorsOmitted is how many inputs at fault Errors leaves out.
	ErrorsOmitted int `json:"errors_omitted,omitempty" doc:"How many more inputs are at fault."`
	// RetryAfter is the header of that name in seconds; 0 for none.
	RetryAfter int `json:"-"`
}

// FieldError is one input at fault.
type FieldError struct {
	Location string `json:"location" doc:"The field, as a path." example:"resources.memory"`
	Message  string `json:"message" doc:"What is wrong with it." example:"must be at least 64Mi"`
}

// New returns the public side of err: nothing of an error without a code
// gets out.
func New(err error, requestID string) *Problem {
	p := &Problem{Code: sandbox.CodeOf(err), RequestID: requestID}
	var e *sandbox.Error
	if p.Code == sandbox.Internal || !errors.As(err, &e) {
		p.Code, p.Detail = sandbox.Internal, "something went wrong on our side; the server's log has the details"
	} else {
		p.Detail = e.Message
		p.RetryAfter = int((e.RetryAfter + time.Second - 1) / time.Second)
		if e.Field != "" {
			p.Detail = e.Field + ": " + e.Message
			p.Errors = []FieldError{{Location: e.Field, Message: e.Message}}
		}
	}
	p.Status = Status(p.Code)
	p.Title = http.StatusText(p.Status)
	p.Type = "https://modbox.run/errors#" + string(p.Code)
	return p
}

// Err is the inverse of [New]: the error as the server had it, without
// what it kept private.
func (p *Problem) Err() *sandbox.Error {
	e := &sandbox.Error{Code: p.Code, Message: p.Detail}
	if e.Code == "" {
		e.Code = CodeOf(p.Status)
	}
	if len(p.Errors) == 1 {
		e.Field, e.Message = p.Errors[0].Location, p.Errors[0].Message
	}
	return e
}

// Write answers a request with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", MediaType)
	p.SetRetryAfter(w.Header())
	body, err := json.Marshal(p)
	if err != nil { // its fields are strings and numbers
		panic(err)
	}
	body = append(body, '\n')
	// With its length the answer is whole for a client that still sends its body.
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client is gone when this fails
}

// SetRetryAfter sets the header Retry-After when something is known of that.
func (p *Problem) SetRetryAfter(h http.Header) {
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
}

// GetHeaders has huma send the headers that belong to the problem.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	p.SetRetryAfter(h)
	return h
}

// Error, GetStatus and ContentType make a Problem an error that huma answers as it is.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the media type of errors.
func (p *Problem) ContentType(string) string { return MediaType }

// Field returns the error of a field from an error of huma's. It bounds the text, which contains
// names that callers choose.
func Field(location, message string) FieldError {
	for _, part := range []string{"body.", "query.", "path.", "header."} {
		if f, ok := strings.CutPrefix(location, part); ok {
			location = f // as the caller wrote it
			break
		}
	}
	return FieldError{Location: clip(location), Message: clip(message)}
}

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), 256)], "") }
