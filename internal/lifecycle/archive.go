package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// FileContent is a file to write.
type FileContent struct {
	Path string
	// Mode is the permission bits of a new file; 0 means 0644. An existing file keeps its mode unless set.
	Mode    uint32
	Content []byte
}

// WriteFiles writes files one after the other, each atomically, with the parents
// they miss, and returns how many were written. It stops at the first that
// cannot be, and its error names that one. At most sandbox.ExecutionFiles files
// and sandbox.ExecutionFilesMax bytes are taken.
func (f Files) WriteFiles(ctx context.Context, c Caller, ref string, files []FileContent) (int, error) {
	total := 0
	for _, file := range files {
		total += len(file.Content)
	}
	if len(files) > sandbox.ExecutionFiles || total > sandbox.ExecutionFilesMax {
		return 0, sandbox.InvalidField("files", "must be at most %d with %d bytes together; upload more as an archive",
			sandbox.ExecutionFiles, sandbox.ExecutionFilesMax)
	}
	b, err := f.service.use(ctx, c, ref)
	if err != nil {
		return 0, err
	}
	for i, file := range files {
		opts := agentapi.WriteOptions{Mode: file.Mode, Parents: true}
		if _, err := f.of(b).WriteFile(ctx, file.Path, bytes.NewReader(file.Content), opts); err != nil {
			return i, about(file.Path, f.service.explain(ctx, b, err))
		}
	}
	return len(files), nil
}

// about names in an error for the caller the path it is about.
func about(path string, err error) error {
	var coded *sandbox.Error
	if !errors.As(err, &coded) || coded.Code == sandbox.Internal {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return sandbox.Wrap(coded.Code, err, "%s: %s", fieldText(path), coded.Message)
}

// UploadArchive unpacks an archive into a directory of a running sandbox; see
// agentapi.Files.UnpackArchive for what it does and refuses. An error of r is
// returned as it is. Formats are "tar.gz", "zip", "tar" and "", which is whatever it is.
func (f Files) UploadArchive(ctx context.Context, c Caller, ref, dir, format string, r io.Reader) error {
	return f.UnpackArchive(ctx, c, ref, dir, r, agentapi.ArchiveOptions{Format: agentapi.Format(format)})
}

// UnpackArchive is UploadArchive with options.
func (f Files) UnpackArchive(ctx context.Context, c Caller, ref, dir string, r io.Reader, opts agentapi.ArchiveOptions) error {
	if err := checkFormat(string(opts.Format)); err != nil {
		return err
	}
	b, err := f.service.use(ctx, c, ref)
	if err != nil {
		return err
	}
	defer b.activity.hold()()
	return f.service.explain(ctx, b, f.of(b).UnpackArchive(ctx, dir, r, opts))
}

// DownloadArchive packs a directory or file of a running sandbox; see
// agentapi.Files.PackArchive. Formats are as in UploadArchive, "" is tar.gz. The
// reader's errors have codes; the caller closes it.
func (f Files) DownloadArchive(ctx context.Context, c Caller, ref, path, format string) (io.ReadCloser, error) {
	if err := checkFormat(format); err != nil {
		return nil, err
	}
	b, err := f.service.use(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	r, err := f.of(b).PackArchive(ctx, path, agentapi.Format(format))
	if err != nil {
		return nil, f.service.explain(ctx, b, err)
	}
	return &explained{
		ReadCloser: r, release: sync.OnceFunc(b.activity.hold()),
		explain: func(err error) error { return f.service.explain(ctx, b, err) },
	}, nil
}

func checkFormat(format string) error {
	switch agentapi.Format(format) {
	case "", agentapi.FormatTarGzip, agentapi.FormatZip, agentapi.FormatTar:
		return nil
	default:
		return sandbox.InvalidField("format", "must be tar.gz, zip or tar")
	}
}

// explained is a reader whose errors get codes, and which counts as activity
// until it is closed.
type explained struct {
	io.ReadCloser
	release func()
	explain func(error) error
}

func (e *explained) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = e.explain(err)
	}
	return n, err
}

func (e *explained) Close() error {
	e.release()
	return e.ReadCloser.Close()
}

// FileWatch reports what happens to files of a sandbox. Next is called by one
// goroutine at a time, Close by any.
type FileWatch struct {
	watch   *agentapi.Watch
	explain func(error) error
}

// Watch begins to report what happens to a path of a running sandbox; see
// agentapi.Client.Watch. ctx holds for the whole of the watch, and the caller
// closes it. A watch that is open is no activity: it does not keep a sandbox from being idle.
func (s *Service) Watch(ctx context.Context, c Caller, ref, path string, recursive bool) (*FileWatch, error) {
	b, err := s.use(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	w, err := b.agent.Watch(ctx, path, recursive)
	if err != nil {
		return nil, s.explain(ctx, b, err)
	}
	return &FileWatch{watch: w, explain: func(err error) error { return s.explain(ctx, b, err) }}, nil
}

// Next returns the next event, the first of which is agentapi.WatchReady. The
// error is io.EOF after the watched path is gone; every other one has a code.
func (w *FileWatch) Next() (agentapi.FileEvent, error) {
	e, err := w.watch.Next()
	if err != nil && err != io.EOF {
		err = w.explain(err)
	}
	return e, err
}

// Close ends the watch. Closing twice does nothing.
func (w *FileWatch) Close() error { return w.watch.Close() }
