// Package stack has the list of layers in the file of a root filesystem.
//
// The file of a root filesystem is an EROFS. It has either all files, or it is a layer: it has the
// files that differ from another root filesystem, which lies below it. The beginning of a layer's
// file, which EROFS leaves to others, lists the digests of all root filesystems below, the nearest
// first. So the digest of a layer also depends on everything below it. The files of all of them are
// in the same directory.
package stack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Max is the number of root filesystems that may lie below a layer: each makes the lookup of a name
// in a sandbox slower.
const Max = 8

// suffix ends the names of the files, and prefix begins digests.
const (
	suffix = ".erofs"
	prefix = "sha256:"
)

// The list: magic, number of digests, digests. EROFS leaves the first 1024 bytes to others.
const (
	magic       = "modbox layer 1\n"
	digestBytes = 32
	listBytes   = len(magic) + 1 + Max*digestBytes
)

// Write writes the list of a layer into its file.
func Write(w io.WriterAt, below []string) error {
	if len(below) == 0 || len(below) > Max {
		return fmt.Errorf("a layer lies over %d root filesystems, want 1 to %d", len(below), Max)
	}
	list := append([]byte(magic), byte(len(below)))
	for _, digest := range below {
		sum, err := hex.DecodeString(strings.TrimPrefix(digest, prefix))
		if err != nil || len(sum) != digestBytes {
			return fmt.Errorf("a layer lies over %q, which is no digest", digest)
		}
		list = append(list, sum...)
	}
	_, err := w.WriteAt(list, 0)
	return err
}

// Read returns the list of a layer, and nothing for a file with all files.
func Read(r io.ReaderAt) (below []string, err error) {
	var list [listBytes]byte
	if n, err := r.ReadAt(list[:], 0); err != nil && (!errors.Is(err, io.EOF) || n < len(list)) {
		return nil, fmt.Errorf("read list of layers: %w", err)
	}
	rest, ok := bytes.CutPrefix(list[:], []byte(magic))
	if !ok {
		return nil, nil
	}
	n := int(rest[0])
	if n == 0 || n > Max {
		return nil, fmt.Errorf("the list of layers has %d entries", n)
	}
	for sum := range n {
		at := 1 + sum*digestBytes
		below = append(below, prefix+hex.EncodeToString(rest[at:at+digestBytes]))
	}
	return below, nil
}

// ReadFile is Read for the file with a name. Errors: also the file system's.
func ReadFile(name string) (below []string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f)
}

// Open opens the file of a root filesystem and the files of all below it, the topmost first. The
// caller closes them. Errors: the file system's.
func Open(name string) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			Close(files)
			files = nil
		}
	}()
	top, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	files = append(files, top)
	below, err := Read(top)
	if err != nil {
		return files, fmt.Errorf("%s: %w", name, err)
	}
	for _, digest := range below {
		f, err := os.Open(filepath.Join(filepath.Dir(name), FileName(digest)))
		if err != nil {
			return files, fmt.Errorf("open a layer below %s: %w", name, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// Close closes files that were only read.
func Close(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // it was only read
	}
}

// FileName returns the name of the file of a root filesystem.
func FileName(digest string) string { return strings.TrimPrefix(digest, prefix) + suffix }
