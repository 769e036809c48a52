package index

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// Index lists the images of a store. Only the caller of [Table.Lock] changes an index.
type Index struct {
	Images []Record // in the order of their builds

	base    []Record // the records before the changes of the caller of [Table.Lock]
	rewrite bool     // the directory does not have the records yet

	sizes func() map[string]int64 // sizesOf, computed once; nil for an index that the caller changes
}

// Record is an image.
type Record struct {
	// Position orders the records. [Table.Write] sets it.
	Position int64 `json:"position,omitempty"`

	Name string `json:"name"`
	Tag  string `json:"tag"`
	// Current: the reference means this digest. Other records stay for the sandboxes made from
	// them, until they are pruned.
	Current       bool          `json:"current"`
	Digest        string        `json:"digest"` // of the EROFS
	SizeBytes     int64         `json:"size_bytes"`
	FileCount     int64         `json:"file_count,omitempty"`
	FileTime      time.Time     `json:"file_time,omitzero"` // of the file of the root filesystem
	Mark          []byte        `json:"mark,omitempty"`     // see rootfs
	Below         []string      `json:"below,omitempty"`    // of a layer: the digests below it, see package stack
	Manifest      archive.Ref   `json:"manifest"`           // of the OCI image
	RecipeHash    string        `json:"recipe_hash"`
	Description   string        `json:"description"`
	Config        spec.Config   `json:"config"`
	MemoryBytes   int64         `json:"memory_bytes"`
	ReadinessPort uint16        `json:"readiness_port"`
	TTL           time.Duration `json:"ttl_ns"`
	Pull          *Pull         `json:"pull,omitempty"`   // of a pulled image
	Commit        *Commit       `json:"commit,omitempty"` // of a committed image
	CacheKey      string        `json:"cache_key,omitempty"`
	// Owner is the only workspace that may use the image; "" for all workspaces. Names are unique
	// for each owner.
	Owner sandbox.WorkspaceID `json:"owner,omitempty"`
	// Users are the workspaces that have used an image for all workspaces with a CacheKey, and the
	// approximate time. The image counts as build cache of each of them. Of a snapshot's layer, they are
	// the workspaces whose snapshots have it; the database counts it.
	Users map[sandbox.WorkspaceID]time.Time `json:"users,omitempty"`
	// LostAt is the time at which a prune found that no database knows the image.
	LostAt    time.Time        `json:"lost_at,omitzero"`
	CreatedAt time.Time        `json:"created_at"` // the first build of the reference
	UpdatedAt time.Time        `json:"updated_at"` // this build
	Packages  []recipe.Package `json:"packages"`
}

// Pull is the origin of a pulled image.
type Pull struct {
	Reference string    `json:"reference"` // registry/repository:tag or registry/repository@digest
	Asked     v1.Hash   `json:"asked"`     // the digest that the reference named then: of an index or a manifest
	CheckedAt time.Time `json:"checked_at"`
	// Private: every pull of the image needed a login. Proofs are the logins, by workspace and
	// credential, and the time of their last pull.
	Private bool                 `json:"private,omitempty"`
	Proofs  map[string]time.Time `json:"proofs,omitempty"`
}

// Commit names the base and the layer of a commit.
type Commit struct {
	Base       string      `json:"base"`    // digest of a root filesystem, or ""
	DiffID     v1.Hash     `json:"diff_id"` // of the layer
	Layer      archive.Ref `json:"layer"`
	ConfigHash string      `json:"config_hash"`
}

// Ref returns name:tag. A pull by digest has no tag; a commit may have no name.
func (r *Record) Ref() string {
	if r.Tag == "" && r.Pull != nil {
		return r.Pull.Reference
	}
	return r.Name + ":" + r.Tag
}

// ModTime returns the time of the file of the root filesystem.
func (r *Record) ModTime() time.Time {
	if r.FileTime.IsZero() {
		return r.UpdatedAt
	}
	return r.FileTime
}

// File identifies the file of the root filesystem: a finished image and its last layer are two root
// filesystems, whose digests differ, with one file.
func (r *Record) File() string {
	return fmt.Sprintf("file of %d bytes at %d", r.SizeBytes, r.ModTime().UnixNano())
}

// Image returns the catalogue entry, whose size is without what lies below.
func (r *Record) Image() spec.Image {
	id := r.Ref()
	if r.Name == "" {
		id = r.Digest
	}
	if r.Owner != "" {
		id = string(r.Owner) + "/" + id
	}
	return spec.Image{
		ID: reference.ImageID(id), Name: r.Name, Tag: r.Tag, Digest: r.Digest, Description: r.Description,
		SizeBytes: r.SizeBytes, OwnBytes: r.SizeBytes, Config: r.Config, MemoryBytes: r.MemoryBytes,
		ReadinessPort: r.ReadinessPort, TTL: r.TTL, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
		Readers: r.Readers(),
	}
}

// Has reports whether a digest names the record: the digest of its root filesystem, of its OCI
// manifest, or of the index that named the manifest.
func (r *Record) Has(digest string) bool {
	return r.Digest == digest || r.Manifest.Digest.String() == digest || r.Pull != nil && r.Pull.Asked.String() == digest
}

