package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code classifies an error of the server. docs/errors.md lists what each means.
type Code string

// The codes.
const (
	Invalid          Code = "invalid"
	Unauthenticated  Code = "unauthenticated"
	Forbidden        Code = "forbidden"
	CodeBlocked      Code = "code_blocked"
	NotFound         Code = "not_found"
	FileNotFound     Code = "file_not_found"
	ProgramNotFound  Code = "program_not_found"
	Exists           Code = "exists"
	Conflict         Code = "conflict"
	Ended            Code = "ended"
	NotRunning       Code = "not_running"
	TooLarge         Code = "too_large"
	QuotaExceeded    Code = "quota_exceeded"
	DiskFull         Code = "disk_full"
	Unsupported      Code = "unsupported"
	Unavailable      Code = "unavailable"
	Timeout          Code = "timeout"
	AgentUnreachable Code = "agent_unreachable"
	PortClosed       Code = "port_closed"
	Internal         Code = "internal"
)

// Error returns the code. A code is an error so that errors.Is finds it: errors.Is(err, FileNotFound).
func (c Code) Error() string { return string(c) }

// Codes lists every code.
var Codes = []Code{
	Invalid, Unauthenticated, Forbidden, CodeBlocked, NotFound, FileNotFound, ProgramNotFound, Exists, Conflict, Ended, NotRunning,
	TooLarge, QuotaExceeded, DiskFull, Unsupported, Unavailable, Timeout, AgentUnreachable, PortClosed, Internal,
}

// Error is an error answer of the server.
type Error struct {
	Code    Code
	Message string
	// Fields are the invalid inputs, if specific inputs are invalid.
	Fields []FieldError
	Status int // of HTTP; 0 when the error came within a stream
	// RetryAfter is the wait before the next attempt that the server asks for; 0 when it does not.
	RetryAfter time.Duration
	// RequestID identifies the request in the server's log.
	RequestID string
}

// FieldError describes an invalid input.
type FieldError struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Error returns the message with the fields at fault.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	for _, f := range e.Fields {
		if !strings.Contains(e.Message, f.Message) {
			fmt.Fprintf(&b, "; %s: %s", f.Location, f.Message)
		}
	}
	return b.String()
}

// Is reports whether target is the [Code] of the error.
func (e *Error) Is(target error) bool { return target == error(e.Code) }

// IsCode reports whether err is an [*Error] with that code.
func IsCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// problem is the body of an error answer (RFC 9457).
type problem struct {
	Title  string       `json:"title"`
	Detail string       `json:"detail"`
	Code   Code         `json:"code"`
	Errors []FieldError `json:"errors"`
}

// errorFrom returns the Error of an answer. body is its beginning.
func errorFrom(resp *http.Response, body []byte) *Error {
	e := &Error{Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id")}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = time.Duration(n) * time.Second
	}
	var p problem
	if json.Unmarshal(body, &p) == nil && (p.Code != "" || p.Detail != "") {
		e.Code, e.Message, e.Fields = p.Code, p.Detail, p.Errors
	}
	if e.Message == "" {
		e.Message = p.Title
	}
	if e.Message == "" { // a proxy answered, not our server
		e.Message = fmt.Sprintf("the server answered %s", resp.Status)
	}
	if e.Code == "" {
		e.Code = codeOfStatus(resp.StatusCode)
	}
	return e
}

// codeOfStatus returns the code of an answer without a code, from a proxy between client and
// server.
func codeOfStatus(status int) Code {
	switch status {
	case http.StatusUnauthorized:
		return Unauthenticated
	case http.StatusForbidden:
		return Forbidden
	case http.StatusNotFound:
		return NotFound
	case http.StatusRequestEntityTooLarge:
		return TooLarge
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
		return Unavailable
	case http.StatusGatewayTimeout:
		return Timeout
	}
	if status >= 400 && status < 500 {
		return Invalid
	}
	return Internal
}
