package imagerows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/store/imagerows"
	"github.com/modbox/modbox/internal/store/storetest"
)

// directory is an image directory with files that stand for images, and its database.
type directory struct {
	*testing.T
	state string
}

func newDirectory(t *testing.T) directory {
	d := directory{t, t.TempDir()}
	for _, dir := range []string{"images/images", "images/layout/blobs/sha256", "images/locks"} {
		if err := os.MkdirAll(filepath.Join(d.state, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d directory) path(name string) string { return filepath.Join(d.state, "images", name) }

func (d directory) database() string { return filepath.Join(d.state, "modbox.db") }

func (d directory) write(name, content string) {
	d.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(d.path(name)), 0o700), os.WriteFile(d.path(name), []byte(content), 0o600)); err != nil {
		d.Fatal(err)
	}
}

func (d directory) read(name string) string {
	d.Helper()
	data, err := os.ReadFile(d.path(name))
	if err != nil {
		d.Fatal(err)
	}
	return string(data)
}

// images makes the index of a new directory, and the files of records.
func (d directory) images(list ...index.Record) {
	d.Helper()
	d.open(nil)
	d.files(list)
}

// files makes the files of records.
func (d directory) files(list []index.Record) {
	d.Helper()
	for _, r := range list {
		d.write("images/"+strings.TrimPrefix(r.Digest, "sha256:")+".erofs", "root")
		d.write("layout/blobs/sha256/"+r.Manifest.Digest.Hex, "{}")
	}
}

// old writes an index of an earlier version, and the files that it names.
func (d directory) old(version int, list []index.Record) {
	d.Helper()
	data, err := json.Marshal(map[string]any{"version": version, "images": list})
	if err != nil {
		d.Fatal(err)
	}
	d.write("index.json", string(data))
	d.files(list)
}

// options are for the directory with rows, which may be nil.
func (d directory) options(rows index.Rows) index.Options {
	d.Helper()
	layout, err := archive.OpenLayout(d.path("layout"))
	if err != nil {
		d.Fatal(err)
	}
	return index.Options{Dir: d.path(""), Lock: d.path("locks/index.lock"), Images: d.path("images"), Layout: layout, Rows: rows, Log: slog.New(slog.DiscardHandler)}
}

func (d directory) rows() index.Rows {
	d.Helper()
	return imagerows.New(storetest.Open(d, d.database()).DB)
}

func (d directory) open(rows index.Rows) *index.Table {
	d.Helper()
	table, err := index.Open(d.Context(), d.options(rows))
	if err != nil {
		d.Fatal(err)
	}
	return table
}

// want compares the index with and without the database, after another start.
func (d directory) want(when string, want []index.Record) {
	d.Helper()
	same := cmp.Options{cmpopts.IgnoreFields(index.Record{}, "Position"), cmpopts.EquateEmpty()}
	for _, rows := range []index.Rows{d.rows(), nil} { // the rows make the descriptors complete
		ix, err := d.open(rows).Load()
		if err != nil {
			d.Fatalf("%s: %v", when, err)
		}
		if diff := cmp.Diff(want, ix.Images, same); diff != "" {
			d.Errorf("%s, with rows %t (-want +got):\n%s", when, rows != nil, diff)
		}
	}
}

// change changes the index of a table.
func (d directory) change(table *index.Table, change func(*index.Index)) error {
	d.Helper()
	ix, unlock, err := table.Lock(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	defer unlock()
	change(ix)
	return table.Write(ix)
}

// image returns a record of a name, the n-th.
func (d directory) image(name string, n int) index.Record {
	at := time.Unix(1_700_000_000+int64(n), 0).UTC()
	return index.Record{
		Name: name, Tag: "latest", Current: true, Digest: fmt.Sprintf("sha256:%064d", n), SizeBytes: 4, FileTime: at,
		Manifest: archive.Ref{Digest: hash(d.T, fmt.Sprint(n)), Size: 2}, CreatedAt: at, UpdatedAt: at,
	}
}

func TestTakeover(t *testing.T) {
	for version := 1; version <= 2; version++ {
		d, list := newDirectory(t), records(t)
		d.old(version, list)
		before := d.read("index.json")
		for range 2 {
			d.want(fmt.Sprintf("version %d", version), list)
		}
		if after := d.read("index.v2.json"); after != before {
			t.Errorf("the index of version %d is kept as %s", version, after)
		}
		if format := d.read("index.json"); format != "{\"version\":3}\n" {
			t.Errorf("after the takeover of version %d index.json is %q", version, format)
		}
	}
}

// dying are rows in a database whose process ends before or after a commit.
type dying struct {
	index.Rows
	commits bool
}

func (r dying) ChangeImages(ctx context.Context, put []index.Record, remove []string) error {
	if r.commits {
		if err := r.Rows.ChangeImages(ctx, put, remove); err != nil {
			return err
		}
	}
	panic("killed")
}

// TestTakeoverIsRepeatedAfterItsMiddle: as long as index.json is the index of an earlier version, it
// counts, also when the program before has changed it again.
func TestTakeoverIsRepeatedAfterItsMiddle(t *testing.T) {
	killed := func(commits bool) func(directory) {
		return func(d directory) {
			defer func() {
				if recover() == nil {
					d.Error("the takeover was not interrupted")
				}
			}()
			_, err := index.Open(d.Context(), d.options(dying{d.rows(), commits}))
			d.Fatal(err)
		}
	}
	for when, interrupt := range map[string]func(directory){
		"before the commit": killed(false),
		"after the commit":  killed(true),
		"between descriptors": func(d directory) {
			killed(false)(d)
			names, err := filepath.Glob(d.path("records/*.json"))
			if err != nil || len(names) != 2 {
				d.Fatalf("descriptors %v, %v", names, err)
			}
			if err := os.Remove(names[0]); err != nil {
				d.Fatal(err)
			}
			d.write("records/.new-1", "half")
		},
	} {
		t.Run(when, func(t *testing.T) {
			d, list := newDirectory(t), records(t)
			d.old(2, list)
			before := d.read("index.json")
			interrupt(d)
			if after := d.read("index.json"); after != before {
				t.Fatalf("the interrupted takeover changed index.json to %s", after)
			}
			d.want("then", list)
			if parts, err := filepath.Glob(d.path("records/.new-*")); err != nil || len(parts) > 0 {
				t.Errorf("files of the interrupted takeover: %v, %v", parts, err)
			}

			d = newDirectory(t)
			d.old(2, list)
			interrupt(d)
			d.old(2, list[1:])
			d.want("after a change by the program before", list[1:])
		})
	}
}

// TestKilledTakeover kills a process that takes over a directory, again and again.
func TestKilledTakeover(t *testing.T) {
	if state := os.Getenv("MODBOX_TEST_TAKEOVER"); state != "" {
		d := directory{t, state}
		d.open(d.rows())
		return
	}
	if storetest.Postgres() {
		t.Skip("a process of the test would have a database of its own")
	}
	d := newDirectory(t)
	var list []index.Record
	for n := range 60 {
		list = append(list, d.image(fmt.Sprintf("image-%d", n), n))
	}
	d.old(2, list)
	storetest.Create(t, d.database())
	killed, half := 0, 0
	for delay := time.Duration(0); ; delay += 40 * time.Millisecond {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledTakeover$")
		cmd.Env = append(os.Environ(), "MODBOX_TEST_TAKEOVER="+d.state)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(delay, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		kill.Stop()
		if err == nil {
			break
		}
		killed++
		if names, err := filepath.Glob(d.path("records/*.json")); err == nil && len(names) > 0 {
			half++
		}
	}
	t.Logf("killed %d times, %d of them in the middle", killed, half)
	d.want("after the last", list)
}

// TestAdoption: whatever database is beside a directory, no image is lost.
func TestAdoption(t *testing.T) {
	if storetest.Postgres() {
		t.Skip("the test replaces the file of SQLite")
	}
	d := newDirectory(t)
	first, second, third := d.image("app", 1), d.image("app", 2), d.image("other", 3)
	d.images(first, second, third)
	st := storetest.Open(t, d.database())
	table := d.open(imagerows.New(st.DB))
	if err := d.change(table, func(ix *index.Index) { ix.Add(first); ix.Add(third) }); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := st.CopyTo(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if err := d.change(table, func(ix *index.Index) { ix.Add(second) }); err != nil {
		t.Fatal(err)
	}
	replaced := first
	replaced.Current = false
	d.want("before", []index.Record{replaced, third, second})
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	database := func(name string) {
		t.Helper()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(d.database() + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		if name == "" {
			return
		}
		data, err := os.ReadFile(name)
		if err := errors.Join(err, os.WriteFile(d.database(), data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	database("")
	d.want("with a new database", []index.Record{replaced, third, second})

	database(copied)
	d.want("with an older database", []index.Record{replaced, third, second})

	if err := os.Remove(d.path("records/" + second.Key() + ".json")); err != nil {
		t.Fatal(err)
	}
	d.want("without a descriptor", []index.Record{replaced, third, second})

	if err := d.change(d.open(d.rows()), func(ix *index.Index) {
		ix.Images = slices.DeleteFunc(ix.Images, func(r index.Record) bool { return r.Name == "other" })
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(d.path("images/"+third.Digest[7:]+".erofs")), os.Remove(d.path("layout/blobs/sha256/"+third.Manifest.Digest.Hex))); err != nil {
		t.Fatal(err)
	}
	database(copied)
	d.want("with an older database that has a removed image", []index.Record{replaced, second})

	away := filepath.Join(t.TempDir(), "images")
	if err := os.Rename(d.path(""), away); err != nil {
		t.Fatal(err)
	}
	empty := newDirectory(t)
	if err := os.Rename(empty.path(""), d.path("")); err != nil {
		t.Fatal(err)
	}
	d.want("with a new directory", nil)
	if err := errors.Join(os.RemoveAll(d.path("")), os.Rename(away, d.path(""))); err != nil {
		t.Fatal(err)
	}
	d.want("with the directory again", []index.Record{replaced, second})
}

// TestDirectoryWithoutAnIndex: files that neither rows nor descriptors name are damage, not garbage.
func TestDirectoryWithoutAnIndex(t *testing.T) {
	if storetest.Postgres() {
		t.Skip("the test removes the file of SQLite")
	}
	remove := func(names ...string) func(directory) {
		return func(d directory) {
			for _, name := range names {
				if err := os.RemoveAll(d.path(name)); err != nil {
					d.Fatal(err)
				}
			}
		}
	}
	for what, damage := range map[string]func(directory){
		"the format is missing":                         remove("index.json"),
		"all is missing":                                remove("index.json", "records"),
		"the descriptors are missing, and the database": func(d directory) { remove("records", "../modbox.db", "../modbox.db-wal")(d) },
		"a descriptor is cut, and the database is missing": func(d directory) {
			remove("../modbox.db", "../modbox.db-wal")(d)
			rec := d.image("app", 1)
			if err := os.Truncate(d.path("records/"+rec.Key()+".json"), 20); err != nil {
				d.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := newDirectory(t)
			rec := d.image("app", 1)
			d.images(rec)
			st := storetest.Open(t, d.database())
			if err := d.change(d.open(imagerows.New(st.DB)), func(ix *index.Index) { ix.Add(rec) }); err != nil {
				t.Fatal(err)
			}
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
			damage(d)
			for range 2 { // an attempt must not make it good for the next one
				if _, err := index.Open(t.Context(), d.options(d.rows())); err == nil || !strings.Contains(err.Error(), "from a backup") {
					t.Errorf("Open = %v, want an error that says what to do", err)
				}
			}
		})
	}
}

// failing are rows in a database that refuses changes.
type failing struct{ index.Rows }

var errRefused = errors.New("the disk is full")

func (failing) ChangeImages(context.Context, []index.Record, []string) error { return errRefused }

func TestRefusedChange(t *testing.T) {
	d := newDirectory(t)
	app, other := d.image("app", 1), d.image("other", 2)
	d.images(app, other)
	rows := d.rows()
	if err := d.change(d.open(rows), func(ix *index.Index) { ix.Add(app) }); err != nil {
		t.Fatal(err)
	}
	table := d.open(failing{rows})
	err := d.change(table, func(ix *index.Index) {
		ix.Images[0].Description = "changed"
		ix.Add(other)
	})
	if !errors.Is(err, errRefused) {
		t.Errorf("Write = %v, want %v", err, errRefused)
	}
	if ix, err := table.Load(); err != nil || len(ix.Images) != 1 || ix.Images[0].Description != "" {
		t.Errorf("Load after a refused change = %+v, %v", ix, err)
	}
	d.want("after a refused change", []index.Record{app})
}

// TestChangeOfAKilledProcess: a process that is killed after its commit leaves a change that the
// others see before they change anything.
func TestChangeOfAKilledProcess(t *testing.T) {
	d := newDirectory(t)
	app := d.image("app", 1)
	d.images(app)
	rows := d.rows()
	table := d.open(rows)
	if _, err := table.Load(); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		t.Error(d.change(d.open(dying{rows, true}), func(ix *index.Index) { ix.Add(app) }))
	}()
	ix, unlock, err := table.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if len(ix.Images) != 1 {
		t.Errorf("the next holder of the lock has %d images, want 1", len(ix.Images))
	}
}
