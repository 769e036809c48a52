package template

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

// writeContext writes the context of a build: the files of each COPY in the directory of its step.
// The uploads are archives of strangers; the builder checks the names that come of them.
func writeContext(w io.Writer, steps []Step, files uploads) error {
	out := tar.NewWriter(w)
	for i := range steps {
		if steps[i].Type != stepCopy {
			continue
		}
		up := files[steps[i].FilesHash]
		if up == nil {
			return sandbox.InvalidField("steps", "step %d needs files that were not uploaded", i+1)
		}
		if err := addFiles(out, directory(i+1), io.NewSectionReader(up.file, 0, up.size)); err != nil {
			return err
		}
	}
	return out.Close()
}

// gzipMagic begins files that are compressed with gzip.
var gzipMagic = []byte{0x1f, 0x8b}

// addFiles copies the entries of an archive, a tar or a tar.gz, into a directory.
func addFiles(out *tar.Writer, dir string, archive io.Reader) error {
	in := bufio.NewReader(archive)
	var r io.Reader = in
	if start, err := in.Peek(len(gzipMagic)); err == nil && bytes.Equal(start, gzipMagic) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return badArchive(err)
		}
		r = z
	}
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return badArchive(err)
		}
		h.Name = dir + "/" + strings.TrimPrefix(h.Name, "./")
		if h.Typeflag == tar.TypeLink {
			h.Linkname = dir + "/" + strings.TrimPrefix(h.Linkname, "./")
		}
		h.Format = tar.FormatUnknown // its name is longer now
		if err := out.WriteHeader(h); err != nil {
			return readable(err)
		}
		if _, err := io.Copy(out, files); err != nil {
			return readable(err)
		}
	}
}

// readable keeps an error of the reader of the context, and explains an error of the archive.
func readable(err error) error {
	if errors.Is(err, io.ErrClosedPipe) || sandbox.CodeOf(err) != sandbox.Internal {
		return err
	}
	return badArchive(err)
}

func badArchive(err error) error {
	return sandbox.Wrap(sandbox.Invalid, err, "the uploaded files are not a readable tar")
}
