// Package rootdir has the files and the user database that the commands of a sandbox see.
package rootdir

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
)

// Root is the directory that commands see as /. "" is / itself; another is for tests.
type Root string

// Path returns the path under which this process finds an absolute path of the sandbox.
func (r Root) Path(path string) string {
	if r == "" {
		return filepath.Clean(path)
	}
	return filepath.Join(string(r), filepath.Join("/", path))
}

// StartDir returns the default working directory of commands, which is also the base of relative
// paths: the configured directory, else the user's home if it exists, else /.
func (r Root) StartDir(acc Account, configured string) string {
	if configured != "" {
		return configured
	}
	if filepath.IsAbs(acc.Home) {
		if info, err := os.Stat(r.Path(acc.Home)); err == nil && info.IsDir() {
			return acc.Home
		}
	}
	return "/"
}

// ErrNotRegular reports that a file is neither a regular file nor a directory.
var ErrNotRegular = errors.New("not a regular file")

// OpenRegular opens a regular file for reading, and never blocks on a pipe or device. Errors:
// [ErrNotRegular]; [agentapi.CodeIsDir]; the file system's.
func OpenRegular(path string) (*os.File, error) {
	return OpenRegularWith(path, func(flags int) (*os.File, error) { return os.OpenFile(path, flags, 0) })
}

// OpenRegularWith is [OpenRegular] for a file that open opens; path is its name in errors.
func OpenRegularWith(path string, open func(flags int) (*os.File, error)) (*os.File, error) {
	f, err := open(os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY)
	if errors.Is(err, unix.ENXIO) { // a socket, or a device without a driver
		return nil, ErrNotRegular
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = answer.Errorf(agentapi.CodeIsDir, "%s is a directory", path)
	case !info.Mode().IsRegular():
		err = ErrNotRegular
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
