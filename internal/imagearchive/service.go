// Package imagearchive stores the images that users made in an object store, so that another server with the same database has them without
// the disk of the first. These are snapshots, built and imported images, the root filesystems of archived sandboxes, and what lies below them.
//
// The image directory stays as it is. A file of an image is the objects images/INSTALLATION/XXX/CONTENT.N: parts of a root filesystem or of a layer
// of an OCI image, where CONTENT is the sha256 of the file and begins with XXX. The database has manifests and configurations. The records of the
// files of an image are written together, after the objects. A file without a record is sent again, without the parts that are there.
//
// Which images are to be stored follows from the index of the images alone: the service compares it with the records again and again, and there
// is nothing that a server that ends could forget. The same comparison finds files that no image needs any more. They are released: they stay
// for a while, because the database may be replaced by a backup of before. Then the record is deleted, and then the objects. Objects without a
// record, of a server that ended between or during an upload, are removed by a sweep when they are old.
//
// An image directory without a file of an image fetches it when it needs it: see package verify.
package imagearchive

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/verify"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// uploads and fetches bound the images that are sent and the files that are fetched at a time. Each has some parts in memory.
	uploads, fetches          = 2, 2
	uploadParts, fetchedParts = 2, 4
	removers                  = 16
	// look is the time between two looks whether the index has changed, and careEvery between two looks for files that no image needs.
	look       = time.Second
	careEvery  = time.Minute
	sweepEvery = time.Hour
	// sweepAge is the age of objects without a record that a sweep removes.
	sweepAge = 24 * time.Hour
	// retryBucket is the time after which a failed image is tried again; retryImage, if the cause are its files.
	retryBucket, retryImage = time.Minute, 10 * time.Minute
	// releasedMost bounds the released files of a workspace. Beyond it files go before their grace period is over, and beyond twice as much nothing
	// of the workspace is stored.
	releasedMost = 64 << 30
	// patience bounds the time that a caller waits for a bucket that refuses requests.
	patience = 10 * time.Second
	// readAgain is the least time between two readings of all records because of a missing file.
	readAgain = 5 * time.Second
)

// Config are the settings of the service.
type Config struct {
	// URL is the bucket, and KeyFile has the key that encrypts the objects; "" for no encryption.
	URL, KeyFile string
	// Store says that images are stored. Otherwise images that were stored earlier are fetched, and removed when nothing needs them.
	Store bool
	// Grace is the time for which a file stays that no image needs any more.
	Grace time.Duration
	// Installation is the id of the installation.
	Installation string
	// Space is the space of the disk to which files are fetched; nil for a budget of its own.
	Space *ballast.Budget
}

// Records are the records of stored files. Their methods are safe for concurrent use.
type Records interface {
	// All returns all records.
	All(ctx context.Context) ([]index.StoredFile, error)
	// Add records files, together. Blobs has the content of the files without [index.StoredFile.Content], by digest.
	Add(ctx context.Context, files []index.StoredFile, blobs map[string][]byte) error
	// Release records that no image needs files since a time, or with the zero time that images need them.
	Release(ctx context.Context, digests []string, at time.Time) error
	// Damaged records when a file in the object store was found damaged or incomplete. Add ends that.
	Damaged(ctx context.Context, digest string, at time.Time) error
	// Forget deletes the record of a file.
	Forget(ctx context.Context, digest string) error
	// Blob returns the content of a blob that the database has. Errors: NotFound.
	Blob(ctx context.Context, digest string) ([]byte, error)
}

// Deps are the parts that the service uses. It does not close them.
type Deps struct {
	Records Records
	// Used reports whether anything was stored in the bucket: then a missing store is an error.
	Used func(context.Context) (bool, error)
	// Needed returns the digests of root filesystems that are to be stored though no user made them.
	Needed func(context.Context) ([]string, error)
	// Confirm returns an error if another server may have taken the database over: this server then sweeps nothing.
	Confirm func(context.Context) error
	// Owner has the part of the server; nil for all sandboxes. Of several servers with a directory of images the primary alone stores and removes.
	Owner  *sandbox.Ownership
	Logger *slog.Logger
}

// Service stores images. It is safe for concurrent use.
type Service struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	objects *object.Lazy
	fetches *fairsem.Semaphore
	moved   moved
	ctx     context.Context // of the fetches
	cancel  context.CancelFunc

	mu       sync.Mutex
	closed   bool
	fetching sync.WaitGroup              // grows only while closed is false
	stored   map[string]index.StoredFile // by digest; guarded by mu
	missed   time.Time                   // when stored was read because of a missing file; guarded by mu
	locked   map[string]int              // see lock; guarded by mu
	waiting  int                         // images that are to be stored; guarded by mu
}

var _ verify.Away = (*Service)(nil)

