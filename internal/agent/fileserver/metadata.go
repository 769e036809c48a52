package fileserver

import (
	"errors"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agentapi"
)

// metadataPrefix begins the names of the extended attributes that are the metadata of a file.
const metadataPrefix = "user."

// setMetadata gives a new file its metadata.
func setMetadata(f *os.File, metadata map[string]string) error {
	for key, value := range metadata {
		if err := unix.Fsetxattr(int(f.Fd()), metadataPrefix+key, []byte(value), 0); err != nil {
			return &os.PathError{Op: "setxattr", Path: f.Name(), Err: err}
		}
	}
	return nil
}

// metadataAt returns the metadata of the file or directory with a name, and nil where there is none.
func metadataAt(name string) map[string]string {
	return readMetadata(func(b []byte) (int, error) { return unix.Llistxattr(name, b) },
		func(attr string, b []byte) (int, error) { return unix.Lgetxattr(name, attr, b) })
}

// metadataOf is metadataAt for an open file.
func metadataOf(f *os.File) map[string]string {
	fd := int(f.Fd())
	return readMetadata(func(b []byte) (int, error) { return unix.Flistxattr(fd, b) },
		func(attr string, b []byte) (int, error) { return unix.Fgetxattr(fd, attr, b) })
}

// readMetadata reads extended attributes. Programs may have set any: it skips binary values, and attributes that
// exceed the limits.
func readMetadata(list func([]byte) (int, error), get func(string, []byte) (int, error)) map[string]string {
	var few [512]byte // most files have no attributes, and one call finds that out
	names := few[:]
	n, err := list(names)
	if errors.Is(err, unix.ERANGE) {
		names = make([]byte, 64<<10) // all that Linux has
		n, err = list(names)
	}
	if err != nil || n <= 0 {
		return nil
	}
	attrs := strings.Split(strings.TrimRight(string(names[:n]), "\x00"), "\x00")
	slices.Sort(attrs)
	var metadata map[string]string
	var value [agentapi.MaxMetadataBytes]byte
	left := len(value)
	for _, attr := range attrs {
		key, ok := strings.CutPrefix(attr, metadataPrefix)
		if !ok || key == "" || !utf8.ValidString(key) || len(metadata) == agentapi.MaxMetadata {
			continue
		}
		n, err := get(attr, value[:])
		if err != nil || len(key)+n > left || !utf8.Valid(value[:n]) {
			continue
		}
		if metadata == nil {
			metadata = map[string]string{}
		}
		metadata[key], left = string(value[:n]), left-len(key)-n
	}
	return metadata
}
