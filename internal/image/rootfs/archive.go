package rootfs

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/image/compressed"
	"github.com/modbox/modbox/internal/sandbox"
)

// Files are files to copy into images: the files of a root filesystem, or of an archive. The names
// are in memory and the contents in a file: nothing is unpacked on the host. Only one goroutine at
// a time may use them.
type Files struct {
	tree   *Tree
	payer  sandbox.WorkspaceID // the workspace that the memory counts for
	used   ArchiveLimits       // the part of its limits that an archive has used
	sums   map[*node]string    // of the contents read so far, see [Copy.Key]
	closed func()
}

// Close closes the file and frees the memory.
func (f *Files) Close() { f.closed() }

// Files returns the files of the root filesystem in a file of this package; "" is an empty
// root filesystem. Their memory counts for a workspace. Errors: the errors of the file system;
// Unavailable when other trees use the memory; TooLarge.
func (s *Scratch) Files(ctx context.Context, owner sandbox.WorkspaceID, erofs string) (*Files, error) {
	f := &Files{tree: s.Tree(ctx, owner), payer: owner, sums: map[*node]string{}}
	f.closed = f.tree.Close
	if erofs == "" {
		return f, nil
	}
	below, err := OpenStack(erofs)
	if err != nil {
		f.closed()
		return nil, err
	}
	f.closed = func() {
		below.Close()
		f.tree.Close()
	}
	if err := f.tree.Read(below); err != nil {
		f.closed()
		return nil, err
	}
	return f, nil
}

// ArchiveLimits bound an archive.
type ArchiveLimits struct {
	Bytes   int64 // of the decompressed archive, and of its files together
	Entries int
}

// ReadArchive reads a tar, plain or compressed with gzip, bzip2 or zstd, to its end. The last of
// several entries with the same name counts. The memory of the files counts for a workspace.
//
// Errors: Invalid for another kind of file and for a hostile archive: names that are absolute or
// contain "..", devices, names below links; TooLarge; Unavailable when others have the memory.
func (s *Scratch) ReadArchive(ctx context.Context, owner sandbox.WorkspaceID, r io.Reader, most ArchiveLimits) (*Files, error) {
	plain, err := openArchive(r)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	contents, err := newTempSpool(s.dir)
	if err != nil {
		return nil, err
	}
	undo := cleanup.Make(func() { _ = contents.file.Close() })
	defer undo.Clean()
	t := s.Tree(ctx, owner)
	undo.Add(t.Close)
	a := archiveReader{tree: t, spool: contents, meter: Meter{Limits: Limits(most)}}
	if err := a.read(ctx, plain); err != nil {
		return nil, err
	}
	used := ArchiveLimits{Bytes: max(a.meter.stream, a.meter.files), Entries: max(a.meter.seen, a.tree.made)}
	return &Files{tree: a.tree, payer: owner, used: used, sums: map[*node]string{}, closed: undo.Release()}, nil
}

// archiveReader puts the entries of an archive into a tree.
type archiveReader struct {
	tree  *Tree
	spool *spool
	meter Meter
}

func (a *archiveReader) read(ctx context.Context, r io.Reader) error {
	r = a.meter.Reader(r)
	tr := tar.NewReader(r)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return archiveError(err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if hdr.Typeflag == tar.TypeXGlobalHeader {
			continue // it describes no file
		}
		if err := a.meter.Entry(hdr.Size); err != nil {
			return archiveError(err)
		}
		if err := a.entry(hdr, tr); err != nil {
			return archiveError(err)
		}
		if err := a.meter.imply(a.tree); err != nil {
			return archiveError(err)
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // bytes after the archive's end
		return archiveError(err)
	}
	return a.spool.finish()
}

func (a *archiveReader) entry(hdr *tar.Header, content io.Reader) error {
	if err := cleanNames(hdr); err != nil {
		return err
	}
	clean := path.Clean(hdr.Name)
	a.tree.layer++ // each entry may replace earlier entries
	if hdr.Typeflag == tar.TypeLink {
		return a.tree.link(clean, hdr.Linkname)
	}
	n, err := newNode(clean, hdr)
	if err != nil {
		return err
	}
	switch {
	case n.mode&(fs.ModeDevice|fs.ModeNamedPipe) != 0:
		return sandbox.Errorf(sandbox.Invalid, "it has %.300q, which is neither file, directory nor link", clean)
	case n.mode.IsRegular():
		if n.content, err = a.spool.add(content); err != nil {
			return err
		}
	}
	return a.tree.put(clean, n)
}

// archiveError makes an error say that it is about an archive.
func archiveError(err error) error {
	switch code := sandbox.CodeOf(err); {
	case code == sandbox.Invalid || code == sandbox.TooLarge:
		return sandbox.Wrap(code, err, "the archive: %s", messageOf(err))
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong), errors.Is(err, io.ErrUnexpectedEOF):
		return sandbox.Wrap(sandbox.Invalid, err, "it is not a complete tar archive")
	}
	return fmt.Errorf("read archive: %w", err)
}

