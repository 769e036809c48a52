package imagearchive

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/verify"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

// sender stores images, some at a time. Workspaces take turns. A single goroutine uses it.
type sender struct {
	s     *Service
	files verify.Files
	check func(context.Context, *index.Record) error // see [verify.Verifier.Check]
	done  chan sent                                  // buffered for all uploads in progress

	seen    index.Generation // of waiting
	looked  time.Time
	waiting []image // not stored
	sending map[string]image
	// lastTurn has the last turn of each workspace, turn is the last turn of all.
	lastTurn map[sandbox.WorkspaceID]int
	turn     int
	// later has the images that failed, by key, and when they are tried again. pause is that time for all.
	later map[string]time.Time
	pause time.Time
	known manifests
}

// sent is the end of an upload.
type sent struct {
	image
	err error
}

func newSender(s *Service, files verify.Files, check func(context.Context, *index.Record) error) *sender {
	return &sender{
		s: s, files: files, check: check, done: make(chan sent, uploads), sending: map[string]image{},
		lastTurn: map[sandbox.WorkspaceID]int{}, later: map[string]time.Time{}, known: manifests{files: files},
	}
}

// run stores images until ctx ends.
func (d *sender) run(ctx context.Context) {
	for ctx.Err() == nil {
		d.start(ctx)
		select {
		case u := <-d.done:
			d.end(ctx, u)
		case <-time.After(look):
		case <-ctx.Done():
		}
	}
	for len(d.sending) > 0 {
		d.end(ctx, <-d.done)
	}
}

// start starts uploads while there may be more.
func (d *sender) start(ctx context.Context) {
	if time.Now().Before(d.pause) {
		return
	}
	if err := d.look(ctx); err != nil {
		d.pause = time.Now().Add(retryBucket)
		d.s.failed(ctx, "the images that are not stored cannot be listed", err)
		return
	}
	for len(d.sending) < uploads {
		img, ok := d.next()
		if !ok {
			return
		}
		d.turn++
		d.lastTurn[img.workspace] = d.turn
		d.sending[img.key] = img
		go func() { d.done <- sent{img, d.send(ctx, img)} }()
	}
}

// look finds the images that are not stored, if the index has changed, and now and then.
func (d *sender) look(ctx context.Context) error {
	now, err := d.files.Index.Generation()
	if err != nil || now.Same(d.seen) && time.Since(d.looked) < careEvery {
		return err
	}
	needed, err := d.s.deps.Needed(ctx)
	if err != nil {
		return err
	}
	ix, err := d.files.Index.Load()
	if err != nil {
		return err
	}
	d.seen, d.looked = now, time.Now()
	all := wanted(ix, needed)
	d.known.keep(all)
	d.waiting = slices.DeleteFunc(all, func(img image) bool { return d.s.isStored(img, &d.known) })
	if len(d.waiting) == 0 {
		clear(d.lastTurn)
	}
	later := map[string]time.Time{} // without images that were removed
	for _, img := range d.waiting {
		if at, failed := d.later[img.key]; failed {
			later[img.key] = at
		}
	}
	d.later = later
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.s.waiting = len(d.waiting)
	return nil
}

// next returns the image that is sent next: of the workspace with the fewest uploads, and of several of the workspace that had none for the
// longest time. All below it is stored.
func (d *sender) next() (best image, ok bool) {
	busy := map[sandbox.WorkspaceID]int{}
	for _, img := range d.sending {
		busy[img.workspace]++
	}
	full := d.s.full()
	for _, img := range d.waiting {
		if _, own := d.sending[img.key]; own || time.Now().Before(d.later[img.key]) || full(img.workspace) {
			continue
		}
		if ok && cmp.Or(cmp.Compare(busy[img.workspace], busy[best.workspace]), cmp.Compare(d.lastTurn[img.workspace], d.lastTurn[best.workspace])) >= 0 {
			continue
		}
		if slices.ContainsFunc(img.Below, func(digest string) bool { return !d.s.Has(digest) }) {
			continue
		}
		best, ok = img, true
	}
	return best, ok
}

// end notes the end of an upload.
func (d *sender) end(ctx context.Context, u sent) {
	delete(d.sending, u.key)
	switch code := sandbox.CodeOf(u.err); {
	case u.err == nil:
		delete(d.later, u.key)
		d.waiting = slices.DeleteFunc(d.waiting, func(img image) bool { return img.key == u.key })
		d.s.mu.Lock()
		d.s.waiting = len(d.waiting)
		d.s.mu.Unlock()
	case errors.Is(u.err, errInUse):
		d.later[u.key] = time.Now().Add(look)
	case code == sandbox.Conflict: // of the image alone
		d.later[u.key] = time.Now().Add(retryImage)
		d.s.failed(ctx, u.Title()+" not stored", u.err)
	default: // others would fail as well
		d.pause = time.Now().Add(retryBucket)
		d.s.failed(ctx, u.Title()+" not stored", u.err)
	}
}

