package lifecycle

import (
	"fmt"

	"github.com/modbox/modbox/internal/sandbox"
)

// failure is why provisioning did not work.
type failure struct {
	cause sandbox.Cause
	err   error
}

func (f *failure) Error() string {
	if f.err == nil {
		return f.cause.String()
	}
	return fmt.Sprintf("%s: %v", f.cause, f.err)
}

func (f *failure) Unwrap() error { return f.err }

// fail returns a failure. Its public message is what, followed by the public message of err, if it
// has one.
func fail(code sandbox.CauseCode, err error, what string) *failure {
	return &failure{cause: sandbox.Cause{Code: code, Message: sandbox.Explain(what, err)}, err: err}
}
