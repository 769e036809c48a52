package image

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/lock"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/sandbox"
)

// index is what the store holds. A loaded one is never changed.
type index struct {
	Version int      `json:"version"`
	Images  []record `json:"images"` // in the order of their builds
}

// indexVersion is what is written; 1 is read, too. Programs that do not know marks refuse 2.
const indexVersion = 2

// record is one built image.
type record struct {
	Name string `json:"name"`
	Tag  string `json:"tag"`
	// Current: the reference means this digest. Others are kept for sandboxes made
	// from them, until Prune.
	Current       bool                `json:"current"`
	Digest        string              `json:"digest"` // of the EROFS
	SizeBytes     int64               `json:"size_bytes"`
	FileCount     int64               `json:"file_count,omitempty"`
	FileTime      time.Time           `json:"file_time,omitzero"` // of the root filesystem's file
	Mark          []byte              `json:"mark,omitempty"`     // see rootfs
	Manifest      archive.Ref         `json:"manifest"`           // of the OCI image
	RecipeHash    string              `json:"recipe_hash"`
	Description   string              `json:"description"`
	Config        sandbox.ImageConfig `json:"config"`
	MemoryBytes   int64               `json:"memory_bytes"`
	ReadinessPort uint16              `json:"readiness_port"`
	TTL           time.Duration       `json:"ttl_ns"`
	Pull          *pullRecord         `json:"pull,omitempty"`   // of what Pull made
	Commit        *commitRecord       `json:"commit,omitempty"` // of what Commit made
	CacheKey      string              `json:"cache_key,omitempty"`
	// Owner is the workspace that has it for itself; "" for all others. Its names are
	// the owner's own.
	Owner sandbox.WorkspaceID `json:"owner,omitempty"`
	// Users are the workspaces that have used what is everybody's and was made with a
	// CacheKey, and when, about: it counts for each of them, see share.go.
	Users map[sandbox.WorkspaceID]time.Time `json:"users,omitempty"`
	// LostAt is when Prune found that no database knows it; see lost.go.
	LostAt    time.Time        `json:"lost_at,omitzero"`
	CreatedAt time.Time        `json:"created_at"` // the reference's first build
	UpdatedAt time.Time        `json:"updated_at"` // this build
	Packages  []recipe.Package `json:"packages"`
}

// pullRecord says what was pulled.
type pullRecord struct {
	Reference string    `json:"reference"` // registry/repository:tag or registry/repository@digest
	Asked     v1.Hash   `json:"asked"`     // what the reference named then: an index or a manifest
	CheckedAt time.Time `json:"checked_at"`
	// Private: nobody has had it without signing in. Proofs are when who has
	// signed in and had it, see private.go.
	Private bool                 `json:"private,omitempty"`
	Proofs  map[string]time.Time `json:"proofs,omitempty"`
}

// commitRecord says what a commit was made of and which layer it added.
type commitRecord struct {
	Base       string      `json:"base"`    // digest of a root filesystem, or ""
	DiffID     v1.Hash     `json:"diff_id"` // of the layer
	Layer      archive.Ref `json:"layer"`
	ConfigHash string      `json:"config_hash"`
}

// ref returns name:tag. A pull by digest has no tag, a commit perhaps no name.
func (r *record) ref() string {
	if r.Tag == "" && r.Pull != nil {
		return r.Pull.Reference
	}
	return r.Name + ":" + r.Tag
}

// fileTime returns the time that the root filesystem's file was given.
func (r *record) fileTime() time.Time {
	if r.FileTime.IsZero() {
		return r.UpdatedAt
	}
	return r.FileTime
}

// image returns the catalogue entry.
func (r *record) image() sandbox.Image {
	id := r.ref()
	if r.Name == "" {
		id = r.Digest
	}
	if r.Owner != "" {
		id = string(r.Owner) + "/" + id
	}
	return sandbox.Image{
		ID: reference.ImageID(id), Name: r.Name, Tag: r.Tag, Digest: r.Digest, Description: r.Description,
		SizeBytes: r.SizeBytes, Config: r.Config, MemoryBytes: r.MemoryBytes,
		ReadinessPort: r.ReadinessPort, TTL: r.TTL, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
		Readers: r.readers(),
	}
}

// current returns the record that a reference means for everybody, or nil.
func (ix *index) current(ref string) *record { return ix.owned("", ref) }

// owned returns the record that a reference means for an owner alone, or nil.
func (ix *index) owned(owner sandbox.WorkspaceID, ref string) *record {
	for i := range ix.Images {
		if r := &ix.Images[i]; r.Current && r.Owner == owner && r.ref() == ref {
			return r
		}
	}
	return nil
}

