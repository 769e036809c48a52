package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// FileContent is a file to write.
type FileContent struct {
	Path string
	// Mode is the permission bits of a new file; 0 means 0644. An existing file keeps its mode unless set.
	Mode    uint32
	Content []byte
}

// WriteFiles writes files one after the other, each atomically, creates missing parents, and
// returns how many files were written. It stops at the first failure, and the error names that
// file. It accepts at most sandbox.ExecutionFiles files with sandbox.ExecutionFilesMax bytes in
// total.
func (f Files) WriteFiles(ctx context.Context, c sandbox.Caller, ref string, files []FileContent) (int, error) {
	total := 0
	for _, file := range files {
		total += len(file.Content)
	}
	if len(files) > sandbox.ExecutionFiles || total > sandbox.ExecutionFilesMax {
		return 0, sandbox.InvalidField("files", "must be at most %d with %d bytes together; upload more as an archive",
			sandbox.ExecutionFiles, sandbox.ExecutionFilesMax)
	}
	b, err := f.calls.Use(ctx, c, ref)
	if err != nil {
		return 0, err
	}
	p, end := newTransfer(ctx, b)
	defer end()
	for _, file := range files {
		audit.FromContext(ctx).Detail("path", file.Path)
	}
	for i := 0; i < len(files); {
		file := files[i]
		opts := agentapi.WriteOptions{Mode: file.Mode, Parents: true}
		if _, err := f.of(b).WriteFile(ctx, file.Path, bytes.NewReader(file.Content), opts); err == nil {
			i++
		} else if err := p.again(err); err != nil {
			return i, about(file.Path, err)
		}
	}
	return len(files), nil
}

// about adds the path to an error for the caller.
func about(path string, err error) error {
	var coded *sandbox.Error
	if !errors.As(err, &coded) || coded.Code == sandbox.Internal {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return sandbox.Wrap(coded.Code, err, "%s: %s", sandbox.Excerpt(path), coded.Message)
}

// UploadArchive unpacks an archive into a directory of a running sandbox; see
// agentapi.Files.UnpackArchive for what it refuses. It returns an error of r unchanged, and
// Unavailable if the sandbox was saved before the archive was complete: then a part may be
// unpacked. The format is "tar.gz", "zip", "tar", or "" to detect it.
func (f Files) UploadArchive(ctx context.Context, c sandbox.Caller, ref, dir, format string, r io.Reader) error {
	return f.UnpackArchive(ctx, c, ref, dir, r, agentapi.ArchiveOptions{Format: agentapi.Format(format)})
}

// UnpackArchive is UploadArchive with options.
func (f Files) UnpackArchive(ctx context.Context, c sandbox.Caller, ref, dir string, r io.Reader, opts agentapi.ArchiveOptions) error {
	if err := checkFormat(string(opts.Format)); err != nil {
		return err
	}
	b, err := f.calls.Use(ctx, c, ref)
	if err != nil {
		return err
	}
	audit.FromContext(ctx).Detail("path", dir)
	p, end := newTransfer(ctx, b)
	defer end()
	return p.broken(f.of(b).UnpackArchive(ctx, dir, r, opts))
}

// DownloadArchive packs a directory or file of a running sandbox; see agentapi.Files.PackArchive.
// Formats are as in UploadArchive; "" is tar.gz. Errors of the reader have codes: Unavailable if
// the sandbox was saved before the archive was complete. The caller closes the reader.
func (f Files) DownloadArchive(ctx context.Context, c sandbox.Caller, ref, path, format string) (io.ReadCloser, error) {
	if err := checkFormat(format); err != nil {
		return nil, err
	}
	b, err := f.calls.Use(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	p, end := newTransfer(ctx, b)
	for {
		r, err := f.of(b).PackArchive(ctx, path, agentapi.Format(format))
		if err == nil {
			return &packed{ReadCloser: r, call: p, end: end}, nil
		}
		if err := p.again(err); err != nil {
			end()
			return nil, err
		}
	}
}

func checkFormat(format string) error {
	switch agentapi.Format(format) {
	case "", agentapi.FormatTarGzip, agentapi.FormatZip, agentapi.FormatTar:
		return nil
	default:
		return sandbox.InvalidField("format", "must be tar.gz, zip or tar")
	}
}

// packed is an archive that is being downloaded.
type packed struct {
	io.ReadCloser
	call   *call
	end    func()
	failed error // the error of each later Read
}

// Read reads the next bytes. Its errors have codes.
func (a *packed) Read(p []byte) (int, error) {
	if a.failed != nil {
		return 0, a.failed
	}
	n, err := a.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		a.failed = a.call.broken(err)
		err = a.failed
	}
	return n, err
}

// Close ends the download. It may be called again.
func (a *packed) Close() error {
	a.end()
	return a.ReadCloser.Close()
}
