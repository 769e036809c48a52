package fileserver

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
)

var (
	errTooManyEntries = answer.Invalid("the archive has more than %d entries", agentapi.MaxArchiveEntries)
	errBomb           = answer.Invalid("the archive unpacks to more than %d times its size", agentapi.MaxArchiveRatio)
)

const (
	// maxZipDirectory bounds the directory of a zip, which is read into memory.
	maxZipDirectory = 32 << 20
	// maxLink is the maximum length of a symlink's target, as in Linux.
	maxLink = 4096
	// tarBlock is the block size of tar.
	tarBlock = 512
	// The systems that make zips with Unix modes.
	zipUnix, zipDarwin = 3, 19
)

// archiveFormat reads the parameter format.
func archiveFormat(q url.Values) (agentapi.Format, error) {
	switch f := agentapi.Format(q.Get("format")); f {
	case "", agentapi.FormatTarGzip, agentapi.FormatZip, agentapi.FormatTar:
		return f, nil
	default:
		return "", answer.Invalid("the archive format %q is not known; use tar.gz, zip or tar", f)
	}
}

// archiveSource reads the archive as it arrives.
type archiveSource struct {
	ctx  context.Context
	body *bufio.Reader
	raw  io.Reader
	in   int64 // bytes read
	err  error // the error that ended the body, unless it is EOF
}

