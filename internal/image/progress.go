package image

import (
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// Phase is a step of a build or pull.
type Phase = sandbox.ImagePhase

// The phases.
const (
	PhaseWaiting     Phase = "waiting"     // another build of the same image runs
	PhasePulling     Phase = "pulling"     // layers, from a registry
	PhaseFetching    Phase = "fetching"    // npm packages
	PhaseDownloading Phase = "downloading" // Debian packages
	PhaseInstalling  Phase = "installing"  // Debian packages
	PhaseSetup       Phase = "setup"       // the recipe's own script and cleaning up
	PhaseWriting     Phase = "writing"     // the layer and the root filesystem
	PhaseDone        Phase = "done"
)

// Event is a moment of a build or pull.
type Event = sandbox.ImageEvent

// serialised returns a function that calls progress for one goroutine at a time.
func serialised(progress func(Event)) func(Event) {
	var mu sync.Mutex
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		progress(e)
	}
}
