package index

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/durable"
)

const (
	// version is the format that is written. index.json of the versions before has the records.
	version = 3

	formatName     = "index.json"
	oldFormatName  = "index.v2.json"
	recordsName    = "records"
	generationName = "generation"
	descriptorType = ".json"
)

// errMissing reports an image directory without an index.
var errMissing = errors.New("is missing")

// directory is an image directory: its format and its descriptors.
type directory struct{ path string }

func (d directory) format() string     { return filepath.Join(d.path, formatName) }
func (d directory) records() string    { return filepath.Join(d.path, recordsName) }
func (d directory) generation() string { return filepath.Join(d.records(), generationName) }

func (d directory) descriptor(key string) string {
	return filepath.Join(d.records(), key+descriptorType)
}

// advice says how to repair a missing or damaged index.
func (d directory) advice() string {
	return fmt.Sprintf("put the file back, for example from a backup of the server, or move %s away to begin without images: "+
		"built-in images are built again by `modbox images build`, pulled images are pulled again, snapshots and changed root filesystems are only there", d.path)
}

// readFormat returns the version of the directory, and the records of a version that has them in
// index.json. Errors: errMissing.
func (d directory) readFormat() (int, []Record, error) {
	data, err := os.ReadFile(d.format())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, fmt.Errorf("image index %s %w", d.format(), errMissing)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("read image index: %w", err)
	}
	var index struct {
		Version int      `json:"version"`
		Images  []Record `json:"images"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return 0, nil, fmt.Errorf("image index %s is damaged: %w; %s", d.format(), err, d.advice())
	}
	if index.Version < 1 {
		return 0, nil, fmt.Errorf("image index %s is damaged: it has no version; %s", d.format(), d.advice())
	}
	if index.Version > version {
		return 0, nil, fmt.Errorf("read image index %s: its version is %d, this program knows %d", d.format(), index.Version, version)
	}
	for i := range index.Images {
		index.Images[i].Position = int64(i + 1)
	}
	return index.Version, index.Images, nil
}

// writeFormat makes the directory one of the current version. It keeps the file of a version before.
func (d directory) writeFormat() error {
	old := filepath.Join(d.path, oldFormatName)
	if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the image index of an earlier version: %w", err)
	}
	if err := os.Link(d.format(), old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the image index of an earlier version: %w", err)
	}
	return durable.WriteFile(d.format(), fmt.Appendf(nil, "{\"version\":%d}\n", version))
}

// stored is the content of a descriptor.
type stored struct {
	Version int `json:"version"`
	Record
}

// keys returns the keys of the descriptors. Its error wraps [fs.ErrNotExist] if there is no directory
// for them.
func (d directory) keys() ([]string, error) {
	entries, err := os.ReadDir(d.records())
	if err != nil {
		return nil, fmt.Errorf("read image index: %w", err)
	}
	var keys []string
	for _, e := range entries {
		if key, ok := strings.CutSuffix(e.Name(), descriptorType); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// read returns the record of a descriptor. Its error wraps [fs.ErrNotExist] if there is none.
func (d directory) read(key string) (Record, error) {
	name := d.descriptor(key)
	data, err := os.ReadFile(name)
	if err != nil {
		return Record{}, fmt.Errorf("read image index: %w", err)
	}
	var s stored
	err = json.Unmarshal(data, &s)
	if err == nil && (s.Version < 1 || s.Key() != key) {
		err = errors.New("it is not the descriptor of this name")
	}
	if err != nil {
		return Record{}, fmt.Errorf("image descriptor %s is damaged: %w; %s", name, err, d.advice())
	}
	if s.Version > version {
		return Record{}, fmt.Errorf("read image descriptor %s: its version is %d, this program knows %d", name, s.Version, version)
	}
	return s.Record, nil
}

// readAll returns the records of all descriptors.
func (d directory) readAll() ([]Record, error) {
	keys, err := d.keys()
	if err != nil {
		return nil, err
	}
	var list []Record
	for _, key := range keys {
		rec, err := d.read(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile; the change replaces the generation
		}
		if err != nil {
			return nil, err
		}
		list = append(list, rec)
	}
	return list, nil
}

// write writes the descriptors of records to the disk.
func (d directory) write(list []Record) error {
	for i := range list {
		data, err := json.MarshalIndent(stored{version, list[i]}, "", " ")
		if err != nil {
			return fmt.Errorf("write image descriptor: %w", err)
		}
		if err := durable.WriteFile(d.descriptor(list[i].Key()), data); err != nil {
			return err
		}
	}
	return nil
}

// remove removes descriptors.
func (d directory) remove(keys []string) error {
	for _, key := range keys {
		if err := os.Remove(d.descriptor(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove image descriptor: %w", err)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return durable.Sync(d.records())
}

// The content of the file of the generation.
const (
	changing = "changing\n"
	whole    = "whole\n"
)

// stamp replaces the file of the generation, so that other processes read the index again. A loss of
// power may lose it: no process has read an older one then.
func (d directory) stamp(content string) error {
	f, err := os.CreateTemp(d.records(), ".new-*")
	if err != nil {
		return fmt.Errorf("write generation of the image index: %w", err)
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), d.generation())
	}
	if err != nil {
		return fmt.Errorf("write generation of the image index: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// removeParts removes the files that writes left which a crash interrupted. No write is under way.
func (d directory) removeParts() error {
	parts, err := filepath.Glob(filepath.Join(d.records(), ".new-*"))
	for _, name := range parts {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		return fmt.Errorf("remove the remains of an interrupted change of the image index: %w", err)
	}
	return nil
}

// clear makes an empty directory of descriptors.
func (d directory) clear() error {
	if err := durable.MkdirAll(d.records()); err != nil {
		return err
	}
	keys, err := d.keys()
	if err != nil {
		return err
	}
	return d.remove(keys)
}

// isWhole reports whether the last change of the index was completed.
func (d directory) isWhole() bool {
	data, err := os.ReadFile(d.generation())
	return err == nil && string(data) == whole
}

// sortRecords sorts records by position.
func sortRecords(list []Record) {
	slices.SortStableFunc(list, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), a.UpdatedAt.Compare(b.UpdatedAt))
	})
}
