package template

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/spool"
)

const (
	// uploadsMax bounds the uploads of the builds of a workspace in bytes, and serverUploadsMax the
	// uploads of all workspaces.
	uploadsMax       = 2 << 30
	serverUploadsMax = 16 << 30
	filesMax         = 100 // uploads of a build
)

// fileHash matches the names of uploads: hexadecimal digits of the client.
var fileHash = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9A-Za-z_-]{1,128}$`) })

// Address returns the part of the address to which the files with a hash are uploaded, for the build
// of a template that waits for files, after the template and the hash. It is secret: the upload needs no other
// credential. It is "" if the build has the files. Errors: NotFound, Invalid.
func (b *Builds) Address(c sandbox.Caller, template, hash string) (secret string, err error) {
	if !fileHash().MatchString(hash) {
		return "", sandbox.InvalidField("hash", "must be the hash of the files")
	}
	o, err := b.newest(c, template)
	if err != nil {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.uploads[hash] != nil {
		return "", nil
	}
	return o.ID + "." + o.secret, nil
}

// Upload takes the files with a hash, a tar or tar.gz of size bytes, for the build whose address has
// that secret. Files that were uploaded before with the same hash stay. Errors: NotFound for another
// address; Conflict after the start of the build; Invalid; TooLarge; QuotaExceeded; Unavailable; errors of r.
func (b *Builds) Upload(ctx context.Context, template, hash, secret string, size int64, r io.Reader) error {
	id, key, _ := strings.Cut(secret, ".")
	b.mu.Lock()
	o := b.byID[id]
	b.mu.Unlock()
	if o == nil || o.Template != template || subtle.ConstantTimeCompare([]byte(key), []byte(o.secret)) == 0 || !fileHash().MatchString(hash) {
		return sandbox.Errorf(sandbox.NotFound, "this address takes no files; ask for another")
	}
	if size < 0 {
		return sandbox.InvalidField("Content-Length", "must be set")
	}
	if err := b.deps.Quotas.CheckDisk(ctx, o.caller.Workspace); err != nil {
		return err
	}
	if err := b.reserve(o, size); err != nil {
		return err
	}
	file, err := b.receive(size, r)
	if err != nil {
		o.release(size)
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.uploads == nil || o.uploads[hash] != nil || len(o.uploads) == filesMax {
		o.bytes = max(0, o.bytes-size)
		_ = file.Close() // nobody needs it
		switch {
		case o.uploads == nil:
			return sandbox.Errorf(sandbox.Conflict, "the build has started, and takes no more files")
		case o.uploads[hash] == nil:
			return sandbox.Errorf(sandbox.TooLarge, "a build takes at most %d uploads", filesMax)
		}
		return nil
	}
	o.uploads[hash] = file
	return nil
}

// reserve counts bytes of an upload before they come. Errors: TooLarge, QuotaExceeded, Unavailable.
func (b *Builds) reserve(o *Build, size int64) error {
	if size > uploadsMax {
		return sandbox.Errorf(sandbox.TooLarge, "the files of a build must be at most %s", sandbox.ShowBytes(uploadsMax))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget() // abandoned files of others count no longer
	var own, all int64
	for _, other := range b.byID {
		other.mu.Lock()
		n := other.bytes
		other.mu.Unlock()
		all += n
		if other.caller.Workspace == o.caller.Workspace {
			own += n
		}
	}
	switch {
	case own+size > uploadsMax:
		return sandbox.Errorf(sandbox.QuotaExceeded, "the files of the workspace's builds must be at most %s together", sandbox.ShowBytes(uploadsMax))
	case all+size > serverUploadsMax:
		return sandbox.Errorf(sandbox.Unavailable, "the builds of all workspaces have too many files; try again later")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes += size
	return nil
}

func (o *Build) release(size int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes = max(0, o.bytes-size)
}

// receive stores size bytes in a file without a name.
func (b *Builds) receive(size int64, r io.Reader) (*os.File, error) {
	file, err := spool.Open(b.deps.SpoolDir)
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(file, io.LimitReader(r, size))
	if err == nil && n < size {
		err = sandbox.Errorf(sandbox.Invalid, "%d of %d bytes came", n, size)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