// messageOf returns the public message of an error with a code.
func messageOf(err error) string {
	var coded *sandbox.Error
	if errors.As(err, &coded) {
		return coded.Message
	}
	return ""
}

// openArchive returns the decompressed stream, which the caller closes. Errors: Invalid;
// Unsupported.
func openArchive(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte("BZh")):
		return io.NopCloser(compressed.Reader{From: bzip2.NewReader(b)}), nil
	case bytes.Equal(magic, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return nil, sandbox.Errorf(sandbox.Unsupported, "archives compressed with xz cannot be read here; use gzip or zstd")
	}
	return compressed.Open(b)
}

// isArchive reports whether a file is an archive that [Scratch.ReadArchive] reads, or such an
// archive compressed with xz.
func isArchive(content io.Reader) bool {
	plain, err := openArchive(content)
	if err != nil {
		return sandbox.CodeOf(err) == sandbox.Unsupported
	}
	defer plain.Close()
	_, err = tar.NewReader(io.LimitReader(plain, 1<<20)).Next()
	return err == nil
}

// ReadFile returns the content of a file, and follows symbolic links. Errors: FileNotFound if it is no
// file; TooLarge for more than most bytes.
func (f *Files) ReadFile(name string, most int64) ([]byte, error) {
	_, n, err := f.tree.resolve(name)
	if err != nil {
		return nil, err
	}
	if n == nil || !n.mode.IsRegular() {
		return nil, sandbox.Errorf(sandbox.FileNotFound, "there is no file %.300q", name)
	}
	if n.content.Size() > most {
		return nil, sandbox.Errorf(sandbox.TooLarge, "%.300q has more than %d bytes", name, most)
	}
	return io.ReadAll(io.NewSectionReader(n.content, 0, n.content.Size()))
}

// HasDir reports whether a directory exists, and follows symbolic links.
func (f *Files) HasDir(name string) (bool, error) {
	_, n, err := f.tree.resolve(name)
	return n != nil && n.mode.IsDir(), err
}

// resolve follows the symbolic links of a path, including the last element, as a system with this
// root would, and returns the resolved path and its node; nil if it does not exist. Errors: Invalid
// for too many links, and for a path through a file.
func (t *Tree) resolve(name string) (string, *node, error) {
	rest := strings.Split(name, "/")
	var names []string
	way := []*node{t.root} // the nodes of the path so far; nil for a missing node
	for links, steps := 0, 0; len(rest) > 0; steps++ {
		part, at := rest[0], way[len(way)-1]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(names) > 0 {
				names, way = names[:len(names)-1], way[:len(way)-1]
			}
			continue
		}
		if at != nil && !at.mode.IsDir() {
			return "", nil, sandbox.Errorf(sandbox.Invalid, "%.300q leads through %.300q, which is not a directory", name, path.Join(names...))
		}
		next := at.name(part).node
		if next == nil || next.mode&fs.ModeSymlink == 0 {
			names, way = append(names, part), append(way, next)
			continue
		}
		rest = append(strings.Split(next.target, "/"), rest...)
		if links++; links > maxLinks || steps+len(rest) > maxSteps {
			return "", nil, sandbox.Errorf(sandbox.Invalid, "%.300q leads through too many symbolic links", name)
		}
		if path.IsAbs(next.target) {
			names, way = nil, way[:1]
		}
	}
	clean := path.Join(names...)
	if clean == "" {
		clean = "."
	}
	if len(clean) > pathMax {
		return "", nil, sandbox.Errorf(sandbox.Invalid, "%.300q is too long a path", name)
	}
	return clean, way[len(way)-1], nil
}
