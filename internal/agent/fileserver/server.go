// Package fileserver answers the calls of package agentapi on the files of a sandbox: reading and
// writing them, directories, archives, and watches. A caller on the host cannot be misled by what the
// sandbox changes meanwhile: a path below a directory never leaves it.
package fileserver

import (
	"log/slog"
	"time"

	"github.com/modbox/modbox/internal/agent/rootdir"
	"github.com/modbox/modbox/internal/agentapi"
)

// Options are the settings of a [Server].
type Options struct {
	// Root is the directory of the sandbox's files.
	Root rootdir.Root
	// Config returns the configuration of the agent: the user and the working directory of commands,
	// which are the owner of new files and the base of relative paths.
	Config func() agentapi.Config
	// WatchedDirs replaces [agentapi.MaxWatchedDirs], and QueuedEvents the number of unsent events
	// of a watch, when they are not 0.
	WatchedDirs, QueuedEvents int
	// WatchWait, when it is not 0, replaces how long a new watch waits for another to end when the
	// sandbox has the maximum number of watches.
	WatchWait time.Duration
	// Log receives problems that no caller gets as an error.
	Log *slog.Logger
}

// Server answers the calls. Its exported methods are handlers; an error that one returns is its
// answer, and the error of a broken answer says so. It is safe for concurrent use.
type Server struct {
	opts    Options
	watches chan struct{} // holds a token for each watch
}

// New returns a server.
func New(opts Options) *Server {
	if opts.WatchedDirs == 0 {
		opts.WatchedDirs = agentapi.MaxWatchedDirs
	}
	if opts.WatchWait == 0 {
		opts.WatchWait = watchWait
	}
	if opts.QueuedEvents == 0 {
		opts.QueuedEvents = maxQueuedEvents
	}
	return &Server{opts: opts, watches: make(chan struct{}, maxWatches)}
}
