package box

import (
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Exit describes the end of a box that was not requested.
type Exit struct {
	driver.Exit
	// Gone says that the driver does not know the box any more.
	Gone bool
}

// SandboxCause returns the cause with which the sandbox of the box ends.
func (e Exit) SandboxCause() sandbox.Cause {
	switch {
	case e.Gone:
		return sandbox.Cause{Code: sandbox.CauseExited, Message: "its processes are gone"}
	case e.Cause == sandbox.CauseOOM:
		return sandbox.Cause{Code: sandbox.CauseOOM, Message: detailed("it used more memory than its limit", e.Detail)}
	default:
		return sandbox.Cause{Code: sandbox.CauseExited, Message: detailed("it ended by itself", e.Detail)}
	}
}

func detailed(what, more string) string {
	if more == "" {
		return what
	}
	return sandbox.OneLine(what + ": " + more)
}