// byDigest returns the newest record of a digest, one that is everybody's when there
// is any, or nil. When names are given it has one of them. What the operator has, such
// as a built-in image, comes before what anybody may have pulled: that may have the same
// files and be run in another way.
func (ix *index) byDigest(digest string, names ...string) *record {
	var pulled, own *record
	for i := len(ix.Images) - 1; i >= 0; i-- {
		r := &ix.Images[i]
		if !r.has(digest) || len(names) > 0 && !slices.Contains(names, r.Name) {
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

// entry returns the record that an image was made of, or nil. The digest does not say
// that alone: images of the same files may be run in different ways.
func (ix *index) entry(of sandbox.Image) *record {
	for i := range ix.Images {
		r := &ix.Images[i]
		if img := r.image(); img.ID == of.ID && img.Digest == of.Digest && img.UpdatedAt.Equal(of.UpdatedAt) {
			return r
		}
	}
	return nil
}

// has reports whether a digest names the record: of its root filesystem, its OCI
// manifest, or the index that this was found in.
func (r *record) has(digest string) bool {
	return r.Digest == digest || r.Manifest.Digest.String() == digest || r.Pull != nil && r.Pull.Asked.String() == digest
}

// add makes rec what its reference means. What has no name is only there by its
// digest.
func (ix *index) add(rec record) {
	kept := ix.Images[:0]
	for _, r := range ix.Images {
		if r.ref() == rec.ref() && r.Owner == rec.Owner && r.CacheKey == rec.CacheKey {
			if r.Digest == rec.Digest && r.Manifest == rec.Manifest {
				for ws, at := range r.Users {
					rec.use(ws, at)
				}
				continue
			}
			r.Current = false
		}
		kept = append(kept, r)
	}
	ix.Images = append(kept, rec)
}

func (s *Store) indexPath() string { return filepath.Join(s.dir, "index.json") }

// loadIndex returns the index as it is on disk now; reading it again only when
// it changed.
func (s *Store) loadIndex() (*index, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.indexPath())
	if errors.Is(err, fs.ErrNotExist) {
		return s.noIndex()
	}
	if err != nil {
		return nil, fmt.Errorf("read image index: %w", err)
	}
	if s.cached != nil && os.SameFile(s.cachedInfo, info) && s.cachedInfo.ModTime().Equal(info.ModTime()) {
		return s.cached, nil
	}
	ix, err := readIndex(s.indexPath())
	if err != nil {
		return nil, err
	}
	s.cached, s.cachedInfo = ix, info
	return ix, nil
}

// noIndex returns the index of a store in which there is none: an empty one, unless there
// are files that an index named. To a deletion of unused files all of them would be unused.
func (s *Store) noIndex() (*index, error) {
	for _, dir := range []string{s.imagesDir(), s.layout.BlobsDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read image index: %w", err)
		}
		if len(entries) > 0 {
			name := s.indexPath()
			return nil, fmt.Errorf("image index %s is missing, and there are files of images in %s; nothing was deleted; %s", name, dir, indexAdvice(name))
		}
	}
	return &index{Version: indexVersion}, nil
}

// indexAdvice says what to do about an index that is missing or damaged.
func indexAdvice(name string) string {
	return fmt.Sprintf("put the file back, for example from a backup of the server, or move %s away to begin without images: "+
		"built-in images are built again by `modbox images build`, pulled images are pulled again, snapshots and changed root filesystems are only there", filepath.Dir(name))
}

func readIndex(name string) (*index, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read image index: %w", err)
	}
	var ix index
	if err := json.Unmarshal(data, &ix); err != nil {
		return nil, fmt.Errorf("image index %s is damaged: %w; %s", name, err, indexAdvice(name))
	}
	if ix.Version < 1 {
		return nil, fmt.Errorf("image index %s is damaged: it has no version; %s", name, indexAdvice(name))
	}
	if ix.Version > indexVersion {
		return nil, fmt.Errorf("read image index %s: its version is %d, this program knows %d", name, ix.Version, indexVersion)
	}
	return &ix, nil
}

// lockIndex returns the index as it is on disk, to be changed by the caller alone
// until unlock.
func (s *Store) lockIndex(ctx context.Context) (ix *index, unlock func(), err error) {
	unlock, err = lock.File(ctx, s.lockPath("index"), nil)
	if err != nil {
		return nil, nil, err
	}
	ix, err = readIndex(s.indexPath())
	if errors.Is(err, fs.ErrNotExist) {
		ix, err = s.noIndex()
	}
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return ix, unlock, nil
}

// beginIndex writes the index of a new store, or repeats the writing of the layout's index,
// before which a crash may have come. From then on an index that is missing was lost.
func (s *Store) beginIndex(ctx context.Context) error {
	ix, unlock, err := s.lockIndex(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(s.indexPath()); errors.Is(err, fs.ErrNotExist) {
		return s.writeIndex(ix)
	}
	return s.writeLayoutIndex(ix)
}

// writeIndex writes the index, and the layout's after it. The caller holds the lock.
func (s *Store) writeIndex(ix *index) error {
	ix.Version = indexVersion
	data, err := json.MarshalIndent(ix, "", " ")
	if err != nil {
		return fmt.Errorf("write image index: %w", err)
	}
	if err := durable.WriteFile(s.indexPath(), data); err != nil {
		return err
	}
	return s.writeLayoutIndex(ix)
}

// writeLayoutIndex writes the index of the layout from the index of the store.
func (s *Store) writeLayoutIndex(ix *index) error {
	var entries []archive.Entry
	for _, rec := range ix.Images {
		e := archive.Entry{Ref: rec.Manifest}
		if rec.Current && rec.Owner == "" {
			e.Name = rec.ref()
		}
		entries = append(entries, e)
	}
	return s.layout.WriteIndex(entries)
}
