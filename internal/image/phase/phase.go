// Package phase has the steps in which images are made and moved, and what clients
// are told of them.
package phase

import (
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// The phases of builds, pulls and pushes.
const (
	Waiting     sandbox.ImagePhase = "waiting"     // another build of the same image runs
	Pulling     sandbox.ImagePhase = "pulling"     // layers, from a registry
	Pushing     sandbox.ImagePhase = "pushing"     // layers, to a registry
	Fetching    sandbox.ImagePhase = "fetching"    // npm packages
	Downloading sandbox.ImagePhase = "downloading" // Debian packages
	Installing  sandbox.ImagePhase = "installing"  // Debian packages
	Setup       sandbox.ImagePhase = "setup"       // the recipe's own script and cleaning up
	Writing     sandbox.ImagePhase = "writing"     // the layer and the root filesystem
	Done        sandbox.ImagePhase = "done"
)

// Event is a moment of a build, pull or push.
type Event = sandbox.ImageEvent

// Serialised returns a function that calls progress for one goroutine at a time.
func Serialised(progress func(Event)) func(Event) {
	var mu sync.Mutex
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		progress(e)
	}
}
