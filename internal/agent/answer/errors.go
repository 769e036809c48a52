package answer

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/modbox/modbox/internal/agentapi"
)

// Errorf returns an error with a code.
func Errorf(code agentapi.ErrorCode, format string, args ...any) *agentapi.Error {
	return &agentapi.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns an error with [agentapi.CodeInvalid].
func Invalid(format string, args ...any) *agentapi.Error {
	return Errorf(agentapi.CodeInvalid, format, args...)
}

// codes maps errors of the system to codes; the first match applies.
var codes = []struct {
	err  error
	code agentapi.ErrorCode
}{
	{syscall.ENOTDIR, agentapi.CodeNotDir},
	{syscall.EISDIR, agentapi.CodeIsDir},
	{syscall.ENOTEMPTY, agentapi.CodeNotEmpty},
	{syscall.ENOSPC, agentapi.CodeDiskFull},
	{syscall.EDQUOT, agentapi.CodeDiskFull},
	{syscall.EROFS, agentapi.CodeDenied},
	{syscall.EBUSY, agentapi.CodeDenied}, // for mounted directories
	{syscall.ENAMETOOLONG, agentapi.CodeInvalid},
	{syscall.ELOOP, agentapi.CodeInvalid},
	{syscall.EINVAL, agentapi.CodeInvalid},
	{syscall.EMFILE, agentapi.CodeTooMany},
	{syscall.ENFILE, agentapi.CodeTooMany},
	{syscall.EAGAIN, agentapi.CodeTooMany},
	{syscall.ENOMEM, agentapi.CodeTooMany},
	{fs.ErrNotExist, agentapi.CodeNoFile},
	{fs.ErrExist, agentapi.CodeExists},
	{fs.ErrPermission, agentapi.CodeDenied},
}

// Error converts an error to the form sent to the host.
func Error(err error) *agentapi.Error {
	var e *agentapi.Error
	if errors.As(err, &e) {
		return e
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return &agentapi.Error{Code: c.code, Message: err.Error()}
		}
	}
	return &agentapi.Error{Code: agentapi.CodeInternal, Message: err.Error()}
}
