package recipe_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

var fileDate = time.Date(2020, 5, 6, 7, 8, 9, 0, time.UTC)

// entry is an entry of a tar.
type entry struct {
	tar.Header
	data string
}

func file(name, data string, mode int64) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: fileDate}, data}
}

func link(kind byte, name, target string) entry {
	return entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777, ModTime: fileDate}}
}

func tarball(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range entries {
		if err := tw.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// wantCode fails unless err has the code.
func wantCode(t *testing.T, what string, err error, want sandbox.Code) {
	t.Helper()
	if got := sandbox.CodeOf(err); got != want {
		t.Fatalf("%s: code %q (%v), want %q", what, got, err, want)
	}
}

// fieldOf returns the field an error is about.
func fieldOf(err error) string {
	var e *sandbox.Error
	errors.As(err, &e)
	if e == nil {
		return ""
	}
	return e.Field
}
