package wire

import "time"

// FileChange is a name that differs between a sandbox and the image or snapshot that it was made from.
type FileChange struct {
	Path      string        `json:"path" doc:"Absolute path."`
	Change    string        `json:"change" enum:"added,changed,removed" doc:"What happened to it. Of a removed directory there is only the directory itself."`
	Type      string        `json:"type" enum:"file,directory,symlink,other" doc:"What it is; of a removed name, what it was."`
	SizeBytes int64         `json:"size_bytes" doc:"Bytes of a file."`
	Mode      string        `json:"mode" doc:"Permission bits in octal, as for chmod." example:"0644"`
	UID       uint32        `json:"uid" doc:"Owner's user id."`
	GID       uint32        `json:"gid" doc:"Owner's group id."`
	ModTime   time.Time     `json:"mod_time" doc:"When its content last changed."`
	Target    string        `json:"target,omitempty" doc:"Where a symlink points, as written."`
	Before    *OriginalFile `json:"before,omitempty" doc:"What a changed name was in the image."`
}

// OriginalFile is a name in the image of a sandbox.
type OriginalFile struct {
	Type      string    `json:"type" enum:"file,directory,symlink,other" doc:"What it was."`
	SizeBytes int64     `json:"size_bytes" doc:"Bytes of a file."`
	Mode      string    `json:"mode" doc:"Permission bits in octal." example:"0644"`
	UID       uint32    `json:"uid" doc:"Owner's user id."`
	GID       uint32    `json:"gid" doc:"Owner's group id."`
	ModTime   time.Time `json:"mod_time" doc:"When its content last changed."`
	Target    string    `json:"target,omitempty" doc:"Where a symlink pointed, as written."`
}
