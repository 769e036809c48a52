package agentapi

import (
	"strings"
	"time"
)

// DetachGrace is how long a process that is not detached keeps running without attached clients.
const DetachGrace = 30 * time.Second

const (
	// MaxInFlight bounds the unread bytes on a connection in each direction. gVisor's port forwarding
	// loses bytes when its send buffer of 1 MiB is full. On a loaded host that buffer can have all bytes
	// in flight, none of them acknowledged, so 64 KiB remain for headers, of frames and of requests.
	MaxInFlight = 1<<20 - 64<<10
	// StreamWindow bounds the unread bytes of a request or answer. On a loaded host a round trip
	// takes milliseconds, and transfers at most this many bytes.
	StreamWindow = MaxInFlight / 2
	// MaxFrame is the largest payload of a frame other than FrameStart.
	MaxFrame = 64 << 10
	// MaxStart is the largest payload of FrameStart.
	MaxStart = 4 << 20
	// ShownArgv bounds the bytes of a command in a [ProcessInfo], which must fit into a frame.
	ShownArgv = 4 << 10
	// ReplayWindow is how many bytes of a process's output can be read again at least. It is more
	// than a reader can lose when its connection breaks: the bytes in transit, and how far the
	// process was ahead of its readers.
	ReplayWindow = StreamWindow + 256<<10
	// MainID is the process id of the image's own command.
	MainID = "main"
	// MaxJSON bounds every JSON answer and JSON frame.
	MaxJSON = 4 << 20
	// MaxListEntries bounds one directory listing.
	MaxListEntries = 10_000
)

// Health is the answer of a working agent.
type Health struct {
	Version    string `json:"version"`
	Configured bool   `json:"configured"`
	// Main is the image's own command; nil when it has none or is not configured yet.
	Main *ProcessInfo `json:"main,omitempty"`
}

// Config has the settings that the agent needs to run commands. Sending it again replaces environment and
// defaults; only the first starts the main process.
type Config struct {
	Hostname string `json:"hostname"`
	// Env is the environment of every later process; the host has merged the image's and the
	// caller's.
	Env map[string]string `json:"env"`
	// WorkingDir and User are the defaults of commands: an absolute path ("" is the user's home or
	// /), and "name", "uid", "name:group" or "uid:gid" ("" is root).
	WorkingDir string `json:"working_dir,omitempty"`
	User       string `json:"user,omitempty"`
	// Main is the image's entrypoint and command; empty for none. It is never restarted; Health
	// reports its end.
	Main []string `json:"main,omitempty"`
	// Network is set when the sandbox has an interface.
	Network *Network `json:"network,omitempty"`
	// Restored is whether the sandbox was just restored: connections made before this one have no
	// peer any more, and are closed.
	Restored bool `json:"restored,omitempty"`
	// Unassigned is whether the box belongs to no sandbox yet. Agents of earlier versions, which workers may have, must know it, or they
	// could not set a host name with a later configuration.
	Unassigned bool `json:"unassigned,omitempty"`
	// Layers is the number of mounted layers from which the agent must first compose the root of a sandbox that
	// was started without an image, see driver.Furnisher. 0 for all other sandboxes.
	Layers int `json:"layers,omitempty"`
}

// Files that the agent writes for a [Network], in addition to the bundles of certificates.
const (
	ResolvConf = "/etc/resolv.conf"
	// OperatorCA is where update-ca-certificates looks for certificates to add.
	OperatorCA = "/usr/local/share/ca-certificates/modbox.crt"
)

// Network has the settings that programs in the sandbox need to use its interface.
type Network struct {
	// Nameserver is the address for /etc/resolv.conf.
	Nameserver string `json:"nameserver"`
	// CA has certificates (PEM) that programs should trust in addition to the image's own; "" for
	// none. Variables that name them are added to Env unless they are set.
	CA string `json:"ca,omitempty"`
}

