package sandbox

import (
	"errors"
	"fmt"
	"time"
)

// Code classifies an error for callers. The set is closed; docs/errors.md lists
// it, and internal/api maps each code to one HTTP status.
type Code string

// The codes.
const (
	Invalid          Code = "invalid"           // the request is malformed or out of range; Field names where
	Unauthenticated  Code = "unauthenticated"   // no token, or an unknown, expired or revoked token
	Forbidden        Code = "forbidden"         // the token is good but may not do this
	CodeBlocked      Code = "code_blocked"      // the workspace's policy does not let the code run
	NotFound         Code = "not_found"         // no such object, or it is another workspace's
	FileNotFound     Code = "file_not_found"    // no such file or directory in the sandbox or snapshot
	ProgramNotFound  Code = "program_not_found" // the sandbox does not have the program of a command
	Exists           Code = "exists"            // the name is taken by a live object
	Conflict         Code = "conflict"          // the object's state does not allow this now
	Ended            Code = "ended"             // the sandbox is gone; the message says why
	NotRunning       Code = "not_running"       // the sandbox is not running yet
	TooLarge         Code = "too_large"         // an upload, body or file is over its limit
	QuotaExceeded    Code = "quota_exceeded"    // a limit of the workspace or the host is reached
	DiskFull         Code = "disk_full"         // the sandbox's disk limit is reached
	Unsupported      Code = "unsupported"       // this installation or driver cannot do it
	Unavailable      Code = "unavailable"       // temporarily not possible; try again
	Timeout          Code = "timeout"           // it did not finish within its time
	AgentUnreachable Code = "agent_unreachable" // the sandbox's agent does not answer or talks nonsense
	PortClosed       Code = "port_closed"       // nothing listens on that port in the sandbox
	Internal         Code = "internal"          // a fault of ours; details only in the log
)

// Codes lists every code.
var Codes = []Code{
	Invalid, Unauthenticated, Forbidden, CodeBlocked, NotFound, FileNotFound, ProgramNotFound, Exists, Conflict, Ended, NotRunning,
	TooLarge, QuotaExceeded, DiskFull, Unsupported, Unavailable, Timeout, AgentUnreachable, PortClosed, Internal,
}

// Error is an error with a code and a message that is safe to show to the caller.
type Error struct {
	Code Code
	// Field names the offending input as a path, e.g. "resources.memory"; empty when no single one is at fault.
	Field string
	// Message says what happened, to which object, and what to do.
	Message string
	// RetryAfter is how long a caller should wait before it tries again; 0 when nothing is known of that.
	RetryAfter time.Duration
	// Err is the private reason, for logs only; may be nil.
	Err error
}

func (e *Error) Error() string {
	s := e.Message
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the private reason.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an [Error] with the code and a public message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// InvalidField returns an [Invalid] error about one input field.
func InvalidField(field, format string, args ...any) *Error {
	return &Error{Code: Invalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an [Error] with a public message and a private reason.
func Wrap(code Code, err error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: err}
}

// ErrNoSpace is wrapped by errors of code [Unavailable] which say that a file system of
// the server is full.
var ErrNoSpace = errors.New("the server's disk has no space")

// noSpaceRetry is how long a caller should wait for space on the server's disk.
const noSpaceRetry = 10 * time.Second

// NoSpace returns an error of code [Unavailable] that wraps [ErrNoSpace] and the private
// reason err.
func NoSpace(err error) *Error {
	e := Wrap(Unavailable, errors.Join(ErrNoSpace, err), "the server's disk is full; delete something, or ask an administrator")
	e.RetryAfter = noSpaceRetry
	return e
}

// CodeOf returns the code of the first [Error] in err's chain, [Internal] when
// there is none, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}
