package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// descriptors is the directory, in an image store, of the descriptors of the images.
const descriptors = "records"

// format is the version of the format of image stores that this program knows.
const format = 3

// linkImages makes in to an image store with the images of from that have the digests. It has their
// descriptors unchanged, including fields that this version does not know. The database of the
// backup also has rows of other images: a server drops rows without a descriptor and without files.
func linkImages(from, to string, digests []string) error {
	entries, err := os.ReadDir(filepath.Join(from, descriptors))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	store := imageStore{from: from, to: to}
	for _, dir := range []string{"images", filepath.Join("layout", "blobs", "sha256"), descriptors} {
		if err := os.MkdirAll(filepath.Join(to, dir), 0o700); err != nil {
			return err
		}
	}
	if digests, err = store.withBelow(entries, digests); err != nil {
		return err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		if err := store.takeDescribed(filepath.Join(descriptors, e.Name()), digests); err != nil {
			return err
		}
	}
	return errors.Join(store.writeLayout(), store.link("index.json"))
}

// away returns the root filesystems that are needed, and that only the object store has. A backup does not have them.
func (src *Source) away(ctx context.Context, o Options) (away []string, err error) {
	if src.Stored == nil || o.Images == ImagesNone {
		return nil, nil
	}
	stored, err := src.Stored(ctx)
	if err != nil || len(stored) == 0 {
		return nil, err
	}
	needed, err := src.Digests.DigestsInUse(ctx)
	if err != nil {
		return nil, err
	}
	store := imageStore{from: filepath.Join(src.StateDir, images)}
	entries, err := os.ReadDir(filepath.Join(store.from, descriptors))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if needed, err = store.withBelow(entries, needed); err != nil {
		return nil, err
	}
	slices.Sort(needed)
	for _, digest := range slices.Compact(needed) {
		if !slices.Contains(stored, digest) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(store.from, rootfsPath(digest))); errors.Is(err, fs.ErrNotExist) {
			away = append(away, digest)
		}
	}
	return away, nil
}

// rootfsPath is the name of a root filesystem in an image store.
func rootfsPath(digest string) string {
	return filepath.Join("images", strings.TrimPrefix(digest, "sha256:")+".erofs")
}

// withBelow adds to digests the digests below these root filesystems.
func (s *imageStore) withBelow(entries []os.DirEntry, digests []string) ([]string, error) {
	all := slices.Clone(digests)
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" {
			continue
		}
		var rec struct {
			Digest string   `json:"digest"`
			Below  []string `json:"below"`
		}
		found, err := readJSON(filepath.Join(s.from, descriptors, e.Name()), &rec)
		if err != nil {
			return nil, err
		}
		if found && slices.Contains(digests, rec.Digest) {
			all = append(all, rec.Below...)
		}
	}
	return all, nil
}

// takeDescribed links a descriptor, and the image that it describes, if the image has one of the digests.
func (s *imageStore) takeDescribed(name string, digests []string) error {
	var rec struct {
		Digest   string `json:"digest"`
		Manifest struct {
			Digest string `json:"digest"`
		} `json:"manifest"`
	}
	found, err := readJSON(filepath.Join(s.from, name), &rec)
	if err != nil || !found || !slices.Contains(digests, rec.Digest) {
		return err
	}
	err = s.take(rec.Digest, rec.Manifest.Digest)
	if err == nil {
		err = s.link(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed or damaged; its users report it
	}
	return err
}

// indexed returns an error when a store has root filesystems but no index, or the index of an
// earlier version: a backup would lack them, or be useless.
func indexed(store string) error {
	name := filepath.Join(store, "index.json")
	var index struct {
		Version int `json:"version"`
	}
	found, err := readJSON(name, &index)
	if err != nil {
		return err
	}
	if found && index.Version < format {
		return fmt.Errorf("image index %s is of an earlier version; start the server once, or make a backup without images", name)
	}
	files, err := os.ReadDir(filepath.Join(store, "images"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(files) > 0 && !found {
		return fmt.Errorf("image index %s is missing, and there are files of images beside it; put the file back, or make a backup without images", name)
	}
	return nil
}

// imageStore is a new image store, made from another.
type imageStore struct {
	from, to string
	kept     []string // digests of manifests
}

// take links an image: its root filesystem, and the blobs that its OCI manifest names.
func (s *imageStore) take(digest, manifest string) error {
	if err := s.link(rootfsPath(digest)); err != nil {
		return err
	}
	type blob struct {
		Digest string `json:"digest"`
	}
	var m struct {
		Config blob   `json:"config"`
		Layers []blob `json:"layers"`
	}
	if found, err := readJSON(filepath.Join(s.from, blobPath(manifest)), &m); err != nil {
		return err
	} else if !found {
		return nil // removed after a failed check; sandboxes do not need it
	}
	for _, b := range append(m.Layers, m.Config, blob{manifest}) {
		// Layers of other registries are not always stored.
		if err := s.link(blobPath(b.Digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	s.kept = append(s.kept, manifest)
	return nil
}

func blobPath(digest string) string {
	return filepath.Join("layout", "blobs", "sha256", filepath.Base(strings.TrimPrefix(digest, "sha256:")))
}

func (s *imageStore) link(name string) error {
	if err := link(filepath.Join(s.from, name), filepath.Join(s.to, name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// writeLayout writes the files of the OCI layout.
func (s *imageStore) writeLayout() error {
	var index map[string]json.RawMessage
	found, err := readJSON(filepath.Join(s.from, "layout", "index.json"), &index)
	if err != nil || !found {
		return err
	}
	var all, kept []json.RawMessage
	if err := json.Unmarshal(index["manifests"], &all); err != nil {
		return fmt.Errorf("layout of the images: %w", err)
	}
	for _, raw := range all {
		var d struct {
			Digest string `json:"digest"`
		}
		if json.Unmarshal(raw, &d) == nil && slices.Contains(s.kept, d.Digest) {
			kept = append(kept, raw)
		}
	}
	if index["manifests"], err = json.Marshal(append([]json.RawMessage{}, kept...)); err != nil {
		return err
	}
	err = s.link(filepath.Join("layout", "oci-layout"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, writeJSON(filepath.Join(s.to, "layout", "index.json"), index))
}

// readJSON reads a file into v; found is false when it does not exist.
func readJSON(name string, v any) (found bool, err error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	return true, nil
}

func writeJSON(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}
