// Package embedded carries the programs that run inside sandboxes or as
// sandboxes, packed into the modbox binary by the build, and unpacks them.
package embedded

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed all:files
var files embed.FS

// Names of the programs.
const (
	Agent   = "modbox-agent"
	Sandbox = "modbox-sandbox"
)

// ErrNotBuilt means that this binary was built without the programs.
var ErrNotBuilt = errors.New(`this modbox was built without its agent and sandbox programs: run "make build"`)

// Paths are the unpacked programs.
type Paths struct{ Agent, Sandbox string }

// Unpack puts the programs below dir, each as SHA256/NAME, and returns their
// absolute paths. Programs that are there already are compared with their hash
// and replaced when they differ. It may run at the same time in other processes.
//
// Errors: [ErrNotBuilt].
func Unpack(dir string) (Paths, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Paths{}, err
	}
	var p Paths
	if p.Agent, err = unpack(files, dir, Agent); err != nil {
		return Paths{}, err
	}
	p.Sandbox, err = unpack(files, dir, Sandbox)
	return p, err
}

// unpack finds files/NAME.gz and files/NAME.sha256, which holds the hash of the
// unpacked program in hex.
func unpack(from fs.FS, dir, name string) (string, error) {
	sum, err := fs.ReadFile(from, "files/"+name+".sha256")
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNotBuilt
	}
	if err != nil {
		return "", fmt.Errorf("read hash of %s: %w", name, err)
	}
	want := strings.TrimSpace(string(sum))
	path := filepath.Join(dir, want, name)
	if got, err := hashFile(path); err == nil && got == want {
		return path, nil
	}
	packed, err := fs.ReadFile(from, "files/"+name+".gz")
	if err != nil {
		return "", fmt.Errorf("read packed %s: %w", name, err)
	}
	if err := write(path, packed, want); err != nil {
		return "", fmt.Errorf("unpack %s: %w", name, err)
	}
	return path, nil
}

// write unpacks a program to path, all or nothing.
func write(path string, packed []byte, want string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".unpack-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails when it was renamed, as it should
	defer tmp.Close()
	zr, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(tmp, h), zr); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("its hash is %s, want %s", got, want)
	}
	if err := errors.Join(tmp.Chmod(0o755), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
