package server

import (
	"archive/tar"
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/modbox/modbox/images"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/imagerows"
)

// commit makes an image with one file.
func commit(t *testing.T, st *image.Store, name string) {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Error(err)
		return
	}
	if _, err := st.Commit(t.Context(), image.CommitRequest{Name: "test/" + name, Layer: &layer}); err != nil {
		t.Errorf("commit %s: %v", name, err)
	}
}

// wantImages resolves images.
func wantImages(t *testing.T, when string, st *image.Store, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, _, err := st.Resolve(t.Context(), "test/"+name); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// serverImages opens the database and the images of a state directory as a server does.
func serverImages(t *testing.T, cfg config.Config) (*store.Store, *image.Store) {
	t.Helper()
	if err := statedir.Make(cfg.StateDir); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), filepath.Join(cfg.StateDir, statedir.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // perhaps once more
	opts := localImageOptions(cfg)
	opts.Rows, opts.Logger = imagerows.New(db.DB), slog.New(slog.DiscardHandler)
	st, err := image.Open(filepath.Join(cfg.StateDir, statedir.ImagesDir), images.FS, opts)
	if err != nil {
		t.Fatal(err)
	}
	return db, st
}

func localImages(t *testing.T, cfg config.Config) *image.Store {
	t.Helper()
	st, err := OpenImages(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// wantRows reads the rows of images.
func wantRows(t *testing.T, when string, db *store.Store, want int) {
	t.Helper()
	if rows, err := imagerows.New(db.DB).Images(t.Context()); err != nil || len(rows) != want {
		t.Errorf("%s: the database has %d images, %v, want %d", when, len(rows), err, want)
	}
}

func TestImagesOfCommandsBesideTheServer(t *testing.T) {
	cfg := config.Config{StateDir: filepath.Join(t.TempDir(), "state")}
	cli := localImages(t, cfg)
	commit(t, cli, "early")
	if _, err := os.Stat(filepath.Join(cfg.StateDir, statedir.DatabaseFile)); !os.IsNotExist(err) {
		t.Fatalf("the command made a database: %v", err)
	}
	db, server := serverImages(t, cfg)
	wantImages(t, "made before the first start", server, "early")
	wantRows(t, "after the first start", db, 1)

	commit(t, cli, "begun") // it was opened before there was a database
	commit(t, localImages(t, cfg), "beside")
	wantImages(t, "made beside the server", server, "early", "begun", "beside")
	wantRows(t, "beside the server", db, 3)
	if err := cli.Removal().Remove(t.Context(), "test/early"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := server.Resolve(t.Context(), "test/early"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("an image that a command removed: %v, want not_found", err)
	}
	commit(t, server, "served")
	wantImages(t, "made by the server", cli, "begun", "beside", "served")

	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := sql.Open("sqlite", filepath.Join(cfg.StateDir, statedir.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	version := func(change string) {
		t.Helper()
		if _, err := raw.ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	version("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)")
	commit(t, localImages(t, cfg), "upgrading")
	version("DELETE FROM goose_db_version WHERE version_id = 99999")
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	db, server = serverImages(t, cfg)
	wantImages(t, "made while the database was of another version", server, "begun", "beside", "served", "upgrading")
	wantRows(t, "after the next start", db, 5)
	if _, _, err := server.Resolve(t.Context(), "test/early"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("an image that a command removed, after the next start: %v, want not_found", err)
	}
}

// TestImagesOfServerAndCommandsAtOnce: neither loses an image of the other.
func TestImagesOfServerAndCommandsAtOnce(t *testing.T) {
	cfg := config.Config{StateDir: filepath.Join(t.TempDir(), "state")}
	db, server := serverImages(t, cfg)
	var names []string
	var wait sync.WaitGroup
	for i := range 6 {
		name := fmt.Sprintf("image-%d", i)
		names = append(names, name)
		wait.Go(func() {
			st := server
			if i%2 == 0 {
				st = localImages(t, cfg)
			}
			commit(t, st, name)
		})
	}
	wait.Wait()
	wantImages(t, "for the server", server, names...)
	wantImages(t, "for a command", localImages(t, cfg), names...)
	wantRows(t, "at the end", db, len(names))
}
