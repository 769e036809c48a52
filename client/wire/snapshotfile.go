package wire

import "time"

// SnapshotFile is a name in a snapshot.
type SnapshotFile struct {
	Path      string    `json:"path" doc:"Absolute path."`
	Type      string    `json:"type" enum:"file,directory,symlink,other" doc:"What it is."`
	SizeBytes int64     `json:"size_bytes" doc:"Bytes of a file."`
	Mode      string    `json:"mode" doc:"Permission bits in octal, as for chmod." example:"0644"`
	UID       uint32    `json:"uid" doc:"Owner's user id."`
	GID       uint32    `json:"gid" doc:"Owner's group id."`
	ModTime   time.Time `json:"mod_time" doc:"When its content last changed."`
	Target    string    `json:"target,omitempty" doc:"Where a symlink points, as written."`
	SHA256    string    `json:"sha256,omitempty" doc:"Of what a file holds, when asked for; absent for a file of more than 64 MiB."`
}

// SnapshotDownload is an address of files of a snapshot.
type SnapshotDownload struct {
	URL       string    `json:"url" doc:"Address of the download, relative to the server's. It is a secret: it needs no token." example:"/v1/downloads/3q2-7w"`
	ExpiresAt time.Time `json:"expires_at" doc:"Until when a download may begin. It ends earlier when the snapshot is deleted or the server restarted."`
}