// errInUse reports a file that is being sent for another image, or removed.
var errInUse = errors.New("a file of the image is being sent or removed")

// local is a file of an image that is to be stored.
type local struct {
	index.StoredFile
	path string
	data []byte // of a blob for the database
	// again says that the copy in the object store is damaged.
	again bool
	// from is another installation, whose copy is copied; "" for a file on the disk.
	from string
}

// send stores the files of an image that are not stored, and records that.
func (d *sender) send(ctx context.Context, img image) error {
	list, stored, err := d.list(ctx, img)
	if err != nil {
		return err
	}
	own, others := map[string]bool{}, map[string]bool{}
	for _, f := range list {
		own[lockName(&f.StoredFile)] = true
	}
	for _, f := range stored {
		if name := lockName(&f); !own[name] {
			others[name] = true
		}
	}
	release, ok := d.s.lock(slices.Collect(maps.Keys(own)), slices.Collect(maps.Keys(others)))
	if !ok {
		return errInUse
	}
	defer release()
	if err := d.s.takeBack(ctx, stored); err != nil {
		return err
	}
	objects, err := d.s.objects.Open(ctx, true)
	if err != nil {
		return err
	}
	data, records := map[string][]byte{}, []index.StoredFile(nil)
	for _, f := range list {
		records = append(records, f.StoredFile)
		if f.Content == "" {
			data[f.Digest] = f.data
		} else if own[f.Content] && (f.again || !d.s.hasContent(f.Content)) {
			own[f.Content] = false // another file of the image may have the content
			if err := d.s.sendFile(ctx, objects, &f); err != nil {
				return err
			}
		}
	}
	if err := d.s.deps.Records.Add(ctx, records, data); err != nil {
		return err
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	for _, f := range records {
		d.s.stored[f.Digest] = f
	}
	return nil
}

// takeBack records that an image needs files that are stored, before it is recorded itself. The caller holds them. Errors: errInUse if any was
// removed before.
func (s *Service) takeBack(ctx context.Context, files []index.StoredFile) error {
	var released []string
	for _, f := range files {
		now, has := s.find(f.Digest)
		if !has {
			return errInUse
		}
		if !now.ReleasedAt.IsZero() {
			released = append(released, f.Digest)
		}
	}
	return s.mark(ctx, released, time.Time{})
}

// list returns the files of an image: first the files that are to be sent, which it checks if they are on the disk. Errors: Conflict when a file is
// damaged.
func (d *sender) list(ctx context.Context, img image) (list []local, stored []index.StoredFile, err error) {
	seen := map[string]bool{}
	isOnDisk := func(digest, name string) bool { // and is to be sent from there
		if seen[digest] {
			return false
		}
		seen[digest] = true
		from, f := d.s.originOf(digest, name)
		switch from {
		case none:
			stored = append(stored, f)
		case bucket:
			own := f
			own.By, own.ReleasedAt = d.s.cfg.Installation, time.Time{}
			list = append(list, local{StoredFile: own, from: f.By})
		}
		return from == disk
	}
	add := func(digest, content, name string, size int64, data []byte) {
		f, _ := d.s.find(digest)
		list = append(list, local{
			StoredFile: index.StoredFile{Digest: digest, Content: content, SizeBytes: size, Workspace: img.workspace, By: d.s.cfg.Installation},
			path:       name, data: data, again: !f.DamagedAt.IsZero(),
		})
	}
	if name := d.files.Path(img.Digest); isOnDisk(img.Digest, name) {
		content, err := d.content(ctx, img.Record)
		if err != nil {
			return nil, nil, err
		}
		add(img.Digest, content, name, img.SizeBytes, nil)
	}
	all, err := blobs(d.files, img.Record)
	if err != nil {
		return nil, nil, unreadable(err)
	}
	for i, b := range all {
		digest, name := b.Digest.String(), d.files.Layout.Blob(b.Digest)
		if !isOnDisk(digest, name) {
			continue
		}
		got, size, err := hashFile(ctx, name)
		if err == nil && got != b.Digest.Hex {
			err = errors.New(name + " is damaged")
		}
		var data []byte
		content := b.Digest.Hex
		if i >= len(all)-2 && err == nil { // the configuration and the manifest are small
			content = ""
			data, err = os.ReadFile(name)
		}
		if err != nil {
			return nil, nil, unreadable(err)
		}
		add(digest, content, name, size, data)
	}
	return list, stored, nil
}

// unreadable returns the error of reading a file of an image.
func unreadable(err error) error {
	return sandbox.Wrap(sandbox.Conflict, err, "a file of the image cannot be read")
}

// content returns the sha256 of the file of a root filesystem, which it checks.
func (d *sender) content(ctx context.Context, r *index.Record) (string, error) {
	if err := d.check(ctx, r); err != nil {
		return "", unreadable(err)
	}
	if len(r.Mark) == 0 {
		return hexOf(r.Digest), nil
	}
	digest, _, err := rootfs.Digest(ctx, d.files.Path(r.Digest), nil)
	return hexOf(digest), err
}

// hashFile returns the sha256 of a file and its size.
func hashFile(ctx context.Context, name string) (sum string, size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	h := sha256.New()
	size, err = io.CopyBuffer(h, rootfs.UntilDone(ctx, f), make([]byte, 1<<20))
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// parts returns the number of parts of a file.
func parts(size int64) int { return int((size + object.ChunkBytes - 1) / object.ChunkBytes) }

// sendFile sends the parts of a file that the object store does not have, or all of a damaged file.
func (s *Service) sendFile(ctx context.Context, objects *object.Store, file *local) error {
	name, have := nameOf(s.cfg.Installation, file.Content), map[int]bool{}
	if err := objects.List(ctx, name+".", func(o object.Object) error { // of an earlier upload
		if n, err := strconv.Atoi(strings.TrimPrefix(path.Ext(o.Key), ".")); err == nil {
			have[n] = !file.again
		}
		return nil
	}); err != nil {
		return err
	}
	read, closeFile, err := s.open(ctx, objects, file)
	if err != nil {
		return err
	}
	defer closeFile()
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(uploadParts)
	for n := range parts(file.SizeBytes) {
		if within.Err() != nil {
			break
		}
		if have[n] {
			continue
		}
		g.Go(func() error {
			data, err := read(within, n)
			if err == nil {
				err = objects.Put(within, object.PartKey(name, n), data)
			}
			if err == nil {
				s.moved.bytes.WithLabelValues("sent").Add(float64(len(data)))
			}
			return err
		})
	}
	if err := cmp.Or(g.Wait(), context.Cause(ctx)); err != nil {
		return err
	}
	return objects.FlushParts(name) // also after an earlier upload that did not come so far
}

// partReader returns a part of a file.
type partReader func(ctx context.Context, n int) ([]byte, error)

// open returns a reader of a file, on the disk or in the object store.
func (s *Service) open(ctx context.Context, objects *object.Store, file *local) (_ partReader, closeFile func(), err error) {
	if file.from != "" {
		read, err := s.openCopy(ctx, objects, file)
		return read, func() {}, err
	}
	f, err := os.Open(file.path)
	if err != nil {
		return nil, nil, unreadable(err)
	}
	return func(_ context.Context, n int) ([]byte, error) {
		at := int64(n) * object.ChunkBytes
		data := make([]byte, min(object.ChunkBytes, file.SizeBytes-at))
		if _, err := f.ReadAt(data, at); err != nil {
			return nil, unreadable(err)
		}
		return data, nil
	}, func() { _ = f.Close() }, nil // it was only read
}

// openCopy returns a reader of a file that another installation has stored, which it reads first to check it: parts that are there are not checked
// later. Errors: Conflict when it is damaged.
func (s *Service) openCopy(ctx context.Context, objects *object.Store, file *local) (partReader, error) {
	name, whole, sums := nameOf(file.from, file.Content), sha256.New(), [][sha256.Size]byte(nil)
	part := func(ctx context.Context, n int) ([]byte, error) {
		data, err := objects.Part(ctx, name, n)
		if code := sandbox.CodeOf(err); code == sandbox.NotFound || code == sandbox.Invalid {
			return nil, s.lost(ctx, file, err)
		}
		return data, err
	}
	for n := range parts(file.SizeBytes) {
		data, err := part(ctx, n)
		if err != nil {
			return nil, err
		}
		_, _ = whole.Write(data) // never fails
		sums = append(sums, sha256.Sum256(data))
	}
	if hex.EncodeToString(whole.Sum(nil)) != file.Content {
		return nil, s.lost(ctx, file, errors.New("its parts belong to another file"))
	}
	return func(ctx context.Context, n int) ([]byte, error) {
		data, err := part(ctx, n)
		if err == nil && sha256.Sum256(data) != sums[n] {
			err = s.lost(ctx, file, errors.New("a part has changed"))
		}
		return data, err
	}, nil
}

// lost records that the copy of another installation, which is the only one, is damaged, and returns the error of sending it.
func (s *Service) lost(ctx context.Context, file *local, err error) error {
	s.moved.damaged.Inc()
	s.damaged(ctx, file.Digest)
	return sandbox.Wrap(sandbox.Conflict, err, "a file of the image that another installation has stored is missing or damaged")
}
