package backup

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
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
type Bucket struct{ objects *object.Store }

// OpenBucket opens the backups in the bucket at a URL. keyFile has the key that encrypts them; "" for no encryption. create makes a
// new bucket's objects. It returns the errors of [object.Open].
func OpenBucket(ctx context.Context, url, keyFile string, create bool) (*Bucket, error) {
	o := object.Options{Create: create}
	if keyFile != "" {
		key, err := object.ReadKey(keyFile)
		if err != nil {
			return nil, err
		}
		o.Key = key
	}
	objects, err := object.Open(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return &Bucket{objects}, nil
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
	Machine     string       `json:"machine"`
	Images      Images       `json:"images"`
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

// IDs returns the ids of the complete backups, oldest first.
func (b *Bucket) IDs(ctx context.Context) (ids []string, err error) {
	err = b.objects.List(ctx, bucketPrefix, func(o object.Object) error {
		if id := strings.TrimPrefix(o.Key, bucketPrefix); idPattern.MatchString(id) {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

// Last returns when the newest backup was made; zero when there is none. Times in the future, of a clock that was wrong, do not count.
func (b *Bucket) Last(ctx context.Context) (time.Time, error) {
	ids, err := b.IDs(ctx)
	if err != nil {
		return time.Time{}, err
	}
	for _, id := range slices.Backward(ids) {
		text, _, _ := strings.Cut(id, "-")
		if at, err := time.Parse(bucketStamp, text); err != nil || !at.After(time.Now()) {
			return at, err
		}
	}
	return time.Time{}, nil
}

// List returns the complete backups, oldest first. Errors: Invalid when a description is damaged.
func (b *Bucket) List(ctx context.Context) ([]Stored, error) {
	ids, err := b.IDs(ctx)
	list := make([]Stored, 0, len(ids))
	for _, id := range ids {
		s, gerr := b.Get(ctx, id)
		if sandbox.CodeOf(gerr) == sandbox.NotFound { // removed meanwhile
			continue
		}
		err = cmp.Or(err, gerr)
		list = append(list, s)
	}
	return list, err
}

// Get returns a backup; id "" means the newest. Errors: NotFound; Invalid when its description is damaged.
func (b *Bucket) Get(ctx context.Context, id string) (s Stored, err error) {
	if id == "" {
		ids, err := b.IDs(ctx)
		if err != nil {
			return s, err
		}
		if len(ids) == 0 {
			return s, sandbox.Errorf(sandbox.NotFound, "the bucket %s has no backup", b.objects.URL())
		}
		id = ids[len(ids)-1]
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
	work, release, err := gather(ctx, src, o)
	if err != nil {
		return s, sent, err
	}
	defer func() { err = errors.Join(err, release()) }()
	s, err = describe(src, o)
	if err != nil {
		return s, sent, err
	}
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

// Pruned is the result of [Bucket.Prune].
type Pruned struct {
	Backups []string // the ids of the removed backups
	object.Collected
}

// Prune removes all but the newest keep backups, and then the data that no backup uses and that is older than the grace period.
// A keep of 0 or less removes no backup. Errors: Unavailable while a backup or another prune is in progress, whose data
// must stay: the backups are removed all the same; Invalid when the description of a backup is damaged, and then no
// data is removed.
func (b *Bucket) Prune(ctx context.Context, keep int, grace time.Duration) (p Pruned, err error) {
	ids, err := b.IDs(ctx)
	if err != nil {
		return p, err
	}
	if keep > 0 {
		for _, id := range ids[:max(0, len(ids)-keep)] {
			if err := b.objects.Delete(ctx, bucketPrefix+id); err != nil {
				return p, err
			}
			p.Backups = append(p.Backups, id)
		}
	}
	p.Collected, err = b.objects.Collect(ctx, grace, func(ctx context.Context) (map[object.Name]bool, error) {
		used, err := b.used(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("no data is removed, because it is unknown which data a backup needs; delete its object if it is of no use: %w", err)
		}
		return used, nil
	})
	return p, err
}

// used returns the names of the blobs of all backups. ids are the backups that were listed before: a list that lacks one does not
// make its blobs unused.
func (b *Bucket) used(ctx context.Context, ids []string) (map[object.Name]bool, error) {
	now, err := b.IDs(ctx)
	if err != nil {
		return nil, err
	}
	now = append(now, ids...)
	slices.Sort(now)
	used := map[object.Name]bool{}
	for _, id := range slices.Compact(now) { // one description in memory at a time
		s, err := b.Get(ctx, id)
		if sandbox.CodeOf(err) == sandbox.NotFound { // removed
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, f := range s.Files {
			for _, n := range f.Blobs {
				used[n] = true
			}
		}
	}
	return used, nil
}

// blobs returns the names of the blobs of backups.
func blobs(list []Stored) map[object.Name]bool {
	all := map[object.Name]bool{}
	for _, s := range list {
		for _, f := range s.Files {
			for _, n := range f.Blobs {
				all[n] = true
			}
		}
	}
	return all
}

// Damage is an object of a bucket that is missing or damaged.
type Damage struct {
	// Backups are the ids of the backups that need it.
	Backups []string
	Err     error
}

// Verify reads everything of a backup, or of all when id is "", and compares it with its digests. Damage is not an
// error.
func (b *Bucket) Verify(ctx context.Context, id string) (list []Stored, damage []Damage, err error) {
	ids := []string{id}
	if id == "" {
		if ids, err = b.IDs(ctx); err != nil {
			return nil, nil, err
		}
	}
	for _, id := range ids {
		s, err := b.Get(ctx, id)
		if sandbox.CodeOf(err) == sandbox.Invalid && idPattern.MatchString(id) {
			damage = append(damage, Damage{Backups: []string{id}, Err: err})
		} else if err != nil {
			return nil, nil, err
		} else {
			list = append(list, s)
		}
	}
	bad := map[object.Name]error{}
	if err := b.objects.Verify(ctx, slices.Collect(maps.Keys(blobs(list))), func(n object.Name, err error) { bad[n] = err }); err != nil {
		return list, damage, err
	}
	for n, err := range bad {
		d := Damage{Err: err}
		for _, s := range list {
			if blobs([]Stored{s})[n] {
				d.Backups = append(d.Backups, s.ID)
			}
		}
		damage = append(damage, d)
	}
	slices.SortFunc(damage, func(a, b Damage) int { return strings.Compare(a.Err.Error(), b.Err.Error()) })
	return list, damage, nil
}

// Restore is [Restore] from a backup in the bucket; id "" means the newest.
func (b *Bucket) Restore(ctx context.Context, id, stateDir string, o RestoreOptions) (s Stored, aside string, err error) {
	if s, err = b.Get(ctx, id); err != nil {
		return s, "", err
	}
	aside, err = replace(ctx, stateDir, o, false, func(staged string) ([]string, error) {
		return b.download(ctx, &s, staged)
	})
	return s, aside, err
}
