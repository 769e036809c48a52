package embedded

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func packed(t *testing.T, content, sumOf string) fstest.MapFS {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	if _, err := zw.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(sumOf))
	return fstest.MapFS{
		"files/p.gz":     {Data: b.Bytes()},
		"files/p.sha256": {Data: []byte(hex.EncodeToString(sum[:]) + "\n")},
	}
}

func TestUnpackRepairs(t *testing.T) {
	dir := t.TempDir()
	from := packed(t, "program", "program")
	for _, damage := range []func(path string) error{
		func(string) error { return nil },
		func(path string) error { return os.WriteFile(path, []byte("prog"), 0o755) },
		os.Remove,
	} {
		path, err := unpack(from, dir, "p")
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != "program" {
			t.Fatalf("unpacked %q, %v", got, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("mode %v, %v, want 0755", info.Mode(), err)
		}
		if err := damage(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnpackRefusesAnotherHash(t *testing.T) {
	dir := t.TempDir()
	if _, err := unpack(packed(t, "program", "other"), dir, "p"); err == nil || !strings.Contains(err.Error(), "hash") {
		t.Errorf("unpack error = %v, want one about the hash", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestNotBuiltSaysSo(t *testing.T) {
	if _, err := unpack(fstest.MapFS{}, t.TempDir(), "p"); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("unpack error = %v, want ErrNotBuilt", err)
	}
}
