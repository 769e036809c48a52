package integrity

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const digest = "sha256:aaaa"

// recorded returns records with a verified file.
func recorded(t *testing.T) (*Records, string) {
	t.Helper()
	r, err := Open(filepath.Join(t.TempDir(), "verified"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "content")
	if !reads(t, r, file) {
		t.Fatal("a file is verified that nobody has read")
	}
	if reads(t, r, file) {
		t.Fatal("a file with its record was read again")
	}
	return r, file
}

// reads reports whether a check of the file reads it.
func reads(t *testing.T, r *Records, file string) (read bool) {
	t.Helper()
	err := r.Check(digest, file, func() (string, error) {
		read = true
		return digest, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestAFileThatDiffersIsDamaged(t *testing.T) {
	r, file := recorded(t)
	write(t, file, "CONTENT")
	for range 2 {
		err := r.Check(digest, file, func() (string, error) { return "sha256:cccc", nil })
		if want := (&DamagedError{}); !errors.As(err, &want) || want.Digest != "sha256:cccc" || want.File != file {
			t.Errorf("Check() = %v, want that the file has digest sha256:cccc", err)
		}
	}
}

func TestAFileThatCannotBeRead(t *testing.T) {
	r, file := recorded(t)
	write(t, file, "CONTENT")
	if err := r.Check(digest, file, func() (string, error) { return "", io.ErrUnexpectedEOF }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Check() = %v, want the error of the reader", err)
	}
	if !reads(t, r, file) {
		t.Error("a file that could not be read is verified")
	}
}

func TestAMissingFile(t *testing.T) {
	r, file := recorded(t)
	check(t, os.Remove(file))
	err := r.Check(digest, file, func() (string, error) { return digest, nil })
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Check() = %v, want that the file does not exist", err)
	}
}

func TestAWrittenFileIsNotRead(t *testing.T) {
	r, file := recorded(t)
	replace(t, file)
	r.Written(digest, file)
	if reads(t, r, file) {
		t.Error("a file was read though its writer had just recorded it")
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAChangeOfTheFileEndsItsRecord(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, file string){
		"size":  func(t *testing.T, file string) { write(t, file, "more content") },
		"time":  func(t *testing.T, file string) { check(t, os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour))) },
		"inode": replace,
		"bytes": flip,
	} {
		t.Run(name, func(t *testing.T) {
			r, file := recorded(t)
			change(t, file)
			if !reads(t, r, file) {
				t.Error("the changed file is still verified")
			}
		})
	}
}

// flip changes a byte and sets the time back.
func flip(t *testing.T, file string) {
	info, err := os.Stat(file)
	check(t, err)
	write(t, file, "Content")
	check(t, os.Chtimes(file, time.Time{}, info.ModTime()))
}

// replace puts another file with the same size and time in the place of a file.
func replace(t *testing.T, file string) {
	info, err := os.Stat(file)
	check(t, err)
	write(t, file+".new", "CONTENT")
	check(t, os.Chtimes(file+".new", time.Time{}, info.ModTime()))
	check(t, os.Rename(file+".new", file))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestARebootEndsAllRecords(t *testing.T) {
	r, file := recorded(t)
	r.boot = func() (string, error) { return "another boot", nil }
	if !reads(t, r, file) {
		t.Error("a file that was verified before the host booted is verified")
	}
}

func TestADamagedRecordIsNone(t *testing.T) {
	r, file := recorded(t)
	write(t, r.path(digest), `{"boot":`)
	if !reads(t, r, file) {
		t.Error("a file with half a record is verified")
	}
}

func TestPrune(t *testing.T) {
	r, file := recorded(t)
	r.Written("sha256:bbbb", file)
	write(t, filepath.Join(r.dir, unfinished+"1"), "of a process that was killed")
	check(t, os.Chtimes(filepath.Join(r.dir, unfinished+"1"), time.Time{}, time.Now().Add(-2*abandoned)))
	write(t, filepath.Join(r.dir, unfinished+"2"), "under way")
	check(t, r.Prune(func(d string) bool { return d == digest }))
	entries, err := os.ReadDir(r.dir)
	check(t, err)
	if len(entries) != 2 || entries[0].Name() != unfinished+"2" || entries[1].Name() != "aaaa" {
		t.Errorf("after Prune: %v, want aaaa and the record under way", entries)
	}
}

// TestPruneOfASharedDirectory: the records of other stores stay until the host boots again.
func TestPruneOfASharedDirectory(t *testing.T) {
	r, file := recorded(t)
	link := filepath.Join(t.TempDir(), "verified")
	check(t, os.Symlink(r.dir, link))
	shared, err := Open(link, slog.New(slog.DiscardHandler))
	check(t, err)
	none := func(string) bool { return false }
	check(t, shared.Prune(none))
	if reads(t, r, file) {
		t.Error("the record of another store was removed")
	}
	shared.boot = func() (string, error) { return "another boot", nil }
	check(t, shared.Prune(none))
	if entries, err := os.ReadDir(r.dir); err != nil || len(entries) != 0 {
		t.Errorf("after a boot: %v, %v, want no records", entries, err)
	}
}
