package sandbox

import "time"

// Filter selects sandboxes of one workspace.
type Filter struct {
	// States to include; empty means all that have not ended.
	States []State
	// IDPrefix, when set, must begin the ID.
	IDPrefix string
	// Name, when set, must match exactly.
	Name string
	// Labels must all be present with these values.
	Labels map[string]string
	// Snapshot, when set, selects the sandboxes made from it.
	Snapshot SnapshotID
	// Limit is the page size, 1 to 1000; 0 means 100.
	Limit int
	// Cursor is Next of the page before; "" for the first.
	Cursor string
}

// IDEnd returns a string that sorts after the IDs with the filter's prefix and before all greater IDs; "" without
// a prefix.
func (f Filter) IDEnd() string {
	if f.IDPrefix == "" {
		return ""
	}
	return f.IDPrefix + "g" // the digits of an ID come before g
}

// Creation is the record of an accepted sandbox, written as a whole or not at all.
type Creation struct {
	// Sandbox is the row, in state [Provisioning].
	Sandbox Sandbox
	// RequestHash identifies what the caller asked for, so that a repeated request is recognised.
	RequestHash string
	// IdempotencyKey is the caller's; "" for none. It counts for KeyLifetime.
	IdempotencyKey string
	KeyLifetime    time.Duration
	// Replaces, when not nil, ends the live sandbox of its name in the same transaction
	// in which this one gets its place.
	Replaces *Ending
	// StartsLeft is the number of times that another server may begin the start of the sandbox again, if its server ends
	// before it runs; 0 if its row does not have all that the start needs.
	StartsLeft int
	// Event is appended together with the row.
	Event Event
}

// Ending is how the end of a sandbox is recorded.
type Ending struct {
	Cause Cause
	Event Event
}

// Recorded is the answer to a [Creation].
type Recorded struct {
	// Sandbox is the new sandbox, or the existing sandbox.
	Sandbox Sandbox
	// RequestHash is the hash of the request that made Sandbox.
	RequestHash string
	// By says how an existing sandbox was found.
	By Match
	// Dying, unless nil, is the sandbox of the same name that is being destroyed, possibly because
	// Sandbox replaces it.
	Dying *Sandbox
}

// Match says how a [Creation] met an existing sandbox.
type Match string

// The matches.
const (
	MatchNone Match = ""     // none exists; a new one was recorded
	MatchName Match = "name" // a live sandbox of the workspace, not being destroyed, has the name
	MatchKey  Match = "key"  // the idempotency key was used before
)

// Change is a change of the record of a sandbox: the fields that are not nil are replaced, the others stay.
type Change struct {
	Cause          *Cause
	ImageDigest    *string
	Handle         *[]byte
	Saved          *CheckpointID
	SavedBytes     *int64
	FilesOnly      *bool
	StartedAt      *time.Time
	PausedAt       *time.Time
	ArchivedAt     *time.Time
	EndedAt        *time.Time
	LastActivityAt *time.Time
	MemoryLost     *string
	NetworkEnabled *bool
	Published      *[]PublishedPort // and with them the ports of Network
	Rules          *NetworkRules
	TTL            *time.Duration
	TTLFrom        *time.Time
}