// Same reports whether two records are the same entry.
func (r *Record) Same(other *Record) bool {
	return r.Digest == other.Digest && r.Ref() == other.Ref() && r.Owner == other.Owner && r.CacheKey == other.CacheKey && r.Manifest == other.Manifest
}

// Key identifies a record: two records are the same entry if they have the same key. It is the name
// of its file and the key of its row.
func (r *Record) Key() string {
	h := sha256.New()
	for _, part := range []string{r.Ref(), string(r.Owner), r.CacheKey, r.Digest, r.Manifest.Digest.String(), strconv.FormatInt(r.Manifest.Size, 10), string(r.Manifest.MediaType)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:keyBytes])
}

// keyBytes is the length of a key before its encoding.
const keyBytes = 20

// clone returns a copy whose changes do not change the record.
func (r Record) clone() Record {
	if r.Pull != nil {
		pull := *r.Pull
		pull.Proofs = maps.Clone(pull.Proofs)
		r.Pull = &pull
	}
	r.Users = maps.Clone(r.Users)
	return r
}

// clone returns an index for a caller who changes it.
func (ix *Index) clone() *Index {
	own := &Index{Images: make([]Record, len(ix.Images)), base: ix.Images, rewrite: ix.rewrite}
	for i, r := range ix.Images {
		own.Images[i] = r.clone()
	}
	return own
}

// Keep returns the index with the records that keep accepts; [Table.Write] removes the others.
func (ix *Index) Keep(keep func(*Record) bool) *Index {
	kept := &Index{base: ix.base, rewrite: ix.rewrite}
	for i := range ix.Images {
		if keep(&ix.Images[i]) {
			kept.Images = append(kept.Images, ix.Images[i])
		}
	}
	return kept
}

// Title names the record in messages.
func (r *Record) Title() string {
	switch {
	case r.Name != "":
		return "image " + r.Ref()
	case r.Single():
		return "snapshot " + r.Digest
	}
	return "image " + r.Digest
}

// Remedy says in messages how to get the root filesystem again.
func (r *Record) Remedy() string {
	switch {
	case r.Name != "":
		return "build it again with: modbox images build " + r.Name
	case r.IsChain():
		return "pull the image over it again"
	}
	return "a backup may have it"
}

// Single reports whether the image cannot be made again: a commit made it from the files of a
// sandbox, and it is in no cache.
func (r *Record) Single() bool { return r.Name == "" && r.Commit != nil && r.CacheKey == "" }

// Use records that a workspace used the image at a time.
func (r *Record) Use(ws sandbox.WorkspaceID, at time.Time) {
	if ws == "" || !at.After(r.Users[ws]) {
		return
	}
	if r.Users == nil {
		r.Users = map[sandbox.WorkspaceID]time.Time{}
	}
	r.Users[ws] = at
}

// CountsFor reports whether the image counts for a workspace.
func (r *Record) CountsFor(ws sandbox.WorkspaceID) bool {
	return r.IsOf(ws) && (r.Owner == ws || !r.Single())
}

// IsOf reports whether a workspace owns or uses the image, or has a snapshot of it.
func (r *Record) IsOf(ws sandbox.WorkspaceID) bool {
	_, uses := r.Users[ws]
	return ws != "" && (r.Owner == ws || uses)
}

// Payers are the workspaces for which the image counts.
func (r *Record) Payers() []sandbox.WorkspaceID {
	if r.Owner != "" {
		return []sandbox.WorkspaceID{r.Owner}
	}
	if r.Single() {
		return nil
	}
	return slices.Collect(maps.Keys(r.Users))
}

// Payer is the workspace for which a new image counts; "" for none.
func (r *Record) Payer() sandbox.WorkspaceID {
	for _, ws := range r.Payers() {
		return ws
	}
	return ""
}

// Readers returns the workspaces that may know of an image: its owner, or the workspaces that pulled
// a private image. It is nil for an image for all workspaces.
func (r *Record) Readers() []sandbox.WorkspaceID {
	if r.Owner != "" {
		return []sandbox.WorkspaceID{r.Owner}
	}
	if r.Pull == nil || !r.Pull.Private {
		return nil
	}
	list := []sandbox.WorkspaceID{}
	for proof := range r.Pull.Proofs {
		ws, _, _ := strings.Cut(proof, "/")
		list = append(list, sandbox.WorkspaceID(ws))
	}
	return list
}

// Prove records that a caller has just pulled the image. A pull without a login makes it public.
func (p *Pull) Prove(proof string) {
	if proof == "" {
		p.Private, p.Proofs = false, nil
		return
	}
	if !p.Private {
		return
	}
	credential, _, _ := strings.Cut(proof, "@")
	for old := range p.Proofs {
		if strings.HasPrefix(old, credential+"@") {
			delete(p.Proofs, old) // with an earlier password
		}
	}
	if p.Proofs == nil {
		p.Proofs = map[string]time.Time{}
	}
	p.Proofs[proof] = time.Now().UTC()
}

