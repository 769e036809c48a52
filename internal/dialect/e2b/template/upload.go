package template

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/spool"
)

const (
	// uploadsMax bounds the uploads of the builds of a workspace in bytes, and serverUploadsMax the
	// uploads of all workspaces; uploadFilesMax and serverUploadFilesMax bound their number.
	uploadsMax           = 2 << 30
	serverUploadsMax     = 16 << 30
	uploadFilesMax       = 800
	serverUploadFilesMax = 25_600
	uploadStep           = 8 << 20 // bytes between two checks of the disk
)

// fileHash matches the names of uploads: hexadecimal digits of the client.
var fileHash = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9A-Za-z_-]{1,128}$`) })

// Address returns the part of the address to which the files with a hash are uploaded, for the builds
// of a template that wait for files, after the template and the hash. It is secret: the upload needs no other
// credential. It is "" if the files are there. Errors: NotFound, Invalid; Unavailable if another server has the builds.
func (b *Builds) Address(c sandbox.Caller, template, hash string) (secret string, err error) {
	if err := b.deps.Owner.CheckPrimary(); err != nil {
		return "", err
	}
	if !fileHash().MatchString(hash) {
		return "", sandbox.InvalidField("hash", "must be the hash of the files")
	}
	return b.places.address(owner{c.Workspace, template}, hash)
}

// Upload takes the files with a hash, a tar or tar.gz of size bytes, for the builds whose address has
// that secret. Files that were uploaded before with the same hash stay. Errors: NotFound for another
// address; Conflict after the start of the builds; Invalid; TooLarge; QuotaExceeded; Unavailable; errors of r.
func (b *Builds) Upload(ctx context.Context, template, hash, secret string, size int64, r io.Reader) error {
	if err := b.deps.Owner.CheckPrimary(); err != nil { // before anything is read
		return err
	}
	of, id, ok := b.places.find(template, secret)
	switch {
	case !ok || !fileHash().MatchString(hash):
		return sandbox.Errorf(sandbox.NotFound, "this address takes no files; ask for another")
	case size < 0:
		return sandbox.InvalidField("Content-Length", "must be set")
	case size > uploadsMax:
		return sandbox.Errorf(sandbox.TooLarge, "the files of a build must be at most %s", sandbox.ShowBytes(uploadsMax))
	}
	b.sweep() // abandoned files of others count no longer
	if err := b.deps.Uploads.reserve(of.workspace, size); err != nil {
		return err
	}
	release := func() { b.deps.Uploads.release(of.workspace, size) }
	file, err := b.receive(ctx, of.workspace, size, r)
	if err != nil {
		release()
		return err
	}
	needed, err := b.places.put(id, hash, &upload{file: file, size: size, remove: release})
	if !needed {
		_ = file.Close() // nobody needs it
		release()
	}
	return err
}

// receive stores size bytes in a file without a name. It checks the disk before and on the way: the quota and
// the free space change while the bytes come.
func (b *Builds) receive(ctx context.Context, ws sandbox.WorkspaceID, size int64, r io.Reader) (_ *os.File, err error) {
	if err := b.deps.Quotas.CheckDisk(ctx, ws); err != nil {
		return nil, err
	}
	file, err := spool.Open(b.deps.SpoolDir)
	if err != nil {
		return nil, err
	}
	for n := int64(0); n < size && err == nil; {
		var part int64
		part, err = io.CopyN(file, r, min(size-n, uploadStep))
		n += part
		switch {
		case errors.Is(err, io.EOF):
			err = sandbox.Errorf(sandbox.Invalid, "%d of %d bytes came", n, size)
		case err == nil && n < size:
			err = b.deps.Quotas.CheckDisk(ctx, ws)
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
