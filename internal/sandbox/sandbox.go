package sandbox

import (
	"slices"
	"time"
)

// Limits that hold for every sandbox. Operators can lower some of them in the
// configuration; nothing raises them.
const (
	NameMax     = 255              // characters in a name (the dialect's task_id)
	TTLMin      = 60 * time.Second // shortest ttl a caller may ask for
	TTLMax      = 24 * time.Hour   // longest ttl a caller may ask for
	LabelsMax   = 64               // labels on one sandbox
	LabelMax    = 256              // bytes in a label key or value
	EnvMax      = 256              // environment variables of one sandbox
	EnvBytesMax = 128 << 10        // bytes of all names and values together
	ImageRefMax = 512              // characters in an image reference
	// PackagesMax bounds each list of packages to install in a sandbox, PackageNameMax
	// the characters of one entry.
	PackagesMax    = 64
	PackageNameMax = 214
	ArgumentMax    = 128<<10 - 1 // bytes of one argument of a command, as in Linux, and of a script
	CommandMax     = 256 << 10   // bytes of all arguments of a command
	UploadMax      = 50 << 20    // bytes of one upload through /modbox/api/files/upload
	MessageMax     = 1 << 10     // bytes kept of a cause or event message
	MemoryMin      = 64 << 20    // bytes of memory
	DiskMin        = 16 << 20    // bytes of disk
	CPUMilliMin    = 50          // thousandths of a core
	CPUMilliMax    = 1000 * 1000 // thousandths of a core
)

// Sandbox is one sandbox as recorded. A value is a snapshot: it does not change
// when the sandbox does.
type Sandbox struct {
	ID        ID
	Workspace WorkspaceID
	// Name is the caller's own identifier (task_id in the Modbox dialect). It is
	// unique among the live sandboxes of a workspace and may be reused after the end.
	Name string
	// HostLabel is the first DNS label of the sandbox's URL, see [HostLabel].
	HostLabel string
	State     State
	// Cause is why it ended; nil while it lives.
	Cause *Cause

	// Image is the reference it was made from, e.g. "modbox/code-exec:latest", and
	// ImageDigest the content it resolved to ("" until resolved).
	Image       string
	ImageDigest string
	// ImageID is the id of the image, or of the requested entry of the catalogue; "" for a sandbox
	// made from a snapshot. Registry is the credential to pull it with; "" is any credential of the
	// workspace for the reference's host.
	ImageID   ImageID
	Registry  RegistryID
	Env       map[string]string
	Labels    map[string]string
	Resources Resources
	// ReadinessPort, when not 0, must answer HTTP GET / with a 2xx before the
	// sandbox counts as running.
	ReadinessPort uint16
	// Network is its way out, and what it publishes.
	Network Network
	// Published are the ports of Network, in the same order, with their URLs' labels.
	Published []PublishedPort
	// URLAccess names the credential for the management routes on its own URL; "" is
	// [URLOpen]. The server and its workspace may demand more.
	URLAccess URLAccess
	// TTL is how long it may live, counted from TTLFrom, or from CreatedAt while TTLFrom is zero;
	// 0 means no limit.
	TTL     time.Duration
	TTLFrom time.Time // when TTL was last changed; zero if never
	// Timeouts are the other clocks that end or pause it.
	Timeouts Timeouts
	// Description and Metadata are the caller's own words about it.
	Description string
	Metadata    map[string]string
	// Parent is the sandbox it was forked from; "" for none.
	Parent ID
	// Snapshot is the snapshot it was made from; "" for an image. ImageDigest is then set from the
	// beginning.
	Snapshot SnapshotID
	// AptPackages are Debian packages, NpmPackages npm packages and PipPackages Python packages that were installed
	// before it was made, as the caller wrote them.
	AptPackages, NpmPackages, PipPackages []string
	// Saved is the state it is restored from, while it is pausing, paused or
	// resuming; "" otherwise.
	Saved CheckpointID
	// SavedBytes is the disk space of the saved state, while it is paused; 0 when unknown.
	SavedBytes int64
	// FilesOnly says that Saved has, or will have, its files without its memory.
	FilesOnly bool
	// PausedAt is when it was paused; zero unless it is paused or resuming.
	PausedAt time.Time
	// ArchivedAt is when Saved was moved to the object store; zero while it is on the server's disk.
	ArchivedAt time.Time
	// MemoryLost is why the last resume started it anew from its files; "" when its
	// memory was brought back, and when there was none.
	MemoryLost string
	// LastActivityAt is when something last used it.
	LastActivityAt time.Time
	// CheckpointInterval is the time between its automatic checkpoints; 0 means none.
	CheckpointInterval time.Duration
	// LastCheckpointAt is the time of its automatic checkpoint; zero without one.
	LastCheckpointAt time.Time

	CreatedBy UserID
	CreatedAt time.Time
	UpdatedAt time.Time
	StartedAt time.Time // zero until it first ran
	EndedAt   time.Time // zero while it lives

	// Handle is the driver's opaque state for finding the sandbox again after a
	// server restart; nil until the driver made it.
	Handle []byte
}

// Deadline returns when the sandbox's ttl ends it, and false when it has none.
func (s *Sandbox) Deadline() (time.Time, bool) {
	if s.TTL == 0 {
		return time.Time{}, false
	}
	if !s.TTLFrom.IsZero() {
		return s.TTLFrom.Add(s.TTL), true
	}
	return s.CreatedAt.Add(s.TTL), true
}

// DefaultPort is where a sandbox's URL leads when it publishes no port and its
// image names no readiness port.
const DefaultPort = 8080

