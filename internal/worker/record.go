package worker

import "time"

// Record is the record that a control plane has of a worker.
type Record struct {
	Identity
	// Name is unique among the workers of the control plane.
	Name   string
	Status Status
	// Address is where its last connection came from.
	Address string
	// Version is of its program, MemoryBytes and Cores are of its machine, as it said when it connected last; 0 and "" are unknown.
	Version     string
	MemoryBytes int64
	Cores       int
	// Features are the features of its driver, in the form of package fleet; "" is not known.
	Features string
	// Home is the range of shards that it belongs to: the server of the range has the worker, and no other.
	Home int
	// Use is its use as its server has recorded it last, for other servers.
	Use Use
	// JoinedAt is the time of its first connection. SeenAt is the beginning or end of its last.
	JoinedAt, SeenAt time.Time
}

// Use is the use of a worker.
type Use struct {
	ConnectedAt time.Time // when its connection began; zero while there is none
	// Boxes is the number of its boxes, and PromisedBytes the memory that they may use together.
	Boxes         int
	PromisedBytes int64
}

// Removed returns the record of a worker that was removed. Another worker may have its name.
func (r Record) Removed() Record {
	r.Status, r.Name = Gone, r.ID
	return r
}

// Status is the use of a worker by its control plane.
type Status string

// The statuses of workers.
const (
	Ready    Status = "ready"    // new sandboxes are placed on it
	Draining Status = "draining" // it keeps its sandboxes and gets no others
	Gone     Status = "gone"     // it was removed, and does not come back
	Lost     Status = "lost"     // it was away for too long and its sandboxes were given up; it may come back without them
)