// Forget removes the pulls of a workspace.
func (p *Pull) Forget(ws sandbox.WorkspaceID) {
	maps.DeleteFunc(p.Proofs, func(proof string, _ time.Time) bool { return strings.HasPrefix(proof, string(ws)+"/") })
}

// Current returns the record that a reference means for all workspaces, or nil.
func (ix *Index) Current(ref string) *Record { return ix.Owned("", ref) }

// Owned returns the record that a reference means for an owner alone, or nil.
func (ix *Index) Owned(owner sandbox.WorkspaceID, ref string) *Record {
	for i := range ix.Images {
		if r := &ix.Images[i]; r.Current && r.Owner == owner && r.Ref() == ref {
			return r
		}
	}
	return nil
}

// ByDigest returns the newest record of a digest, preferably with one of the names, or nil. Records
// for all workspaces come first, and among them images of the operator, such as built-in images: a
// pulled image may have the same files and another configuration.
func (ix *Index) ByDigest(digest string, names ...string) *Record {
	var pulled, own *Record
	for i := len(ix.Images) - 1; i >= 0; i-- {
		r := &ix.Images[i]
		if !r.Has(digest) || len(names) > 0 && !slices.Contains(names, r.Name) {
			continue
		}
		switch {
		case r.Owner == "" && r.Pull == nil && r.Name != "":
			return r
		case r.Owner == "" && pulled == nil:
			pulled = r
		case r.Owner != "" && own == nil:
			own = r
		}
	}
	return cmp.Or(pulled, own)
}

// Entry returns the record from which an image was made, or nil. The digest is not enough: images
// with the same files may have different configurations.
func (ix *Index) Entry(of spec.Image) *Record {
	for i := range ix.Images {
		r := &ix.Images[i]
		if r.Digest == of.Digest && r.UpdatedAt.Equal(of.UpdatedAt) && r.Image().ID == of.ID { // an ID takes longest
			return r
		}
	}
	return nil
}

// ByCacheKey returns the newest record with a key, or nil.
func (ix *Index) ByCacheKey(key string) *Record {
	for i := len(ix.Images) - 1; i >= 0; i-- {
		if r := &ix.Images[i]; key != "" && r.CacheKey == key {
			return r
		}
	}
	return nil
}

// Pulled returns the current record of a reference to a registry, or nil.
func (ix *Index) Pulled(ref ociname.Reference) *Record {
	for i := range ix.Images {
		if r := &ix.Images[i]; r.Current && r.Pull != nil && r.Pull.Reference == reference.RepositoryName(ref)+reference.Identifier(ref) {
			return r
		}
	}
	return nil
}

// IsOwn reports whether a digest names an image of a workspace.
func (ix *Index) IsOwn(digest string, ws sandbox.WorkspaceID) bool {
	return slices.ContainsFunc(ix.Images, func(r Record) bool { return r.Owner != "" && r.Owner == ws && r.Has(digest) })
}

// PrivateOrigin returns the private image that a digest names, or from which the server itself made
// the image that the digest names; nil for none. The operator has published an image that has
// another name.
func (ix *Index) PrivateOrigin(digest string, names []string) *Record {
	for range ix.Images { // no chain is longer
		for i := range ix.Images {
			r := &ix.Images[i]
			if r.Has(digest) && (len(names) == 0 || slices.Contains(names, r.Name)) && r.Pull != nil && r.Pull.Private {
				return r
			}
		}
		rec := ix.ByDigest(digest, names...)
		if rec == nil || rec.Name != "" || rec.Commit == nil || rec.Commit.Base == digest {
			return nil
		}
		digest, names = rec.Commit.Base, nil
	}
	return nil
}

// Add makes a record the meaning of its reference. A record without a name is known by its digest.
func (ix *Index) Add(rec Record) {
	rec.Position = 0 // the last
	kept := ix.Images[:0]
	for _, r := range ix.Images {
		if r.Ref() == rec.Ref() && r.Owner == rec.Owner && r.CacheKey == rec.CacheKey {
			if r.Digest == rec.Digest && r.Manifest == rec.Manifest {
				for ws, at := range r.Users {
					rec.Use(ws, at)
				}
				continue
			}
			r.Current = false
		}
		kept = append(kept, r)
	}
	ix.Images = append(kept, rec)
}

// Replaced records that a digest has another file now: the file of rec.
func (ix *Index) Replaced(rec *Record) {
	for i := range ix.Images {
		if r := &ix.Images[i]; r.Digest == rec.Digest {
			r.FileTime, r.Mark = rec.FileTime, rec.Mark
		}
	}
}

// Leave makes a record count no more for a workspace, and removes it if it counts for no other, unless it is shared and something lies
// over it.
func (ix *Index) Leave(rec *Record, ws sandbox.WorkspaceID) {
	lower := ix.Over(rec.Digest) != nil
	ix.Images = slices.DeleteFunc(ix.Images, func(r Record) bool {
		if !r.Same(rec) {
			return false
		}
		delete(r.Users, ws)
		return len(r.Users) == 0 && (r.Owner != "" || !lower)
	})
}
