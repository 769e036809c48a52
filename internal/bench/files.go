package bench

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/modbox/modbox/client"
)

// fileBytes is the size of the file that is copied in and out.
const fileBytes = 100 << 20

// RandomFile makes a file of fileBytes that does not compress.
func RandomFile() (path string, err error) {
	random, err := os.Open("/dev/urandom")
	if err != nil {
		return "", err
	}
	defer random.Close()
	f, err := os.CreateTemp("", "bench")
	if err != nil {
		return "", err
	}
	if _, err = io.CopyN(f, random, fileBytes); err == nil {
		err = f.Close()
	}
	return f.Name(), err
}

// RemoteFile is where the file is in sandbox and container.
const RemoteFile = "/var/tmp/file"

func (m *Server) upload(id, path string) Op {
	return func(ctx context.Context) (time.Duration, error) {
		return Timed(func() error {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = m.c.Sandboxes.Files.Write(ctx, id, RemoteFile, f, client.WriteOptions{})
			return err
		})
	}
}

func (m *Server) download(id, path string) Op {
	return func(ctx context.Context) (time.Duration, error) {
		return Timed(func() error {
			r, err := m.c.Sandboxes.Files.Read(ctx, id, RemoteFile)
			if err != nil {
				return err
			}
			defer r.Close()
			f, err := os.Create(path)
			if err != nil {
				return err
			}
			defer f.Close()
			n, err := io.Copy(f, r)
			if err == nil && n != fileBytes {
				err = io.ErrUnexpectedEOF
			}
			return err
		})
	}
}
