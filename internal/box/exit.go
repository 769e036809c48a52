package box

import (
	"cmp"
	"errors"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Exit describes the end of a box that was not requested.
type Exit struct {
	driver.Exit
	// Gone says that the driver does not know the box any more.
	Gone bool
}

// ExitBefore returns how a box ended before the server started, from the error of its recovery.
func ExitBefore(err error) Exit {
	var known driver.EndedError
	if !errors.As(err, &known) {
		known.Exit = driver.Exit{Cause: sandbox.CauseHostRestart, Lost: true, Detail: "its processes did not survive a restart of the server or host"}
	}
	return Exit{Exit: known.Exit}
}

// SandboxCause returns the cause with which the sandbox of the box ends.
func (e Exit) SandboxCause() sandbox.Cause {
	switch {
	case e.Gone:
		return sandbox.Cause{Code: sandbox.CauseExited, Message: "its processes are gone"}
	case e.Cause == sandbox.CauseOOM:
		return sandbox.Cause{Code: sandbox.CauseOOM, Message: detailed("it used more memory than its limit", e.Detail)}
	case e.Cause == sandbox.CauseWorkerLost:
		return sandbox.Cause{Code: sandbox.CauseWorkerLost, Message: sandbox.OneLine(cmp.Or(e.Detail, "its worker was lost"))}
	case e.Cause == sandbox.CauseHostRestart:
		return sandbox.Cause{Code: sandbox.CauseHostRestart, Message: sandbox.OneLine(cmp.Or(e.Detail, "its processes did not survive a restart of the host"))}
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
