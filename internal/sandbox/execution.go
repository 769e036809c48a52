package sandbox

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of executions and streams.
const (
	ExecutionsRunning = 64        // executions of one sandbox that have not ended
	ExecutionFiles    = 1000      // files written before a command
	ExecutionFilesMax = 32 << 20  // bytes of them together
	CommandRecordMax  = 4 << 10   // bytes of a command that its record keeps
	StreamMax         = 64 << 20  // bytes kept of one output, unless the server says otherwise
	StdinMax          = 256 << 20 // bytes of one input stream
	InputStreamsMax   = 32        // input streams of one user that no command has been given
)

// ExecutionID identifies an execution: a UUID in its canonical text form.
type ExecutionID string

// NewExecutionID returns a new id. Ids sort by the time they were made.
func NewExecutionID() ExecutionID { return ExecutionID(NewID()) }

// StreamID identifies a stream. It is a secret: who has it may read the stream,
// or write to it when it is an input.
type StreamID string

const (
	streamPrefix = "str_"
	streamRandom = 26 // characters after the prefix, 130 random bits
)

// NewStreamID returns a new id that cannot be guessed.
func NewStreamID() StreamID { return StreamID(streamPrefix + strings.ToLower(rand.Text())) }

// NewStreamID returns a new id for a stream of a sandbox. If there are several servers, the id has one character more, which tells the range of the
// shard of the sandbox: a is range 0, b is range 1.
func (o *Ownership) NewStreamID(of ID) StreamID {
	id := NewStreamID()
	if o.Ranges() == AllRanges {
		return id
	}
	return id + StreamID(rune('a'+of.Shard().Range()))
}

// CheckStream returns an error if the id tells that another server has the stream. Errors: Unavailable, with the reason [Elsewhere].
func (o *Ownership) CheckStream(id StreamID) error {
	if len(id) != len(streamPrefix)+streamRandom+1 {
		return nil
	}
	part := int(id[len(id)-1]) - 'a'
	if part < 0 || part >= RangeCount || o.Ranges().HasRange(part) {
		return nil
	}
	err := Wrap(Unavailable, Elsewhere{part}, "another server has the stream; try again")
	err.RetryAfter = elsewhereRetry
	return err
}

// ParseStreamID returns s as an id when it has the form of one: such an id is
// safe as a file name.
func ParseStreamID(s string) (StreamID, bool) {
	random, ok := strings.CutPrefix(s, streamPrefix)
	if !ok || len(random) != streamRandom && len(random) != streamRandom+1 {
		return "", false
	}
	for _, r := range random {
		if (r < 'a' || r > 'z') && (r < '2' || r > '7') {
			return "", false
		}
	}
	return StreamID(s), true
}

// ExecutionKind says how the end of an execution is judged. The values appear on the wire.
type ExecutionKind string

// The kinds.
const (
	// Exec is a command whose exit code is its caller's matter: it is completed with any.
	Exec ExecutionKind = "exec"
	// Job is work in the background: it failed when its exit code is not 0.
	Job ExecutionKind = "job"
	// Main is the image's own command, which starts with the sandbox: it is completed with any exit code.
	Main ExecutionKind = "main"
)

// ExecutionState says where an execution is in its life. The values appear on the wire.
type ExecutionState string

// The states, in the order of a life.
const (
	ExecutionQueued    ExecutionState = "queued"    // recorded; not started yet
	ExecutionRunning   ExecutionState = "running"   // its process runs, or its sandbox is paused
	ExecutionCompleted ExecutionState = "completed" // it exited; a job with 0
	ExecutionFailed    ExecutionState = "failed"    // a job that exited with another code; or how it ended is not known, see Error
	ExecutionTimeout   ExecutionState = "timeout"   // it was ended because its time was up
	ExecutionCancelled ExecutionState = "cancelled" // it was ended because a caller asked for it
)

// Ended reports whether nothing can happen to the execution any more.
func (s ExecutionState) Ended() bool { return s != ExecutionQueued && s != ExecutionRunning }

// Cancel says how far an execution was asked to end.
type Cancel string

// The requests to cancel.
const (
	CancelNone  Cancel = ""
	CancelTerm  Cancel = "term"  // SIGTERM, and SIGKILL after a grace time
	CancelForce Cancel = "force" // SIGKILL at once
)

// Execution is one command in a sandbox as recorded. A value is a snapshot.
type Execution struct {
	ID        ExecutionID
	Sandbox   ID
	Workspace WorkspaceID
	Kind      ExecutionKind
	// Argv is the beginning of the program and its arguments, see [RecordedCommand].
	Argv  []string
	State ExecutionState
	// ExitCode is the exit code of the command, 128+signal when a signal ended it; nil while it is
	// unknown, which may be for ever.
	ExitCode *int
	// LimitExceeded is the limit of its request that it exceeded: memory, cpu, file_size or
	// processes; "" for none.
	LimitExceeded string
	// Error is one sentence about why it failed other than by its exit code.
	Error string
	// TTY says that it runs on a terminal.
	TTY bool
	// OneShot says that its sandbox ends with it.
	OneShot bool
	// Cancel is the strongest request to cancel so far.
	Cancel Cancel

	// Stdin is the stream it reads from; "" for none.
	Stdin StreamID
	// Stdout and Stderr are its outputs. With a terminal, or combined, both are the same stream.
	Stdout, Stderr StreamRef

	CreatedBy UserID
	CreatedAt time.Time
	StartedAt time.Time // zero until it started
	EndedAt   time.Time // zero until it ended
	// Duration is how long it ran, as measured in the sandbox; 0 when that is not known.
	Duration time.Duration
	// StoredBy is the installation that has stored its output in the object store; "" for none, and [NothingStored].
	StoredBy string
}

// NothingStored stands for the installation of an ended execution without output that could be stored.
const NothingStored = "-"

// StoredStream is an output of an ended execution in the object store.
type StoredStream struct {
	ID        StreamID
	Workspace WorkspaceID
	By        string // the installation that has stored it
	Bytes     int64
	Truncated bool
}

// RecordedCommand returns the part of a command that its record keeps: the arguments up to
// [CommandRecordMax] bytes, counting one more for each. It cuts the argument that does not fit between
// characters, adds "…", and drops the arguments after it. A command may have 256 KiB, and a list
// hundreds of records.
func RecordedCommand(argv []string) []string {
	free := CommandRecordMax
	for i, arg := range argv {
		if free -= len(arg) + 1; free < 0 {
			kept := arg[:max(len(arg)+free, 0)]
			for len(kept) > 0 && !utf8.RuneStart(arg[len(kept)]) {
				kept = kept[:len(kept)-1]
			}
			return append(slices.Clone(argv[:i]), kept+"…")
		}
	}
	return slices.Clone(argv)
}

// StreamRef is an output of an execution.
type StreamRef struct {
	ID StreamID
	// Off says that the caller did not want it: it holds nothing.
	Off bool
	// Bytes is the number of stored bytes; Truncated reports that further bytes were dropped.
	Bytes     int64
	Truncated bool
}

// TimedOut reports whether its time was up.
func (e *Execution) TimedOut() bool { return e.State == ExecutionTimeout }

// StreamInfo describes a stream at a moment.
type StreamInfo struct {
	ID StreamID
	// Bytes is the number of stored bytes; Truncated reports that further bytes were dropped.
	Bytes     int64
	Truncated bool
	// Ended says that nothing will be added.
	Ended bool
}
