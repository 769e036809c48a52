package snapshot

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/spool"
)

// Upload takes the files of an assembly, a tar.gz whose names are relative to the directory of the
// request, and replaces the files uploaded before, unless it fails. Finish unpacks them. Errors:
// NotFound; Conflict during another upload; TooLarge; Invalid, naming "archive", if r is no tar.gz;
// the errors of r.
func (x *Assemblies) Upload(ctx context.Context, c sandbox.Caller, id sandbox.SnapshotID, r io.Reader) error {
	a, err := x.known.find(func(at sandbox.SnapshotID, a *assembly) bool { return at == id && a.caller.Workspace == c.Workspace })
	if err != nil {
		return err
	}
	if !a.uploading.TryLock() { // each may take as much of the disk as all files of an assembly may
		return sandbox.Errorf(sandbox.Conflict, "the files of this build are being uploaded already")
	}
	defer a.uploading.Unlock()
	file, err := spool.Open(x.snapshots.cfg.SpoolDir)
	if err != nil {
		return err
	}
	before := a.size.Load()
	n, err := x.receive(ctx, a, file, r)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if err := x.check(ctx, a, file); err != nil {
		a.size.Store(before)
		return errors.Join(err, file.Close())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errors.Join(errAssemblyClosed(), file.Close())
	}
	if a.files != nil {
		_ = a.files.Close() // replaced
	}
	a.files = file
	a.size.Store(n)
	return nil
}

// receive copies the files of an assembly into a file while the quota permits it, and returns
// their bytes. The files that they replace stay until then.
func (x *Assemblies) receive(ctx context.Context, a *assembly, into *os.File, r io.Reader) (n int64, err error) {
	before := a.size.Load()
	defer func() {
		if err != nil {
			a.size.Store(before)
		}
	}()
	for {
		// Bytes that come after the end of the assembly would count for no workspace.
		if err := a.open(); err != nil {
			return n, err
		}
		if err := x.snapshots.quotas.CheckDiskReserved(ctx, a.caller.Workspace, 0); err != nil {
			return n, err
		}
		part, err := io.CopyN(into, r, uploadStep)
		n += part
		a.size.Store(before + n)
		switch {
		case n > uploadMax:
			return n, sandbox.Errorf(sandbox.TooLarge, "the files of a build must be at most %s", sandbox.ShowBytes(uploadMax))
		case errors.Is(err, io.EOF):
			return n, ctx.Err()
		case err != nil:
			return n, err
		}
	}
}

// check reads an archive as Finish will, so that the caller learns of a broken one while the
// assembly is still open. It leaves what lies beyond checkMax to Finish: a small upload can unpack
// to a thousand times its size. Errors: Invalid, naming "archive"; the errors of ctx.
func (x *Assemblies) check(ctx context.Context, a *assembly, file *os.File) error {
	release, err := x.checks.Acquire(ctx, a.caller.Workspace, func() {})
	if err != nil {
		return err
	}
	defer release()
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	zipped, err := gzip.NewReader(file)
	if err == nil {
		err = readTar(ctx, zipped)
	}
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return &sandbox.Error{Code: sandbox.Invalid, Field: "archive", Message: "is not a readable tar.gz; upload a good archive, then finish the build", Err: err}
}

// readTar reads an archive to its end, or to checkMax bytes.
func readTar(ctx context.Context, r io.Reader) error {
	bounded := &io.LimitedReader{R: r, N: checkMax}
	for names := tar.NewReader(bounded); ctx.Err() == nil; {
		_, err := names.Next() // skips the stored bytes of a file, not its holes, which have no bound
		switch {
		case bounded.N <= 0:
			return nil
		case errors.Is(err, io.EOF):
			_, err = io.Copy(io.Discard, bounded) // the checksum of gzip comes last
			return err
		case err != nil:
			return err
		}
	}
	return ctx.Err()
}
