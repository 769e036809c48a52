package wire

import "time"

// FileInfo describes a path in a sandbox, not following a last symlink.
type FileInfo struct {
	Name    string    `json:"name" doc:"Last element of the path."`
	Path    string    `json:"path" doc:"Absolute path."`
	Type    string    `json:"type" enum:"file,directory,symlink,other" doc:"What it is."`
	Size    int64     `json:"size" doc:"Bytes."`
	Mode    string    `json:"mode" doc:"Permission bits in octal, as for chmod." example:"0644"`
	UID     uint32    `json:"uid" doc:"Owner's user id."`
	GID     uint32    `json:"gid" doc:"Owner's group id."`
	ModTime time.Time `json:"mod_time" doc:"When its content last changed."`
	Target  string    `json:"target,omitempty" doc:"Where a symlink points, as written."`
}

// FileList is a directory's content.
type FileList struct {
	Items     []FileInfo `json:"items" nullable:"false" doc:"The entries, sorted by name."`
	Truncated bool       `json:"truncated" doc:"There are more entries than limit."`
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
