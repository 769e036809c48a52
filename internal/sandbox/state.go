package sandbox

import "fmt"

// State says where a sandbox is in its life. The values appear on the wire.
type State string

// The states, in the order of a life.
const (
	// Provisioning: accepted and recorded; its image, process or agent is not ready yet.
	Provisioning State = "provisioning"
	// Running: its agent answers and its readiness probe, if it has one, passed.
	Running State = "running"
	// Pausing: its memory and files are being saved; it stands still.
	Pausing State = "pausing"
	// Paused: it takes no memory and no processes; its memory and files are on disk.
	Paused State = "paused"
	// Resuming: it is being restored from its checkpoint.
	Resuming State = "resuming"
	// Destroying: its end is decided and recorded; resources are being freed.
	Destroying State = "destroying"
	// Destroyed: ended as requested (by call, ttl or idle); it uses nothing on the host.
	Destroyed State = "destroyed"
	// Failed: ended by an error; it uses nothing on the host. The cause has the reason.
	Failed State = "failed"
)

// States lists every state in the order of a life.
var States = []State{Provisioning, Running, Pausing, Paused, Resuming, Destroying, Destroyed, Failed}

// Valid reports whether s is one of States.
func (s State) Valid() bool {
	for _, t := range States {
		if s == t {
			return true
		}
	}
	return false
}

// Ended reports whether nothing can happen to the sandbox any more.
func (s State) Ended() bool { return s == Destroyed || s == Failed }

// transitions is the table of legal moves. A move that is not here is a bug or
// a lost race, and [CheckTransition] refuses it.
var transitions = map[State][]State{
	Provisioning: {Running, Destroying},
	Running:      {Pausing, Destroying},
	Pausing:      {Paused, Resuming, Running, Destroying}, // Resuming: it goes back to a checkpoint; Running: it could not be saved and goes on
	Paused:       {Resuming, Destroying},
	Resuming:     {Running, Paused, Destroying}, // Paused: it could not be brought back and nothing is lost
	Destroying:   {Destroyed, Failed},
	Destroyed:    {},
	Failed:       {},
}

// CheckTransition returns an error with code [Conflict] unless a sandbox may go
// from one state to the other.
func CheckTransition(from, to State) error {
	for _, t := range transitions[from] {
		if t == to {
			return nil
		}
	}
	return Errorf(Conflict, "a sandbox cannot go from %s to %s", from, to)
}

// CauseCode says why a sandbox ended. The values appear on the wire.
type CauseCode string

// The causes.
const (
	CauseDestroyed   CauseCode = "destroyed"    // a caller asked for it
	CauseReplaced    CauseCode = "replaced"     // a new sandbox took its name (replace: true)
	CauseTTL         CauseCode = "ttl"          // its deadline passed
	CauseIdle        CauseCode = "idle"         // nobody used it for its idle timeout, and on_timeout says destroy
	CausePausedTTL   CauseCode = "paused_ttl"   // it was paused for longer than its paused timeout
	CauseCompleted   CauseCode = "completed"    // a one-shot sandbox whose command has ended
	CauseImage       CauseCode = "image"        // its root filesystem could not be had
	CauseStart       CauseCode = "start"        // the driver could not start it
	CauseNotReady    CauseCode = "not_ready"    // its readiness probe did not pass in time
	CauseOOM         CauseCode = "oom"          // it used more memory than its limit as a whole
	CauseExited      CauseCode = "exited"       // it ended by itself, e.g. PID 1 was killed from inside
	CauseDiskFull    CauseCode = "disk_full"    // the server's disk was nearly full, and it was chosen to free space or could not write on
	CauseHostRestart CauseCode = "host_restart" // its process did not survive a restart of the host or server
	CauseWorkerLost  CauseCode = "worker_lost"  // the worker that ran it is lost or was removed: its machine, node or Pod
	CauseInternal    CauseCode = "internal"     // a fault of ours; the server log has the detail
)

// Causes lists every cause code.
var Causes = []CauseCode{
	CauseDestroyed, CauseReplaced, CauseTTL, CauseIdle, CausePausedTTL, CauseCompleted, CauseImage, CauseStart, CauseNotReady,
	CauseOOM, CauseExited, CauseDiskFull, CauseHostRestart, CauseWorkerLost, CauseInternal,
}

// Final returns the state in which a sandbox with this cause ends: [Destroyed]
// when somebody or its deadline wanted the end, [Failed] otherwise.
func (c CauseCode) Final() State {
	switch c {
	case CauseDestroyed, CauseReplaced, CauseTTL, CauseIdle, CausePausedTTL, CauseCompleted:
		return Destroyed
	default:
		return Failed
	}
}

// TimeLimit reports whether the cause is a time limit of the sandbox that has passed.
func (c CauseCode) TimeLimit() bool { return c == CauseTTL || c == CauseIdle || c == CausePausedTTL }

// Cause is why a sandbox ended, kept after the end.
type Cause struct {
	Code CauseCode
	// Message is one sentence for people, safe to show to the owner.
	Message string
}

func (c Cause) String() string { return fmt.Sprintf("%s: %s", c.Code, c.Message) }