func newArchiveSource(ctx context.Context, r io.Reader) *archiveSource {
	s := &archiveSource{ctx: ctx, raw: r}
	s.body = bufio.NewReaderSize(readerFunc(s.receive), copyBytes)
	return s
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (s *archiveSource) receive(p []byte) (int, error) {
	n, err := s.raw.Read(p)
	s.in += int64(n)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// detect returns the format that the first bytes indicate; "" when they indicate none.
func (s *archiveSource) detect() (agentapi.Format, error) {
	head, err := s.body.Peek(tarBlock)
	if err != nil && err != io.EOF {
		return "", s.damaged(err)
	}
	switch {
	case len(head) == 0:
		return "", answer.Invalid("the archive is empty")
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return agentapi.FormatTarGzip, nil
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return agentapi.FormatZip, nil
	case len(head) == tarBlock && (string(head[257:262]) == "ustar" || len(bytes.Trim(head, "\x00")) == 0):
		return agentapi.FormatTar, nil
	default:
		return "", nil
	}
}

// damaged explains an error that occurred while the archive was read.
func (s *archiveSource) damaged(err error) error {
	var known *agentapi.Error
	var system *fs.PathError
	switch {
	case s.err != nil:
		return s.err
	case s.ctx.Err() != nil:
		return s.ctx.Err()
	case errors.As(err, &known), errors.As(err, &system):
		return err
	default:
		return answer.Invalid("the archive is damaged: %v", err)
	}
}

// gauge passes on the content of an archive until its size is out of proportion to the archive's,
// or the request ends. It explains errors.
type gauge struct {
	src *archiveSource
	r   io.Reader
	out int64
}

func (g *gauge) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	g.out += int64(n)
	switch {
	case g.src.ctx.Err() != nil:
		return n, g.src.ctx.Err()
	case g.out > agentapi.ArchiveRatioFrom && g.out/agentapi.MaxArchiveRatio > g.src.in:
		return n, errBomb
	case err != nil && err != io.EOF:
		return n, g.src.damaged(err)
	default:
		return n, err
	}
}

func (u *unpacker) untarGzip(src *archiveSource) error {
	z, err := gzip.NewReader(src.body)
	if err != nil {
		return src.damaged(err)
	}
	return u.untar(src, &gauge{src: src, r: z})
}

// untar extracts a stream of tar to its very end, where gzip has its checksum.
func (u *unpacker) untar(src *archiveSource, stream io.Reader) error {
	tr := tar.NewReader(stream)
	content := &gauge{src: src, r: tr} // a file with holes is larger than the stream
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return src.damaged(err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		e, err := tarEntry(h)
		if err != nil {
			return err
		}
		if err := u.put(e, content); err != nil {
			return err
		}
	}
	if _, err := copyAll(io.Discard, stream); err != nil {
		return src.damaged(err)
	}
	return nil
}

func tarEntry(h *tar.Header) (entry, error) {
	e := entry{name: h.Name, mode: fs.FileMode(h.Mode) & fs.ModePerm, modTime: h.ModTime, target: h.Linkname}
	switch h.Typeflag {
	case tar.TypeReg:
	case tar.TypeDir:
		e.mode |= fs.ModeDir
	case tar.TypeSymlink:
		e.mode |= fs.ModeSymlink
	case tar.TypeLink:
		e.mode |= fs.ModeIrregular
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return e, errSpecial(h.Name)
	case tar.TypeGNUSparse:
	default:
		return e, answer.Invalid("the archive has %q as an entry of the unknown type %q", h.Name, h.Typeflag)
	}
	return e, nil
}

func errSpecial(name string) error {
	return answer.Invalid("the archive has %q as a device, pipe or socket", name)
}

// unzip extracts a zip, whose directory is at its end. The zip is stored meanwhile in an unlinked
// file, so that nothing remains in any case.
func (u *unpacker) unzip(src *archiveSource) error {
	name := tempPrefix + rand.Text()
	spool, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer spool.Close()
	if err := u.root.Remove(name); err != nil {
		return err
	}
	size, err := save(spool, src.body)
	if err != nil {
		return src.damaged(err)
	}
	list := &budgetReader{r: spool, counting: true, left: maxZipDirectory}
	z, err := zip.NewReader(list, size)
	list.counting = false
	switch {
	case list.left < 0, err == nil && len(z.File) > agentapi.MaxArchiveEntries:
		return errTooManyEntries
	case err != nil:
		return src.damaged(err)
	}
	entries := make([]entry, len(z.File))
	var total uint64
	for i, f := range z.File {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		if entries[i], err = u.zipEntry(f); err != nil {
			return err
		}
		total += min(f.UncompressedSize64, 1<<50)
	}
	if total > agentapi.ArchiveRatioFrom && total/agentapi.MaxArchiveRatio > uint64(size) {
		return errBomb
	}
	content := &gauge{src: src}
	for i, f := range z.File {
		if err := u.putZipped(entries[i], f, content); err != nil {
			return err
		}
	}
	return nil
}

// zipEntry describes an entry of a zip, and refuses everything that can be refused before
// extraction begins.
func (u *unpacker) zipEntry(f *zip.File) (entry, error) {
	e := entry{name: f.Name, mode: f.Mode(), modTime: f.Modified}
	if by := f.CreatorVersion >> 8; by != zipUnix && by != zipDarwin || e.mode.Perm() == 0 {
		e.mode = e.mode.Type() | defaultFileMode
		if e.mode.IsDir() {
			e.mode = fs.ModeDir | defaultDirMode
		}
	}
	if strings.HasSuffix(f.Name, "/") {
		e.mode = e.mode.Perm() | fs.ModeDir
	}
	name, err := localName(f.Name)
	switch {
	case err != nil:
		return e, err
	case f.Flags&1 != 0:
		return e, answer.Invalid("the archive has %q in encrypted form", f.Name)
	case e.mode.Type()&^(fs.ModeDir|fs.ModeSymlink) != 0:
		return e, errSpecial(f.Name)
	case e.mode.Type() != fs.ModeSymlink:
		return e, nil
	case f.UncompressedSize64 > maxLink:
		return e, answer.Invalid("the archive has the symlink %q with %d bytes", f.Name, f.UncompressedSize64)
	}
	r, err := f.Open()
	if err != nil {
		return e, answer.Invalid("the archive is damaged: %s: %v", f.Name, err)
	}
	defer r.Close()
	target, err := io.ReadAll(io.LimitReader(r, maxLink))
	if err != nil {
		return e, answer.Invalid("the archive is damaged: %s: %v", f.Name, err)
	}
	e.target = string(target)
	return e, u.checkTarget(path.Clean(name), e.target)
}

func (u *unpacker) putZipped(e entry, f *zip.File, content *gauge) error {
	if !e.mode.IsRegular() {
		return u.put(e, nil)
	}
	r, err := f.Open()
	if err != nil {
		return content.src.damaged(err)
	}
	defer r.Close()
	content.r = r
	return u.put(e, content)
}

// budgetReader reads and counts at most as many bytes as remain in its budget.
type budgetReader struct {
	r        io.ReaderAt
	counting bool
	left     int64
}

func (b *budgetReader) ReadAt(p []byte, off int64) (int, error) {
	if b.counting {
		if b.left -= int64(len(p)); b.left < 0 {
			return 0, errTooManyEntries
		}
	}
	return b.r.ReadAt(p, off)
}
