package sandbox

import "time"

// Limits of stateful sandboxes.
const (
	IdleMin           = 10 * time.Second    // shortest idle timeout
	PausedMin         = 10 * time.Second    // shortest paused timeout
	TimeoutMax        = 90 * 24 * time.Hour // longest idle, paused or execution timeout
	AutoCheckpointMin = time.Minute         // shortest interval of automatic checkpoints
	AutoCheckpointMax = 24 * time.Hour      // longest interval of automatic checkpoints
	CheckpointsMax    = 32                  // named checkpoints of one sandbox
	CheckpointName    = 128                 // characters in a checkpoint's name
	ForkMax           = 100                 // children of one fork
	DescriptionMax    = 1 << 10             // bytes of a description
	MetadataMax       = 64                  // entries of metadata
	MetadataByteMax   = 16 << 10            // bytes of all keys and values of metadata together
)

// Timeouts end or pause a sandbox beside its TTL, which counts in every state. Zero values mean none. The clocks are independent: idle counts from
// the last activity and only while it runs, paused only while it is paused.
type Timeouts struct {
	// Idle is how long it may run without activity; OnIdle says what happens then.
	Idle time.Duration
	// Paused is how long it may stay paused before it is destroyed.
	Paused time.Duration
	// Execution is the timeout of commands that name none; 0 is the server's default.
	Execution time.Duration
	// OnIdle is [OnIdleDestroy], also when empty, [OnIdlePause] or [OnIdlePauseFiles].
	OnIdle OnIdle
}

// OnIdle says what happens to a sandbox that was idle for too long. The values appear on the wire.
type OnIdle string

// The actions on an idle sandbox.
const (
	OnIdleDestroy OnIdle = "destroy"
	OnIdlePause   OnIdle = "pause"
	// OnIdlePauseFiles pauses it without its memory.
	OnIdlePauseFiles OnIdle = "pause_without_memory"
)

// Pauses reports whether an idle sandbox is paused.
func (o OnIdle) Pauses() bool { return o == OnIdlePause || o == OnIdlePauseFiles }

// MemoryPolicy says what the server does about the memory of a paused sandbox when it is
// resumed. The values appear on the wire.
type MemoryPolicy string

// The policies for memory.
const (
	// MemoryPrefer, also when empty, brings it back; where that cannot be done any
	// more, the sandbox is started anew with its files.
	MemoryPrefer MemoryPolicy = "prefer"
	// MemoryRequire leaves the sandbox paused where it cannot be brought back.
	MemoryRequire MemoryPolicy = "require"
	// MemoryDiscard starts the sandbox anew with its files in any case.
	MemoryDiscard MemoryPolicy = "discard"
)

// Check returns an error unless the policy is one of these. Errors: Invalid, naming the field.
func (p MemoryPolicy) Check() error {
	switch p {
	case "", MemoryPrefer, MemoryRequire, MemoryDiscard:
		return nil
	}
	return InvalidField("memory", "must be prefer, require or discard")
}

// CheckpointID identifies a saved state of a sandbox.
type CheckpointID string

// NewCheckpointID makes an id that was never used before.
func NewCheckpointID() CheckpointID { return CheckpointID(NewID()) }

// Checkpoint is a saved state of one sandbox, memory and files, under a name. It
// can be restored into the same sandbox, and is gone with it.
type Checkpoint struct {
	ID      CheckpointID
	Sandbox ID
	// Name is unique among the checkpoints of its sandbox.
	Name string
	// Parent is the named checkpoint that was made or restored last before this one, and ParentName its
	// name; "" for none. When a parent is deleted, its own parent takes its place.
	Parent     CheckpointID
	ParentName string
	// ImageDigest is the root filesystem that it lies on.
	ImageDigest string
	SizeBytes   int64
	CreatedBy   UserID
	CreatedAt   time.Time
	// CopiedAt is when its copy in the object store was recorded; zero without a copy.
	CopiedAt time.Time
}

// Automatic reports whether the server made the checkpoint by itself. A sandbox has one
// automatic checkpoint at most, and callers do not see it among the others.
func (c *Checkpoint) Automatic() bool { return c.Name == "" }

// CheckCheckpointInterval checks an interval of automatic checkpoints; 0 means none. Errors:
// Invalid, naming the field.
func CheckCheckpointInterval(d time.Duration) error {
	if d != 0 && (d < AutoCheckpointMin || d > AutoCheckpointMax) {
		return InvalidField("checkpoint_interval_seconds", "must be 0, or %d to %d", int(AutoCheckpointMin/time.Second), int(AutoCheckpointMax/time.Second))
	}
	return nil
}

// IdleDeadline returns when the idle timeout of a running sandbox is over if
// nothing uses it before, and false when it has none or does not run.
func (s *Sandbox) IdleDeadline() (time.Time, bool) {
	if s.Timeouts.Idle == 0 || s.State != Running {
		return time.Time{}, false
	}
	return s.LastActivityAt.Add(s.Timeouts.Idle), true
}

// PausedDeadline returns when the paused timeout of a paused sandbox ends it,
// and false when it has none or is not paused.
func (s *Sandbox) PausedDeadline() (time.Time, bool) {
	if s.Timeouts.Paused == 0 || s.State != Paused {
		return time.Time{}, false
	}
	return s.PausedAt.Add(s.Timeouts.Paused), true
}

// SavedParts names the parts of a sandbox that a pause saves.
func SavedParts(filesOnly bool) string {
	if filesOnly {
		return "its files, without its memory,"
	}
	return "its memory and files"
}