// Port returns the port its URL leads to.
func (s *Sandbox) Port() uint16 {
	switch {
	case len(s.Network.Ports) > 0:
		return s.Network.Ports[0]
	case s.ReadinessPort != 0:
		return s.ReadinessPort
	}
	return DefaultPort
}

// Event is something that happened to a sandbox. Events are appended, never changed.
type Event struct {
	Seq     int64 // grows by time within the installation
	Sandbox ID
	// SandboxName is set by the store when it reads the event.
	SandboxName string
	Time        time.Time
	Type        EventType
	// Message is one sentence for people.
	Message string
	// Data holds the facts for programs; values are short strings.
	Data map[string]string
}

// EventFilter selects events of a sandbox or a workspace; the zero value is the first page of all,
// the oldest first.
type EventFilter struct {
	// Sandbox, when set, selects the events of that sandbox.
	Sandbox ID
	// Types, when set, leaves out events of other types.
	Types []EventType
	// Since and Until, when set, leave out events before Since, and from Until on.
	Since, Until time.Time
	// AfterSeq, when set, leaves out the events up to and with this Seq.
	AfterSeq int64
	// Descending lists the newest first.
	Descending bool
	// Limit is the page size, 1 to 1000; 0 means 100.
	Limit int
	// Cursor is Next of the page before; "" for the first.
	Cursor string
}

// EventType names what happened. The values appear on the wire.
type EventType string

// The event types. One is appended for every state change and for every operation that changes a sandbox.
const (
	EventCreated    EventType = "created"    // accepted and recorded
	EventRunning    EventType = "running"    // ready for use
	EventDestroying EventType = "destroying" // its end was decided
	EventDestroyed  EventType = "destroyed"  // ended as wanted
	EventFailed     EventType = "failed"     // ended by an error
	EventRecovered  EventType = "recovered"  // found again after a server restart
	EventExec       EventType = "exec"       // a command ended

	EventImageBuilding EventType = "image_building" // a phase in the making of its image has begun
	EventTTL           EventType = "ttl"            // its ttl was changed
	EventNetwork       EventType = "network"        // its network was switched, or the ports it publishes

	EventPausing            EventType = "pausing"             // its memory and files are being saved
	EventPaused             EventType = "paused"              // saved; it takes no memory any more
	EventPauseFailed        EventType = "pause_failed"        // it could not be saved and goes on
	EventArchived           EventType = "archived"            // its saved state was moved to the object store
	EventFetched            EventType = "fetched"             // its saved state is on the server's disk again
	EventResuming           EventType = "resuming"            // being brought back
	EventResumed            EventType = "resumed"             // it goes on where it was paused
	EventResumedFromFiles   EventType = "resumed_from_files"  // its memory could not be brought back: it was started anew with its files
	EventResumeFailed       EventType = "resume_failed"       // it could not be brought back and stays paused
	EventCheckpointCreated  EventType = "checkpoint_created"  // a named state of it was saved
	EventCheckpointRestored EventType = "checkpoint_restored" // it went back to a named state
	EventCheckpointDeleted  EventType = "checkpoint_deleted"  // a named state was deleted
	EventRolledBack         EventType = "rolled_back"         // its processes were lost; it goes on from its automatic checkpoint
	EventCheckpointFailed   EventType = "checkpoint_failed"   // an automatic checkpoint could not be made
	EventCheckpointInterval EventType = "checkpoint_interval" // its automatic checkpoints were switched on or off, or their interval changed
	EventForked             EventType = "forked"              // sandboxes were made from it
	EventSnapshotCreated    EventType = "snapshot_created"    // its files were saved as a snapshot
	EventSnapshotTagged     EventType = "snapshot_tagged"     // a snapshot of it got another tag, or lost it
	EventSnapshotDeleted    EventType = "snapshot_deleted"    // a snapshot of it was deleted
)

// EventTypes lists every type of events.
var EventTypes = []EventType{
	EventCreated, EventRunning, EventDestroying, EventDestroyed, EventFailed, EventRecovered, EventExec,
	EventImageBuilding, EventTTL, EventNetwork, EventPausing, EventPaused, EventPauseFailed, EventArchived, EventFetched, EventResuming,
	EventResumed, EventResumedFromFiles, EventResumeFailed, EventCheckpointCreated, EventCheckpointRestored,
	EventCheckpointDeleted, EventRolledBack, EventCheckpointFailed, EventCheckpointInterval, EventForked,
	EventSnapshotCreated, EventSnapshotTagged, EventSnapshotDeleted,
}

// Valid reports whether t is one of the types.
func (t EventType) Valid() bool { return slices.Contains(EventTypes, t) }

// Stats is a moment's use of a sandbox.
type Stats struct {
	Time          time.Time
	MemoryBytes   int64 // in use, without reclaimable page cache where the host can tell
	MemoryLimit   int64
	CPUNanos      int64 // used since start
	CPULimitMilli int64
	DiskBytes     int64 // written to its writable layer, as far as the driver can tell
	DiskLimit     int64
	Processes     int64 // inside the sandbox
	// HostPSSBytes is the proportional memory of all its host processes; 0 when unknown.
	HostPSSBytes int64
	// SentBytes and ReceivedBytes are its traffic with the internet since this server began to serve it.
	SentBytes, ReceivedBytes int64
}

// Use is the use of resources by a running sandbox, as of its last measurement.
type Use struct {
	Sandbox                  ID
	Time                     time.Time
	CPU                      time.Duration // so far
	MemoryBytes              int64         // in use
	SentBytes, ReceivedBytes int64         // so far
}
