package wire

import "time"

// Worker is a machine on which sandboxes of the server run.
type Worker struct {
	ID                     string     `json:"id" doc:"Its id."`
	Name                   string     `json:"name" doc:"Its name, which no other worker has."`
	State                  string     `json:"state" enum:"connected,away,lost" doc:"connected: the server has a connection to it. away: its sandboxes are unavailable until it is back. lost: it was away for longer than worker.lost_after, and its sandboxes were given up; it joins again when it is back."`
	Draining               bool       `json:"draining" doc:"It gets no new sandboxes."`
	Sandboxes              int        `json:"sandboxes" doc:"Sandboxes on it that run or are being started, boxes of builds, and boxes of the pool."`
	MemoryBytes            int64      `json:"memory_bytes" doc:"Memory of the machine; 0 if it is not known."`
	MemoryPromisedBytes    int64      `json:"memory_promised_bytes" doc:"Sum of the memory limits of its sandboxes."`
	MemoryPromisedMaxBytes int64      `json:"memory_promised_max_bytes" doc:"How much memory may be promised; 0 for no limit."`
	Cores                  int        `json:"cores" doc:"Processor cores of the machine; 0 if they are not known."`
	ShardRanges            string     `json:"shard_ranges,omitempty" doc:"With several active servers, the ranges of the sandboxes of its server, as digits of their ids; its sandboxes are resumed on workers with the same ranges. Absent if a single server is active."`
	Version                string     `json:"version" doc:"Version of its program."`
	Address                string     `json:"address" doc:"Where its last connection came from."`
	ConnectedAt            *time.Time `json:"connected_at,omitempty" doc:"When the connection began; absent while it is away."`
	SeenAt                 time.Time  `json:"seen_at" doc:"When the server had a connection to it last: now if it has one."`
	CreatedAt              time.Time  `json:"created_at" doc:"When it joined."`
}

// UpdateWorker changes a worker; omitted fields stay.
type UpdateWorker struct {
	Draining *bool `json:"draining,omitempty" doc:"Whether it gets no new sandboxes. Its sandboxes stay; paused sandboxes are resumed on other workers."`
}
