package upgrade_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// olderCommit is the version from which servers are upgraded. A later one needs fewer migrations: its
// database must be older than the newest migration, which the test checks.
const olderCommit = "b1f0b0611922a5716f23b3ab7f371e9c3b8b0937"

// root is the root of the repository.
var root = filepath.Join("..", "..")

// git runs git in the repository.
func git(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = root
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, failed.String())
	}
	return out
}

// older returns the program of olderCommit, which it builds once on a machine. It skips the test, visibly, where there is
// no history at all: in a source archive and in a shallow clone.
func older(t *testing.T) string {
	t.Helper()
	shallow := exec.CommandContext(t.Context(), "git", "rev-parse", "--is-shallow-repository")
	shallow.Dir = root
	if out, err := shallow.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "false" {
		t.Skipf("the upgrade is not tried: this source has no history to build an older version from; clone all of it (git fetch --unshallow): %v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "git", "cat-file", "-e", olderCommit+"^{commit}")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("this clone does not have commit %s, from which the upgrade is tried: %v: %s", olderCommit, err, out)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "modbox", "upgrade", olderCommit)
	program := filepath.Join(dir, "modbox")
	if _, err := os.Stat(program); err == nil {
		return program
	} else if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	source, built := t.TempDir(), t.TempDir()
	tar := exec.CommandContext(t.Context(), "tar", "-x", "-C", source)
	tar.Stdin = bytes.NewReader(git(t, "archive", olderCommit))
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("unpack the older source: %v: %s", err, out)
	}
	build := exec.CommandContext(t.Context(), filepath.Join(source, "scripts", "build.sh"), built)
	build.Env = append(os.Environ(), "VERSION=v0.0.1-older", "COMMIT="+olderCommit)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the older version: %v:\n%s", err, out)
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), copyProgram(filepath.Join(built, "modbox"), program+".new"), os.Rename(program+".new", program)); err != nil {
		t.Fatal(err)
	}
	return program
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// gvisor returns the version of gVisor that go.mod names, at a commit, or in the working copy for "".
func gvisor(t *testing.T, commit string) string {
	t.Helper()
	var text []byte
	if commit != "" {
		text = git(t, "show", commit+":go.mod")
	} else {
		var err error
		if text, err = os.ReadFile(filepath.Join(root, "go.mod")); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(string(text)) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "gvisor.dev/gvisor "); ok {
			return version
		}
	}
	t.Fatal("go.mod does not name gVisor")
	return ""
}
