package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/modbox/modbox/client"
)

// Files are the files of a sandbox. A path is absolute, or relative to the image's working
// directory.
type Files struct {
	client *client.Client
	id     string
}

// Write writes a file, and makes missing parent directories.
func (f *Files) Write(ctx context.Context, path string, content []byte) error {
	return f.WriteFrom(ctx, path, bytes.NewReader(content), client.WriteOptions{Parents: true})
}

// WriteFrom writes what r has to a file.
func (f *Files) WriteFrom(ctx context.Context, path string, r io.Reader, o client.WriteOptions) error {
	_, err := f.client.Sandboxes.Files.Write(ctx, f.id, path, r, o)
	return err
}

// Read returns the content of a file. Errors: FileNotFound.
func (f *Files) Read(ctx context.Context, path string) (content []byte, err error) {
	r, err := f.client.Sandboxes.Files.Read(ctx, f.id, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(r)
}

// Open reads a file of any size. The caller closes the reader. Errors: FileNotFound.
func (f *Files) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	return f.client.Sandboxes.Files.Read(ctx, f.id, path)
}

// List returns the entries of a directory. Errors: FileNotFound.
func (f *Files) List(ctx context.Context, path string) ([]client.FileInfo, error) {
	return f.client.Sandboxes.Files.List(f.id, path).Collect(ctx)
}

// Stat describes a path. Errors: FileNotFound.
func (f *Files) Stat(ctx context.Context, path string) (*client.FileInfo, error) {
	return f.client.Sandboxes.Files.Stat(ctx, f.id, path)
}

// Exists reports whether there is a file or directory at a path.
func (f *Files) Exists(ctx context.Context, path string) (bool, error) {
	_, err := f.client.Sandboxes.Files.Stat(ctx, f.id, path)
	if errors.Is(err, client.FileNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Mkdir makes a directory with its parents.
func (f *Files) Mkdir(ctx context.Context, path string) error {
	_, err := f.client.Sandboxes.Files.Mkdir(ctx, f.id, path, true)
	return err
}

// Move moves a file or directory, and replaces a file at the new path. Errors: FileNotFound.
func (f *Files) Move(ctx context.Context, from, to string) error {
	_, err := f.client.Sandboxes.Files.Move(ctx, f.id, from, to, true)
	return err
}

// Remove removes a file, or a directory with all that is in it. Errors: FileNotFound.
func (f *Files) Remove(ctx context.Context, path string) error {
	return f.client.Sandboxes.Files.Delete(ctx, f.id, path, true)
}
