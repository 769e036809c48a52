package wire

import "time"

// Base64 is bytes that are base64 in JSON.
type Base64 []byte

// FileInfo describes a path in a sandbox, not following a last symlink.
type FileInfo struct {
	Name      string    `json:"name" doc:"Last element of the path."`
	Path      string    `json:"path" doc:"Absolute path."`
	Type      string    `json:"type" enum:"file,directory,symlink,other" doc:"What it is."`
	SizeBytes int64     `json:"size_bytes" doc:"Bytes."`
	Mode      string    `json:"mode" doc:"Permission bits in octal, as for chmod." example:"0644"`
	UID       uint32    `json:"uid" doc:"Owner's user id."`
	GID       uint32    `json:"gid" doc:"Owner's group id."`
	ModTime   time.Time `json:"mod_time" doc:"When its content last changed."`
	Target    string    `json:"target,omitempty" doc:"Where a symlink points, as written."`

	Metadata map[string]string `json:"metadata,omitempty" doc:"Of a file or a directory: its extended attributes user.KEY, by KEY, as far as they are text, 64 of them at most with 4096 bytes."`
}

// Mkdir is the body of POST …/files/mkdir.
type Mkdir struct {
	Path    string `json:"path" minLength:"1" maxLength:"4096" doc:"The directory to make."`
	Mode    string `json:"mode,omitempty" maxLength:"5" doc:"Permission bits in octal; 0755 when omitted." example:"0755"`
	Parents bool   `json:"parents,omitempty" doc:"Make missing parents too, and accept a directory that exists."`
	User    string `json:"user,omitempty" maxLength:"256" doc:"Who owns it; the image's user when omitted."`
}

// Move is the body of POST …/files/move.
type Move struct {
	From      string `json:"from" minLength:"1" maxLength:"4096" doc:"What to move."`
	To        string `json:"to" minLength:"1" maxLength:"4096" doc:"Where to."`
	Overwrite bool   `json:"overwrite,omitempty" doc:"Replace what is at to."`
}

// WriteFiles is the body of POST …/files/batch.
type WriteFiles struct {
	Files []NewFile `json:"files" nullable:"false" maxItems:"1000" doc:"The files, written in this order."`
}

// NewFile is a file to write.
type NewFile struct {
	Path    string `json:"path" minLength:"1" maxLength:"4096" doc:"Its path; missing parent directories are made."`
	Content Base64 `json:"content" doc:"Its content, in base64."`
	Mode    string `json:"mode,omitempty" maxLength:"5" doc:"Permission bits in octal; a new file has 0644 without, an existing one keeps its own." example:"0644"`
}

// WrittenFiles is the answer to WriteFiles.
type WrittenFiles struct {
	Count int `json:"count" doc:"How many files were written: all."`
}

// WatchEnded is the last event of a watch whose directory is gone.
const WatchEnded = "ended"

// FileEvent is one line of a watch.
type FileEvent struct {
	Type      string `json:"type" enum:"ready,created,modified,attributes,removed,moved_from,moved_to,overflow,limit,ended,error,ping" doc:"What happened; ready comes first."`
	Path      string `json:"path,omitempty" doc:"What it happened to: the absolute path."`
	Directory bool   `json:"directory,omitempty" doc:"It is a directory."`
	Code      string `json:"code,omitempty" doc:"error: the error's code."`
	Message   string `json:"message,omitempty" doc:"error: what happened."`
}
