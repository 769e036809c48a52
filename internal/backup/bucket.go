package backup

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// bucketPrefix begins the names of the objects that describe backups in a bucket.
	bucketPrefix = "backups/"
	bucketFormat = 1
	// bucketStamp is the time in the id of a backup: also of backups made one right after the other the last is the newest.
	bucketStamp = "20060102T150405.000Z"

	// Grace is the age at which data in a bucket that no backup uses is removed.
	Grace = 24 * time.Hour
)

// idPattern describes the id of a backup in a bucket: its time, which is the order, and random digits.
var idPattern = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{8}$`)

// Bucket has backups in a bucket. They share equal parts of their files, so that a backup sends only the changes since
// an earlier backup. A backup is complete when the object that describes it is there; it is written last.
type Bucket struct {
	objects *object.Store
	// Warn is called with warnings for an administrator; may be nil.
	Warn func(text string)
}

func (b *Bucket) warn(format string, args ...any) {
	if b.Warn != nil {
		b.Warn(fmt.Sprintf(format, args...))
	}
}

// OpenBucket opens the backups in the bucket at a URL. keyFile has the key that encrypts them; "" for no encryption. create makes a
// new bucket's objects. It returns the errors of [object.OpenWithKeyFile].
func OpenBucket(ctx context.Context, url, keyFile string, create bool) (*Bucket, error) {
	objects, err := object.OpenWithKeyFile(ctx, url, keyFile, object.Options{Create: create})
	if err != nil {
		return nil, err
	}
	return &Bucket{objects: objects}, nil
}

// Close ends the use of the bucket.
func (b *Bucket) Close() error { return b.objects.Close() }

// Stored describes a backup in a bucket.
type Stored struct {
	Format    int       `json:"format"`
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	// Version of the program that made it.
	Version string `json:"version"`
	// Machine is the host name of the machine that made it.
	Machine string `json:"machine"`
	Images  Images `json:"images"`
	// Away has the same meaning as [Manifest.Away].
	Away        []string     `json:"images_in_object_store,omitempty"`
	Checkpoints bool         `json:"checkpoints"`
	Files       []StoredFile `json:"files"`
}

// StoredFile is a file of a backup in a bucket.
type StoredFile struct {
	// Name is its path in the state directory, with slashes.
	Name       string        `json:"name"`
	Size       int64         `json:"size"`
	Mode       os.FileMode   `json:"mode"`
	ModifiedAt time.Time     `json:"modified_at"`
	Blobs      []object.Name `json:"blobs"`
}

// Size returns the bytes of all files.
func (s *Stored) Size() (n int64) {
	for _, f := range s.Files {
		n += f.Size
	}
	return n
}

// Get returns a backup; id "" means the newest. Errors: NotFound; Invalid when its description is damaged.
func (b *Bucket) Get(ctx context.Context, id string) (s Stored, err error) {
	if id == "" {
		if id, err = b.newest(ctx); err != nil {
			return s, err
		}
	}
	if !idPattern.MatchString(id) {
		return s, sandbox.InvalidField("id", "%.80q is not the id of a backup, such as 20261126T120000.000Z-0123abcd", id)
	}
	data, err := b.objects.Get(ctx, bucketPrefix+id)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return s, sandbox.Wrap(sandbox.NotFound, err, "the bucket %s has no backup %s", b.objects.URL(), id)
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, sandbox.Wrap(sandbox.Invalid, err, "the object %s%s of the bucket %s is damaged", bucketPrefix, id, b.objects.URL())
	}
	if s.Format != bucketFormat || s.ID != id {
		return s, sandbox.Errorf(sandbox.Unsupported, "the object %s%s of the bucket %s is of format %d and of backup %.80q; this program supports format %d", bucketPrefix, id, b.objects.URL(), s.Format, s.ID, bucketFormat)
	}
	return s, nil
}

// hold keeps the data of backups from being removed until it is released; check returns an error when that may have failed.
// In a bucket that cannot be written, because it is full or for reading only, it holds nothing and warns.
func (b *Bucket) hold(ctx context.Context) (check func() error, release func(), err error) {
	h, err := b.objects.Hold(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, object.ErrCollecting) {
		b.warn("the bucket %s cannot be written, so that a prune is not prevented meanwhile: %v", b.objects.URL(), err)
		return func() error { return nil }, func() {}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return h.Check, func() { h.Release(ctx) }, nil
}

// Write makes a backup. It is in the bucket when Write returns nil, and not at all before the last step. After an error or a crash
// the next backup sends only the missing parts.
func (b *Bucket) Write(ctx context.Context, src Source, o Options) (s Stored, sent object.Counts, err error) {
	if o.Images == "" {
		o.Images = ImagesNeeded
	}
	u, err := b.objects.NewUpload(ctx)
	if err != nil {
		return s, sent, err
	}
	defer u.Close()
	away, err := src.away(ctx, o)
	if err != nil {
		return s, sent, err
	}
	work, release, err := gather(ctx, src, o)
	if err != nil {
		return s, sent, err
	}
	defer func() { err = errors.Join(err, release()) }()
	s, err = describe(src, o)
	if err != nil {
		return s, sent, err
	}
	s.Away = away
	err = eachFile(work, func(path, name string) error {
		f, err := store(ctx, u, path, name)
		if err == nil {
			s.Files = append(s.Files, f)
		}
		return err
	})
	sent, werr := u.Wait() // its error is the cause of the other
	if err := cmp.Or(werr, err); err != nil {
		return s, sent, fmt.Errorf("backup to %s: %w", b.objects.URL(), err)
	}
	if err := b.put(ctx, &s); err != nil {
		return s, sent, fmt.Errorf("backup to %s: %w", b.objects.URL(), err)
	}
	return s, sent, b.objects.Flush()
}

// put stores the description of a backup.
func (b *Bucket) put(ctx context.Context, s *Stored) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if len(data) > object.MaxNamed {
		return sandbox.Errorf(sandbox.TooLarge, "the backup has too many files")
	}
	return b.objects.Put(ctx, bucketPrefix+s.ID, data)
}

// describe returns the description of a backup without its files.
func describe(src Source, o Options) (Stored, error) {
	machine, err := os.Hostname()
	if err != nil {
		return Stored{}, err
	}
	random := make([]byte, 4)
	if _, err := rand.Read(random); err != nil {
		return Stored{}, err
	}
	now := time.Now().UTC()
	return Stored{
		Format: bucketFormat, ID: now.Format(bucketStamp) + "-" + hex.EncodeToString(random), CreatedAt: now,
		Version: src.Version, Machine: machine, Images: o.Images, Checkpoints: !o.WithoutCheckpoints,
	}, nil
}

// store sends the present content of a file, without data appended meanwhile.
func store(ctx context.Context, u *object.Upload, path, name string) (_ StoredFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return StoredFile{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return StoredFile{}, err
	}
	s := StoredFile{Name: name, Size: info.Size(), Mode: info.Mode().Perm(), ModifiedAt: info.ModTime()}
	if s.Blobs, err = u.File(&reader{ctx, f}, s.Size); err != nil {
		return s, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// Restore is [Restore] from a backup in the bucket; id "" means the newest.
func (b *Bucket) Restore(ctx context.Context, id, stateDir string, o RestoreOptions) (s Stored, aside string, err error) {
	_, release, err := b.hold(ctx) // before the description is read: its data stays
	if err != nil {
		return s, "", err
	}
	defer release()
	if s, err = b.Get(ctx, id); err != nil {
		return s, "", err
	}
	aside, err = replace(ctx, stateDir, o, false, func(staged string) ([]string, error) {
		return b.download(ctx, &s, staged, o)
	})
	return s, aside, err
}
