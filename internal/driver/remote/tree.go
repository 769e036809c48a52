package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sparse"
)

// A checkpoint is sent file by file: a message with the name and size of a file, its content as a body of chunks, and a message without a
// file at the end.

// maxFiles bounds the files of a checkpoint.
const maxFiles = 64

// file is a file of a checkpoint in a message.
type file struct {
	Name string
	Size int64
	// Hole says that the content is not sent: the file gets its size alone.
	Hole bool `json:",omitempty"`
	// Content is of a file that describes the checkpoint; only with opCanRestore.
	Content []byte `json:",omitempty"`
}

// filesOf returns the files of a checkpoint. Errors: NotFound when there is no directory.
func filesOf(dir string) (files []file, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, err // it says nothing about the checkpoint
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.NotFound, err, "there is no complete checkpoint")
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s in a checkpoint is not a file", e.Name())
		}
		files = append(files, file{Name: e.Name(), Size: info.Size()})
	}
	return files, nil
}

// describes reports whether a file of a checkpoint describes it, see [driver.Checkpointer].
func describes(name string) bool { return strings.HasSuffix(name, ".json") }

// checkName returns an error unless a checkpoint may have a file with a name.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > 255 {
		return sandbox.Errorf(sandbox.Unavailable, "the other side sends a file with the name %.300q", name)
	}
	return nil
}

// sendTree sends files of a checkpoint.
func sendTree(w io.Writer, dir string, files []file) error {
	for _, f := range files {
		if err := writeMessage(w, &response{File: &f}); err != nil {
			return err
		}
		if f.Hole {
			continue
		}
		content, err := os.Open(filepath.Join(dir, f.Name))
		if err != nil {
			return &sourceError{err}
		}
		err = sendFile(w, content, f.Size)
		_ = content.Close() // it was only read
		if err != nil {
			return err
		}
	}
	return writeMessage(w, &response{})
}

// sendFile sends the content of a file as a body.
func sendFile(w io.Writer, f io.Reader, size int64) error {
	body := &chunkWriter{w: w}
	buffer := make([]byte, maxChunk)
	for left := size; left > 0; {
		n, err := f.Read(buffer[:min(left, maxChunk)])
		if _, werr := body.Write(buffer[:n]); werr != nil {
			return werr
		}
		if left -= int64(n); err != nil && left > 0 {
			return &sourceError{unexpected(err)}
		}
	}
	return body.end()
}

// sourceError is the error of a file that is to be sent.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return "read a file to send: " + e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// ofCheckpoint gives the error of a file of a checkpoint its code: Unsupported if the file is damaged, as a restore on this host would.
func (e *sourceError) ofCheckpoint() error {
	for _, no := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EACCES, syscall.EPERM, syscall.EINTR} {
		if errors.Is(e, no) { // it concerns this process and may be gone the next time
			return sandbox.Wrap(sandbox.Unavailable, e, "the saved state cannot be read now; try again")
		}
	}
	return sandbox.Wrap(sandbox.Unsupported, e, "the saved state is damaged: a file cannot be read")
}

// treeLimits bound a checkpoint that the other side sends.
type treeLimits struct {
	holes bool
	bytes int64 // of all files; 0 for any number
}

// receiveTree writes the files of a checkpoint that the other side sends into an empty directory. space reserves the bytes of a file.
// Errors: DiskFull; of the other side; of the stream.
func receiveTree(r io.Reader, dir string, limits treeLimits, space func(n int64) (*ballast.Reservation, error)) error {
	left := limits.bytes
	for range maxFiles + 1 {
		var next response
		if err := readMessage(r, maxAnswer, &next); err != nil {
			return err
		}
		if next.Error != nil {
			return next.Error.decode()
		}
		if next.File == nil {
			return nil
		}
		if next.File.Hole && !limits.holes {
			return sandbox.Errorf(sandbox.Unavailable, "the other side does not send the content of %.300q", next.File.Name)
		}
		if left -= max(next.File.Size, 0); limits.bytes > 0 && left < 0 {
			return sandbox.Errorf(sandbox.Unavailable, "the worker sends a checkpoint of more than the %s that the sandbox may have", sandbox.ShowBytes(limits.bytes>>20<<20))
		}
		if err := receiveFile(r, dir, next.File, space); err != nil {
			return err
		}
	}
	return sandbox.Errorf(sandbox.Unavailable, "the other side sends more than %d files", maxFiles)
}

func receiveFile(r io.Reader, dir string, next *file, space func(n int64) (*ballast.Reservation, error)) (err error) {
	if err := checkName(next.Name); err != nil {
		return err
	}
	if next.Size < 0 {
		return sandbox.Errorf(sandbox.Unavailable, "the other side sends a file of %d bytes", next.Size)
	}
	need := next.Size
	if next.Hole {
		need = 0
	}
	reserved, err := space(need)
	if err != nil {
		return err
	}
	defer reserved.Release()
	f, err := os.OpenFile(filepath.Join(dir, next.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if next.Hole {
		return f.Truncate(next.Size)
	}
	out := sparse.NewWriter(f)
	n, err := io.CopyBuffer(counting{out, reserved}, struct{ io.Reader }{io.LimitReader(&chunkReader{r: r}, next.Size+1)}, make([]byte, maxChunk))
	if err != nil {
		return err
	}
	if n != next.Size {
		return sandbox.Errorf(sandbox.Unavailable, "the other side sends another size of a file than it said")
	}
	return out.Finish()
}

// counting writes and counts what was written.
type counting struct {
	w     io.Writer
	space *ballast.Reservation
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.space.Wrote(int64(n))
	return n, err
}

// spaceOn reserves bytes of a budget for files in dir. Errors: DiskFull.
func spaceOn(space *ballast.Budget, dir string) func(n int64) (*ballast.Reservation, error) {
	return func(n int64) (*ballast.Reservation, error) { return space.Reserve(dir, n, "save the sandbox") }
}

// transferError gives an error of a transfer its code: it says nothing about what was sent.
func transferError(ctx context.Context, err error) error {
	var coded *sandbox.Error
	switch {
	case err == nil, errors.As(err, &coded):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case ballast.IsFull(err):
		return sandbox.Wrap(sandbox.DiskFull, err, "the disk is full")
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "files could not be sent between the server and the worker; try again")
}
