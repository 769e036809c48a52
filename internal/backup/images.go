package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// linkImages makes in to an image store with the images of from that have the digests. Its index
// has their records unchanged, including fields that this version does not know.
func linkImages(from, to string, digests []string) error {
	var index struct {
		Version int               `json:"version"`
		Images  []json.RawMessage `json:"images"`
	}
	found, err := readJSON(filepath.Join(from, "index.json"), &index)
	if err != nil || !found || len(index.Images) == 0 {
		return err
	}
	store := imageStore{from: from, to: to}
	for _, dir := range []string{"images", filepath.Join("layout", "blobs", "sha256")} {
		if err := os.MkdirAll(filepath.Join(to, dir), 0o700); err != nil {
			return err
		}
	}
	all := index.Images
	index.Images = nil
	for _, raw := range all {
		var rec struct {
			Digest   string `json:"digest"`
			Manifest struct {
				Digest string `json:"digest"`
			} `json:"manifest"`
		}
		if err := json.Unmarshal(raw, &rec); err != nil {
			return fmt.Errorf("index of the images: %w", err)
		}
		if !slices.Contains(digests, rec.Digest) {
			continue
		}
		if err := store.take(rec.Digest, rec.Manifest.Digest); errors.Is(err, fs.ErrNotExist) {
			continue // removed or damaged; its users report it
		} else if err != nil {
			return err
		}
		index.Images = append(index.Images, raw)
	}
	return errors.Join(store.writeLayout(), writeJSON(filepath.Join(to, "index.json"), index))
}

// indexed returns an error when a store has root filesystems but no index: a backup would lack
// them, or be useless.
func indexed(store string) error {
	name := filepath.Join(store, "index.json")
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := os.ReadDir(filepath.Join(store, "images"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(files) > 0 {
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
	if err := s.link(filepath.Join("images", strings.TrimPrefix(digest, "sha256:")+".erofs")); err != nil {
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