// Command describes a process to start.
type Command struct {
	// ID names the process, 1 to 64 characters of [A-Za-z0-9_-]; [Client.Exec] generates an ID when
	// it is empty. Starting a process whose ID exists attaches to it from its first output byte
	// instead, so that starting can be repeated safely.
	ID string `json:"id,omitempty"`
	// Argv is the program and its arguments; the program is looked up in the command's PATH.
	Argv []string `json:"argv"`
	// Cwd must exist; "" is the configured default. User as in Config.
	Cwd  string `json:"cwd,omitempty"`
	User string `json:"user,omitempty"`
	// Env is added to the configured environment.
	Env map[string]string `json:"env,omitempty"`
	// Timeout, when not 0, ends the process group: SIGTERM, then SIGKILL after Grace (default 2 s).
	Timeout time.Duration `json:"timeout,omitempty"`
	Grace   time.Duration `json:"grace,omitempty"`
	// Stdin is whether the caller will send stdin frames; otherwise stdin is /dev/null.
	Stdin bool `json:"stdin,omitempty"`
	// StdinReserved is the number of bytes of stdin that stay in the caller's memory until the process ends. It is
	// not sent.
	StdinReserved int64 `json:"-"`
	// TTY, when set, runs the process on a pseudo-terminal of that size; stderr is then part of stdout.
	TTY *Size `json:"tty,omitempty"`
	// Detach keeps the process running when the connection that started it ends. Otherwise the
	// process group is killed when no client has been attached for [DetachGrace].
	Detach bool `json:"detach,omitempty"`
	// Backpressure keeps a detached process from losing output: with no client attached it is blocked like
	// a process that is not detached, and after its end it remains in the table until a client has
	// read its output to the exit.
	Backpressure bool `json:"hold,omitempty"`
	// Limits bound the command and its processes.
	Limits Limits `json:"limits,omitzero"`
}

// Shown returns the command without its environment, and with at most [ShownArgv] bytes of arguments:
// the part that outlives its start.
func (c Command) Shown() Command {
	c.Env = nil
	left := ShownArgv
	var argv []string
	for _, arg := range c.Argv {
		if left <= 0 {
			break
		}
		if len(arg) > left {
			arg = strings.ToValidUTF8(arg[:left], "")
		}
		argv = append(argv, strings.Clone(arg))
		left -= len(arg) + 1
	}
	c.Argv = argv
	return c
}

// Size is a terminal's size in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// ProcessInfo describes a process that the agent started.
type ProcessInfo struct {
	ID  string `json:"id"`
	PID int    `json:"pid"` // inside the sandbox; 0 when it could not start
	// Argv is the command, cut to [ShownArgv] bytes.
	Argv      []string  `json:"argv"`
	StartedAt time.Time `json:"started_at"`
	Exit      *Exit     `json:"exit,omitempty"` // nil while it runs
	// Limited is whether the agent enforces the limits of its command: an old agent ignores them.
	Limited bool `json:"limited,omitempty"`
}

// Started is the first frame of every answer to exec and attach.
type Started struct {
	ProcessInfo
	// Offset is the offset of the first output byte that follows.
	Offset int64 `json:"offset"`
	// Stdin is how many stdin bytes the agent has accepted over all connections.
	Stdin int64 `json:"stdin"`
}

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code; 128+signal when a signal ended it.
	Code int `json:"code"`
	// Signal is the signal's number, 0 when it exited by itself.
	Signal int `json:"signal,omitempty"`
	// TimedOut is whether Command.Timeout ended it.
	TimedOut bool `json:"timed_out,omitempty"`
	// Limit is the limit that the command exceeded and that ended it; "" for none.
	Limit LimitName `json:"limit,omitempty"`
	// Duration is the time from start to end.
	Duration time.Duration `json:"duration"`
	EndedAt  time.Time     `json:"ended_at"`
}

// FrameType is the first byte of a frame.
type FrameType byte

// Frames from the host.
const (
	FrameStart FrameType = 0x01 // Command, first frame of exec
	FrameStdin FrameType = 0x02 // raw bytes
	FrameEOF   FrameType = 0x03 // stdin ends; no payload. From the agent: the server behind a tunnel has closed its side
	// FrameStdinAt is stdin preceded by its offset, eight bytes in network order: bytes that the
	// process has already got are skipped.
	FrameStdinAt FrameType = 0x04
)

// Frames from the agent.
const (
	FrameStarted FrameType = 0x11 // Started, first frame of every answer
	FrameStdout  FrameType = 0x12 // raw bytes; in a tunnel the data of the server
	FrameStderr  FrameType = 0x13 // raw bytes
	FrameExit    FrameType = 0x14 // Exit, last frame, after all output
)

// SignalRequest sends a signal to a process group.
type SignalRequest struct {
	Signal int `json:"signal"`
	// Grace, when not 0, is how long the process and its family may take to end before they are
	// killed.
	Grace time.Duration `json:"grace,omitempty"`
}

// FileType is the type of a file.
type FileType string

// The file types.
const (
	TypeFile    FileType = "file"
	TypeDir     FileType = "directory"
	TypeSymlink FileType = "symlink"
	TypeOther   FileType = "other"
)

