package sandbox

import (
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Limits of snapshots.
const (
	SnapshotNameMax = 128 // characters in a snapshot's name
	SnapshotTagMax  = 128 // characters in a tag
	LineageMax      = 1000
)

// DefaultTag is the tag of a snapshot that asks for none; it moves to the newest.
const DefaultTag = "latest"

// SnapshotID identifies a snapshot: a UUID in its canonical text form.
type SnapshotID string

// NewSnapshotID makes an id that was never used before. IDs sort by the time they were made.
func NewSnapshotID() SnapshotID { return SnapshotID(uuid.Must(uuid.NewV7()).String()) }

// Snapshot is the saved filesystem of a sandbox, or of a declarative build, from
// which sandboxes are made. It outlives the sandbox it was taken of.
type Snapshot struct {
	ID        SnapshotID
	Workspace WorkspaceID
	// WorkspaceSlug is the first part of a full name.
	WorkspaceSlug string
	// Name groups snapshots; of one name the tags tell them apart. Tag is held by at
	// most one snapshot of a name; "" once another took it.
	Name string
	Tag  string
	// Description and Metadata are the caller's own words about it, Message those
	// about this version.
	Description string
	Message     string
	Metadata    map[string]string
	// Parent is the previous snapshot: the last snapshot of the same sandbox, or else the snapshot
	// that the sandbox was made from; for a build the snapshot that had its name and tag. "" for none.
	Parent SnapshotID
	// Sandbox is the source of the snapshot; "" for a build.
	Sandbox ID
	// Image is the reference of the image at the bottom, BaseDigest the root
	// filesystem it was laid on, Digest the root filesystem that came out.
	Image      string
	BaseDigest string
	Digest     string
	// SizeBytes is the disk space that the root filesystem takes in addition to its base, FileCount the
	// number of names in it, LayerBytes the compressed size of the changes to the base.
	SizeBytes  int64
	LayerBytes int64
	FileCount  int64
	// Public: every workspace may read it and make sandboxes from it.
	Public bool
	// Env are variables that sandboxes made from it get by default; their values are secrets.
	Env map[string]string
	// ContentHash identifies what a build was made of; "" for others.
	ContentHash string
	CreatedBy   UserID
	CreatedAt   time.Time
	// DeletedAt is zero while it can be used. A deleted one stays in lineages.
	DeletedAt time.Time
}

// FullName returns @slug/name:tag, without the tag when it has none.
func (s *Snapshot) FullName() string {
	full := "@" + s.WorkspaceSlug + "/" + s.Name
	if s.Tag != "" {
		full += ":" + s.Tag
	}
	return full
}

// RootFS is the file of a root filesystem.
type RootFS struct {
	Digest    string
	SizeBytes int64
}

// SnapshotResult describes the root filesystem of a snapshot that was made.
type SnapshotResult struct {
	BaseDigest, Digest               string
	SizeBytes, LayerBytes, FileCount int64
	// Below are the root filesystems below it that count for its workspace with it, each once for all of its snapshots.
	Below     []RootFS
	CreatedAt time.Time
}

// SnapshotSort names an order of snapshots. The values appear on the wire.
type SnapshotSort string

// The orders of a list.
const (
	SortCreated SnapshotSort = "created"
	SortName    SnapshotSort = "name"
	SortSize    SnapshotSort = "size"
	SortFiles   SnapshotSort = "files"
)

// SnapshotFilter selects snapshots that can be used. The zero value is the first
// page of all, newest first.
type SnapshotFilter struct {
	// Sandbox, Name and Tag, when set, must match.
	Sandbox ID
	Name    string
	Tag     string
	// Sort is [SortCreated] when empty. Ascending turns the order round.
	Sort      SnapshotSort
	Ascending bool
	// Limit is the page size, 1 to 1000; 0 means 100.
	Limit int
	// Cursor is Next of the page before; "" for the first.
	Cursor string
	// Offset passes over the first snapshots, for interfaces that page by numbers.
	Offset int
	// Count asks for Total.
	Count bool
}

// SnapshotPage is a part of a list.
type SnapshotPage struct {
	Snapshots []Snapshot
	// Next continues the list; "" when this was the last page.
	Next string
	// Total is how many the filter selects on all pages; 0 unless it was asked for.
	Total int
}

var (
	snapshotName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`) })
	snapshotTag  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`) })
	slugPattern  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`) })
)

// CheckSnapshotName accepts 1 to 128 letters, digits, "_" and "-". Errors: Invalid, naming name.
func CheckSnapshotName(name string) error {
	if !snapshotName().MatchString(name) {
		return InvalidField("name", "must be 1 to %d letters, digits, underscores and dashes", SnapshotNameMax)
	}
	return nil
}

// CheckSnapshotTag accepts 1 to 128 letters, digits, ".", "_" and "-" that begin
// with a letter or digit. Errors: Invalid, naming tag.
func CheckSnapshotTag(tag string) error {
	if !snapshotTag().MatchString(tag) {
		return InvalidField("tag", "must be 1 to %d letters, digits, dots, underscores and dashes, and begin with a letter or digit", SnapshotTagMax)
	}
	return nil
}

// SnapshotRef is a parsed reference to a snapshot.
type SnapshotRef struct {
	ID   SnapshotID // "" unless it can be an id; Name is set then, too
	Slug string     // of the workspace; "" is the caller's own
	Name string
	Tag  string
}

// ParseSnapshotRef reads an id, name, name:tag, @slug/name or @slug/name:tag. A
// name alone means its latest. ok is false for any other text.
func ParseSnapshotRef(s string) (ref SnapshotRef, ok bool) {
	if id, isID := ParseID(s); isID {
		ref.ID = SnapshotID(id)
	}
	if rest, global := strings.CutPrefix(s, "@"); global {
		if ref.Slug, s, ok = strings.Cut(rest, "/"); !ok || !slugPattern().MatchString(ref.Slug) {
			return SnapshotRef{}, false
		}
	}
	tagged := false
	if ref.Name, ref.Tag, tagged = strings.Cut(s, ":"); !tagged {
		ref.Tag = DefaultTag
	}
	if CheckSnapshotName(ref.Name) != nil || CheckSnapshotTag(ref.Tag) != nil {
		return SnapshotRef{}, false
	}
	return ref, true
}
