// Package phase has the phases of making and moving images, and the events that clients receive.
package phase

import "sync"

// Phase is a step of making or moving an image, in the order of the constants.
type Phase string

// The phases of builds, pulls and pushes.
const (
	Waiting     Phase = "waiting"     // another build of the same image runs
	Pulling     Phase = "pulling"     // layers, from a registry
	Pushing     Phase = "pushing"     // layers, to a registry
	Fetching    Phase = "fetching"    // npm packages
	Downloading Phase = "downloading" // Debian packages
	Installing  Phase = "installing"  // Debian packages
	Setup       Phase = "setup"       // the recipe's own script and cleaning up
	Writing     Phase = "writing"     // the layer and the root filesystem
	Done        Phase = "done"
)

// Event reports the progress of a build, pull or push to people.
type Event struct {
	Phase Phase
	// Done and Total count the subject of Message; Total is 0 when unknown, and may grow within
	// a phase.
	Done, Total int64
	// Message is a short line.
	Message string
}

// Serialised returns a function that calls progress from one goroutine at a time.
func Serialised(progress func(Event)) func(Event) {
	var mu sync.Mutex
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		progress(e)
	}
}
