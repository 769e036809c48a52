package execution

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/stream"
)

// Stored has the output of ended executions in an object store. Its methods are safe for concurrent use.
type Stored interface {
	// Run stores the output of executions that have ended, until ctx ends.
	Run(ctx context.Context)
	// Wake says that an execution has ended.
	Wake()
	// Fetch brings a stored stream to the disk. Errors: NotFound when there is no such stream; Unavailable; Unsupported; DiskFull.
	Fetch(ctx context.Context, id sandbox.StreamID) error
	// Sizes returns the bytes of the stored streams.
	Sizes(ctx context.Context) (map[sandbox.StreamID]int64, error)
	// Collectors returns the metrics.
	Collectors() []prometheus.Collector
	// Remove removes the stored output of an execution, whose record was deleted. It does not wait for that.
	Remove(e *sandbox.Execution)
}

// nothingStored is [Stored] without an object store.
type nothingStored struct{}

func (nothingStored) Run(context.Context)                                       {}
func (nothingStored) Wake()                                                     {}
func (nothingStored) Fetch(context.Context, sandbox.StreamID) error             { return errNoStream }
func (nothingStored) Sizes(context.Context) (map[sandbox.StreamID]int64, error) { return nil, nil }
func (nothingStored) Remove(*sandbox.Execution)                                 {}

func (nothingStored) Collectors() []prometheus.Collector { return nil }

var errNoStream = sandbox.Errorf(sandbox.NotFound, "there is no such stream")

// sizes returns the bytes of all streams, of streams that are in the object store alone as well.
func sizes(ctx context.Context, streams *stream.Store, stored Stored) (map[sandbox.StreamID]int64, error) {
	all, err := streams.Sizes()
	if err != nil {
		return nil, err
	}
	kept, err := stored.Sizes(ctx)
	for id, n := range kept {
		all[id] = max(all[id], n)
	}
	return all, err
}
