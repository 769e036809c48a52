package rootdir

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAccountAfterChanges changes the database in several ways, each after Account has read it.
func TestAccountAfterChanges(t *testing.T) {
	before := settled
	settled = 0 // files of the test are new
	t.Cleanup(func() { settled = before })
	root := Root(t.TempDir())
	passwd := root.Path("/etc/passwd")
	if err := os.Mkdir(filepath.Dir(passwd), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	home := func(want string) {
		t.Helper()
		for range 2 {
			acc, err := root.Account("dev")
			if err != nil || acc.Home != want {
				t.Fatalf("Account() = %+v, %v, want the home %q", acc, err, want)
			}
		}
	}
	write(passwd, "dev:x:7:7::/a:/bin/sh\n")
	home("/a")
	if kept := databases.kept[wanted{passwd, 7}].lines; len(kept) != 1 {
		t.Fatalf("kept %v", kept)
	}
	write(passwd, "dev:x:7:7::/longer:/bin/sh\n")
	home("/longer")
	other := passwd + ".new"
	write(other, "dev:x:7:7::/others:/bin/sh\n") // of the same size
	if err := os.Rename(other, passwd); err != nil {
		t.Fatal(err)
	}
	home("/others")
	if err := os.Remove(passwd); err != nil {
		t.Fatal(err)
	}
	if acc, err := root.Account("dev"); err == nil {
		t.Fatalf("Account() = %+v without a database", acc)
	}
}

// TestNewDatabaseIsNotKept reads a file right after a change: another change might have the same time.
func TestNewDatabaseIsNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	later := settled
	settled = 24 * time.Hour // however slow this machine is
	t.Cleanup(func() { settled = later })
	if err := os.WriteFile(path, []byte("dev:x:7:7::/a:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	lines, err := readDatabase(path, 7)
	if err != nil || len(lines) != 1 || lines[0][5] != "/a" {
		t.Fatalf("readDatabase() = %v, %v", lines, err)
	}
	if kept, ok := databases.kept[wanted{path, 7}]; ok {
		t.Errorf("kept %v", kept.lines)
	}
}

// TestDatabaseByFields reads a file with different numbers of fields, each number twice.
func TestDatabaseByFields(t *testing.T) {
	before := settled
	settled = 0 // the file of the test is new
	t.Cleanup(func() { settled = before })
	path := filepath.Join(t.TempDir(), "database")
	if err := os.WriteFile(path, []byte("two:fields\nthese:are:three\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for fields, want := range map[int]int{1: 2, 2: 2, 3: 1, 4: 0} {
			if lines, err := readDatabase(path, fields); err != nil || len(lines) != want {
				t.Errorf("readDatabase(%d) = %v, %v, want %d lines", fields, lines, err, want)
			}
		}
	}
}