// FileInfo describes a path, without following a symlink at its end.
type FileInfo struct {
	Name    string    `json:"name"`
	Path    string    `json:"path"` // absolute
	Type    FileType  `json:"type"`
	Size    int64     `json:"size"`
	Mode    uint32    `json:"mode"` // permission bits with setuid, setgid, sticky as in chmod
	UID     uint32    `json:"uid"`
	GID     uint32    `json:"gid"`
	ModTime time.Time `json:"mod_time"`
	// Target is where a symlink points, as written.
	Target string `json:"target,omitempty"`
	// Metadata is the metadata of a file or a directory: its extended attributes "user.KEY" with text, as many of
	// them, in the order of their names, as the limits allow. Only writes and the calls of [Files.WithMetadata] return it, none beneath a directory.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// FileList has entries of a directory, sorted by name.
type FileList struct {
	Entries []FileInfo `json:"entries"`
	// Truncated is whether the directory has more entries than were requested.
	Truncated bool `json:"truncated,omitempty"`
	// Last is the name after which the list continues when it is truncated.
	Last []byte `json:"last,omitempty"` // need not be UTF-8
}

// WriteOptions are options of writing a file.
type WriteOptions struct {
	// Mode is the permission bits of a new file; 0 means 0644. An existing file keeps its mode unless set.
	Mode uint32
	// User owns a new file and missing parents; "" is the configured default.
	User string
	// Parents makes missing parent directories.
	Parents bool
	// Beneath, when set, is an absolute directory that the path, then relative,
	// must not leave, neither by ".." nor through any symlink.
	Beneath string
	// Exclusive makes the call fail with CodeExists when the path exists.
	Exclusive bool
	// Size is about how many bytes the content has, negative if that is not known. It only helps to choose
	// the way.
	Size int64
	// Metadata is the metadata of the file. A file that is replaced loses its own.
	Metadata map[string]string
}

// The limits of the metadata of a file: the entries, the bytes of a key, and the bytes of all keys and values together.
const (
	MaxMetadata      = 64
	MaxMetadataKey   = 250 // Linux has names of 255 bytes, with "user."
	MaxMetadataBytes = 4096
)

// MkdirRequest describes a directory to create.
type MkdirRequest struct {
	Path    string `json:"path"`
	Mode    uint32 `json:"mode,omitempty"` // 0 means 0755
	Parents bool   `json:"parents,omitempty"`
	User    string `json:"user,omitempty"`
	Beneath string `json:"beneath,omitempty"` // as in WriteOptions
}

// MoveRequest describes a rename; an existing file at To is replaced only with Overwrite.
type MoveRequest struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Overwrite bool   `json:"overwrite,omitempty"`
	Beneath   string `json:"beneath,omitempty"` // for both paths, as in WriteOptions
}

// ErrorCode classifies an agent's error.
type ErrorCode string

// The codes.
const (
	CodeInvalid    ErrorCode = "invalid"
	CodeNotFound   ErrorCode = "not_found"            // a process
	CodeNoFile     ErrorCode = "file_not_found"       // a file or directory
	CodeNoProgram  ErrorCode = "program_not_found"    // the program of a command, or its interpreter
	CodeNoCwd      ErrorCode = "no_working_directory" // the working directory of a command
	CodeExists     ErrorCode = "exists"
	CodeNotDir     ErrorCode = "not_directory"
	CodeIsDir      ErrorCode = "is_directory"
	CodeNotEmpty   ErrorCode = "not_empty"
	CodeDenied     ErrorCode = "denied"
	CodeDiskFull   ErrorCode = "disk_full"
	CodePortClosed ErrorCode = "port_closed"
	CodeTooMany    ErrorCode = "too_many"    // processes, files or connections inside the sandbox
	CodeOutputGone ErrorCode = "output_gone" // attach asked for discarded bytes
	CodeInternal   ErrorCode = "internal"
)

// Error is the agent's answer when it refused a call or failed.
type Error struct {
	Code    ErrorCode `json:"code"`
	Message string    `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// valid reports whether c is one of the codes.
func (c ErrorCode) valid() bool {
	switch c {
	case CodeInvalid, CodeNotFound, CodeNoFile, CodeNoProgram, CodeNoCwd, CodeExists, CodeNotDir, CodeIsDir,
		CodeNotEmpty, CodeDenied, CodeDiskFull, CodePortClosed, CodeTooMany, CodeOutputGone, CodeInternal:
		return true
	default:
		return false
	}
}
