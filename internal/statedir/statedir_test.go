package statedir_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/modbox/modbox/internal/statedir"
)

// nobody is a user without files.
const nobody = 65534

// readAsNobody returns whether the user nobody can read a file.
func readAsNobody(t *testing.T, path string) bool {
	t.Helper()
	cmd := exec.Command("cat", path)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd.Run() == nil
}

// TestMakeClosesToOtherUsers starts with a directory that another program made accessible to all
// users.
func TestMakeClosesToOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to act as another user")
	}
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(filepath.Join(state, "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(state, "images", "root.erofs")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !readAsNobody(t, file) {
		t.Fatal("the file cannot be read by others even before the directory is closed")
	}
	if open, err := statedir.Open(state); err != nil || !open {
		t.Errorf("Open = %v, %v, want true", open, err)
	}
	if err := statedir.Make(state); err != nil {
		t.Fatal(err)
	}
	if readAsNobody(t, file) {
		t.Error("another user can read the file")
	}
	if open, err := statedir.Open(state); err != nil || open {
		t.Errorf("Open afterwards = %v, %v, want false", open, err)
	}
}

func TestMakeRefusesWhatUsersShare(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := statedir.Make(shared); err == nil {
		t.Error("a directory that all users share was taken")
	}
	info, err := os.Stat(shared)
	if err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	if err := statedir.Make("/"); err == nil {
		t.Error("the root directory was taken")
	}
}
