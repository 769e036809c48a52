// Package storetest makes databases for tests without running every migration for each.
package storetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/store"
)

// template returns the bytes of an empty database of the newest version.
var template = sync.OnceValues(func() (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "storetest")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "modbox.db")
	st, err := store.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := st.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// Open returns the store in the database at path and closes it when the test ends. A
// database that does not exist is made as a copy of an empty one, so all databases that a
// test process makes in this way have the same installation id.
func Open(t testing.TB, path string, options ...store.Option) *store.Store {
	t.Helper()
	Create(t, path)
	at := At(t, path)
	open := store.OpenAt
	if at.Postgres.URL != "" && opened(at, 1) > 1 { // it belongs to the first
		open = store.OpenExistingAt
	}
	st, err := open(context.Background(), at, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		opened(at, -1)
		if err := st.Close(); err != nil {
			t.Errorf("close %s: %v", path, err)
		}
	})
	return st
}

// Create makes an empty database of the newest version at path, unless there is a file.
func Create(t testing.TB, path string) {
	t.Helper()
	if Postgres() {
		At(t, path)
		return
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	b, err := template()
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