// Open returns a service that fetches files, and does nothing else until Run.
func Open(ctx context.Context, cfg Config, deps Deps) (*Service, error) {
	cfg.Space = cmp.Or(cfg.Space, ballast.NewBudget(0))
	s := &Service{
		cfg: cfg, deps: deps, log: deps.Logger, objects: object.NewLazy(cfg.URL, cfg.KeyFile, deps.Used), fetches: fairsem.New(fetches), moved: newMoved(),
		stored: map[string]index.StoredFile{}, locked: map[string]int{},
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.readRecords(ctx); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

// readRecords reads the records of all files.
func (s *Service) readRecords(ctx context.Context) error {
	list, err := s.deps.Records.All(ctx)
	if err != nil {
		return err
	}
	stored := make(map[string]index.StoredFile, len(list))
	for _, f := range list {
		stored[f.Digest] = f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = stored
	return nil
}

// follow reads the records that the primary changes now and then, until ctx ends.
func (s *Service) follow(ctx context.Context) {
	for {
		select {
		case <-time.After(careEvery):
		case <-ctx.Done():
			return
		}
		if err := s.readRecords(ctx); err != nil {
			s.failed(ctx, "the records of stored images cannot be read", err)
		}
	}
}

// Run stores, removes and sweeps the images of a directory until ctx ends. Removals do not wait for what is sent.
func (s *Service) Run(ctx context.Context, files verify.Files, check func(context.Context, *index.Record) error) {
	if !s.deps.Owner.Primary() {
		s.follow(ctx)
		return
	}
	var work sync.WaitGroup
	defer work.Wait()
	if s.cfg.Store {
		work.Go(func() { newSender(s, files, check).run(ctx) })
	}
	c := carer{s: s, files: files, known: manifests{files: files}}
	for ctx.Err() == nil {
		c.care(ctx)
		select {
		case <-time.After(careEvery):
		case <-ctx.Done():
		}
	}
}

// Close ends the fetches, and closes the object store, after Run has ended.
func (s *Service) Close() error {
	s.cancel()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.fetching.Wait()
	return s.objects.Close()
}

// Has implements [verify.Away].
func (s *Service) Has(digest string) bool {
	_, has := s.find(digest)
	return has
}

// find returns the record of a file. The primary may have stored a file since another server has read the records.
func (s *Service) find(digest string) (index.StoredFile, bool) {
	f, has, late := s.known(digest)
	if has || !late {
		return f, has
	}
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := s.readRecords(ctx); err != nil {
		s.failed(ctx, "the records of stored images cannot be read", err)
	}
	f, has, _ = s.known(digest)
	return f, has
}

// known returns the record of a file that was read. late says that the records are to be read again: once in a while, because many images are never stored.
func (s *Service) known(digest string) (f index.StoredFile, has, late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, has = s.stored[digest]
	late = !has && !s.deps.Owner.Primary() && time.Since(s.missed) >= readAgain
	if late {
		s.missed = time.Now()
	}
	return f, has, late
}

// exclusive is in locked for a file that is being sent or removed. Otherwise locked has the number of uploads that need a file which is stored already.
const exclusive = -1

// lock keeps files from being sent or removed by others until release is called, and other files, which are stored, from being removed. It reports
// whether that is possible now. The names are of lockName, each once.
func (s *Service) lock(own, stored []string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range own {
		if s.locked[name] != 0 {
			return nil, false
		}
	}
	for _, name := range stored {
		if s.locked[name] == exclusive {
			return nil, false
		}
	}
	for _, name := range own {
		s.locked[name] = exclusive
	}
	for _, name := range stored {
		s.locked[name]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, name := range stored {
			if s.locked[name]--; s.locked[name] == 0 {
				delete(s.locked, name)
			}
		}
		for _, name := range own {
			delete(s.locked, name)
		}
	}, true
}

// lockName names a file for lock: files with one content are one.
func lockName(f *index.StoredFile) string { return cmp.Or(f.Content, f.Digest) }

// damaged records that a file in the object store is damaged or incomplete.
func (s *Service) damaged(ctx context.Context, digest string) {
	at := time.Now().UTC()
	if err := s.deps.Records.Damaged(ctx, digest, at); err != nil {
		s.failed(ctx, "damage of a stored file of an image not recorded", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, has := s.stored[digest]; has {
		f.DamagedAt = at
		s.stored[digest] = f
	}
}

// hasContent reports whether a file with a content is stored by this installation.
func (s *Service) hasContent(content string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.stored {
		if f.Content == content && f.By == s.cfg.Installation {
			return true
		}
	}
	return false
}

func (s *Service) failed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		s.moved.failures.Inc()
		s.log.Warn(what+", trying again later", "error", err)
	}
}

// prefix begins the names of the objects.
const prefix = "images/"

func folder(installation string) string { return prefix + installation + "/" }

// nameOf is the name of a file with a content, without the numbers of its parts.
func nameOf(installation, content string) string {
	return folder(installation) + content[:3] + "/" + content
}

// hexOf returns a digest without its algorithm.
func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// workspaceOf returns a workspace of an image; "" for none.
func workspaceOf(r *index.Record) sandbox.WorkspaceID {
	ws := r.Owner
	for user := range r.Users {
		ws = max(ws, user)
	}
	return ws
}
