package sandbox

import "strconv"

// Shard is a part of all sandboxes. A sandbox stays in its shard, which is the last byte of its ID: of a new ID that is random.
type Shard uint8

// Shard returns the shard of a sandbox.
func (id ID) Shard() Shard {
	if len(id) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(string(id[len(id)-2:]), 16, 8)
	if err != nil {
		return 0 // no ID of a sandbox
	}
	return Shard(n)
}

// Shards are the shards from First to Last.
type Shards struct{ First, Last Shard }

// AllShards has every sandbox.
var AllShards = Shards{0, 0xff}

// Has reports whether a sandbox is in one of the shards.
func (s Shards) Has(id ID) bool { return s.First <= id.Shard() && id.Shard() <= s.Last }
