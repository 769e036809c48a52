package image

import "sync"

// Phase is a step of a build, in the order in which they come.
type Phase string

// The phases.
const (
	PhaseWaiting     Phase = "waiting"     // another build of the same image runs
	PhaseFetching    Phase = "fetching"    // npm packages
	PhaseDownloading Phase = "downloading" // Debian packages
	PhaseInstalling  Phase = "installing"  // Debian packages
	PhaseSetup       Phase = "setup"       // the recipe's own script and cleaning up
	PhaseWriting     Phase = "writing"     // the layer and the root filesystem
	PhaseDone        Phase = "done"
)

// Event is a moment of a build, for people to watch.
type Event struct {
	Phase Phase
	// Done and Total count what Message is about; Total is 0 when unknown, and may
	// grow within a phase.
	Done, Total int64
	// Message is one short line.
	Message string
}

// serialised returns a function that calls progress for one goroutine at a time.
func serialised(progress func(Event)) func(Event) {
	var mu sync.Mutex
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		progress(e)
	}
}
