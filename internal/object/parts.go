package object

import (
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"

	"github.com/modbox/modbox/internal/durable"
)

// maxPart bounds a part of a file, of which the first may have a header.
const maxPart = 2 * ChunkBytes

// PartKey returns the name of a part of a file whose parts are named objects: its name, and the number of the part.
func PartKey(name string, n int) string { return fmt.Sprintf("%s.%05d", name, n) }

// Part returns a part of a file. Errors: of [Store.Get].
func (s *Store) Part(ctx context.Context, name string, n int) ([]byte, error) {
	return s.get(ctx, PartKey(name, n), maxPart)
}

// FlushParts brings the names of the parts of a file in a local bucket to the disk; their content is there already.
func (s *Store) FlushParts(name string) error {
	if s.dir == "" {
		return nil
	}
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if err := durable.Sync(filepath.Join(s.dir, filepath.FromSlash(dir))); err != nil || dir == "." {
			return err
		}
	}
}

// DeleteParts deletes the parts of a file.
func (s *Store) DeleteParts(ctx context.Context, name string) error {
	var keys []string
	if err := s.List(ctx, name+".", func(o Object) error {
		keys = append(keys, o.Key)
		return nil
	}); err != nil {
		return err
	}
	return s.DeleteAll(ctx, keys)
}

// DeleteAll deletes objects, which may be missing.
func (s *Store) DeleteAll(ctx context.Context, keys []string) error {
	for _, key := range keys {
		if err := s.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// Parts reads the parts of a file in their order.
type Parts struct {
	ctx   context.Context
	store *Store
	name  string
	have  []byte // the rest of a part
	next  int    // the next part
	count int
}

// Parts returns a reader of a file of count parts, of which the caller has read the first, first being its content.
func (s *Store) Parts(ctx context.Context, name string, first []byte, count int) *Parts {
	return &Parts{ctx: ctx, store: s, name: name, have: first, next: 1, count: count}
}

// Read implements io.Reader.
func (p *Parts) Read(b []byte) (int, error) {
	for len(p.have) == 0 {
		if p.next >= p.count {
			return 0, io.EOF
		}
		data, err := p.store.Part(p.ctx, p.name, p.next)
		if err != nil {
			return 0, err
		}
		p.have = data
		p.next++
	}
	n := copy(b, p.have)
	p.have = p.have[n:]
	return n, nil
}
