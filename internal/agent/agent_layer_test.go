package agent_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
)

// layerOf packs entries as a layer.
func layerOf(t *testing.T, entries map[string]string, headers ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		body := entries[h.Name]
		if h.Size == 0 {
			h.Size = int64(len(body))
		}
		h.Uid, h.Gid, h.Format = os.Geteuid(), os.Getegid(), tar.FormatPAX
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1.7e9, 123456789)
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestRestoreLayer(t *testing.T) {
	e := start(t)
	at := func(name string) string { return filepath.Join(e.root, name) }
	for name, content := range map[string]string{"replaced": "old", "removed": "old", "gone/deep/file": "old", "hidden/old": "old", "becomes-dir": "old", "becomes-file/x": "old"} {
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const holes = 1<<20 + 100
	sparse := bytes.Repeat([]byte{0}, holes)
	copy(sparse[512<<10:], "data")
	copy(sparse[holes-3:], "end")
	layer := layerOf(t, map[string]string{"replaced": "new", "dir/file": "content", "becomes-file": "file", "hidden/new": "new", "dir/sparse": string(sparse), "dir/zeros": strings.Repeat("\x00", 9000)},
		tar.Header{Typeflag: tar.TypeReg, Name: "replaced", Mode: 0o640},
		tar.Header{Typeflag: tar.TypeReg, Name: ".wh.removed"},
		tar.Header{Typeflag: tar.TypeReg, Name: ".wh.gone"},
		tar.Header{Typeflag: tar.TypeDir, Name: "hidden/", Mode: 0o711},
		tar.Header{Typeflag: tar.TypeReg, Name: "hidden/.wh..wh..opq"},
		tar.Header{Typeflag: tar.TypeReg, Name: "hidden/new", Mode: 0o600},
		tar.Header{Typeflag: tar.TypeDir, Name: "dir/", Mode: 0o1777},
		tar.Header{Typeflag: tar.TypeReg, Name: "dir/file", Mode: 0o4755},
		tar.Header{Typeflag: tar.TypeReg, Name: "dir/sparse", Mode: 0o600},
		tar.Header{Typeflag: tar.TypeReg, Name: "dir/zeros", Mode: 0o600},
		tar.Header{Typeflag: tar.TypeLink, Name: "dir/hard", Linkname: "dir/file"},
		tar.Header{Typeflag: tar.TypeLink, Name: "dir/dangling", Linkname: "dir/.wh.odd"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "dir/link", Linkname: "/nowhere"},
		tar.Header{Typeflag: tar.TypeFifo, Name: "dir/pipe", Mode: 0o620},
		tar.Header{Typeflag: tar.TypeDir, Name: "becomes-dir/", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeReg, Name: "becomes-file", Mode: 0o644},
	)
	if err := e.Client.RestoreLayer(t.Context(), bytes.NewReader(layer)); err != nil {
		t.Fatalf("RestoreLayer() = %v", err)
	}
	for name, want := range map[string]string{"replaced": "new", "dir/file": "content", "dir/hard": "content", "becomes-file": "file", "hidden/new": "new", "dir/sparse": string(sparse), "dir/zeros": strings.Repeat("\x00", 9000)} {
		if got, err := os.ReadFile(at(name)); err != nil || string(got) != want {
			t.Errorf("%s has %d bytes, %v; want %d, the same", name, len(got), err, len(want))
		}
	}
	for _, name := range []string{"removed", "gone", "hidden/old", "dir/dangling"} {
		if _, err := os.Lstat(at(name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	for name, want := range map[string]fs.FileMode{
		"replaced": 0o640, "hidden": fs.ModeDir | 0o711, "dir": fs.ModeDir | fs.ModeSticky | 0o777, "dir/file": fs.ModeSetuid | 0o755,
		"dir/pipe": fs.ModeNamedPipe | 0o620, "becomes-dir": fs.ModeDir | 0o755,
	} {
		info, err := os.Lstat(at(name))
		if err != nil || info.Mode() != want || !info.ModTime().Equal(time.Unix(1.7e9, 123456789)) {
			t.Errorf("%s has mode %v, time %v, %v; want %v", name, info.Mode(), info.ModTime(), err, want)
		}
	}
	if target, err := os.Readlink(at("dir/link")); err != nil || target != "/nowhere" {
		t.Errorf("the symlink leads to %q, %v", target, err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(at("dir/sparse"), &st); err != nil || st.Blocks*512 > 64<<10 {
		t.Errorf("the file with holes takes %d bytes, %v", st.Blocks*512, err)
	}
	if err := syscall.Stat(at("dir/file"), &st); err != nil || st.Nlink != 2 {
		t.Errorf("the file has %d names, %v", st.Nlink, err)
	}
}

// The agent sets the time of a directory behind what is in it, not behind the layer.
func TestRestoreLayerSetsTimesOnTheWay(t *testing.T) {
	e := start(t)
	layer := layerOf(t, nil,
		tar.Header{Typeflag: tar.TypeDir, Name: "a/", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeDir, Name: "a/b/", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeReg, Name: "a/b/file", Mode: 0o644},
		tar.Header{Typeflag: tar.TypeReg, Name: "a/file", Mode: 0o644},
		tar.Header{Typeflag: tar.TypeDir, Name: "ab/", Mode: 0o755},
	)
	from, to := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- e.Client.RestoreLayer(t.Context(), from) }()
	end := len(layer) - 1024 // the mark of the end
	if _, err := to.Write(layer[:end]); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "a/b"} {
		eventually(t, "the time of "+name+" is set", func() bool {
			info, err := os.Lstat(filepath.Join(e.root, name))
			return err == nil && info.ModTime().Equal(time.Unix(1.7e9, 123456789))
		})
	}
	_, err := to.Write(layer[end:])
	if err = errors.Join(err, to.Close(), <-ended); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(filepath.Join(e.root, "ab")); err != nil || !info.ModTime().Equal(time.Unix(1.7e9, 123456789)) {
		t.Errorf("the time of ab: %v, %v", info, err)
	}
}

func TestRestoreLayerRefuses(t *testing.T) {
	e := start(t)
	for name, layer := range map[string][]byte{
		"a path that leaves the root":  layerOf(t, nil, tar.Header{Typeflag: tar.TypeReg, Name: "../x"}),
		"an absolute path":             layerOf(t, nil, tar.Header{Typeflag: tar.TypeReg, Name: "/x"}),
		"a directory it does not have": layerOf(t, nil, tar.Header{Typeflag: tar.TypeReg, Name: "x/.wh..wh..opq"}),
		"what is no tar":               bytes.Repeat([]byte("x"), 1024),
	} {
		var refused *agentapi.Error
		if err := e.Client.RestoreLayer(t.Context(), bytes.NewReader(layer)); !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
			t.Errorf("RestoreLayer() of %s = %v, want code invalid", name, err)
		}
	}
	cut := layerOf(t, map[string]string{"a": "content"}, tar.Header{Typeflag: tar.TypeReg, Name: "a"})
	var refused *agentapi.Error
	if err := e.Client.RestoreLayer(t.Context(), bytes.NewReader(slices.Clone(cut[:515]))); !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
		t.Errorf("RestoreLayer() of half a layer = %v, want code invalid", err)
	}
	if err := e.Client.Configure(t.Context(), agentapi.Config{}); err != nil {
		t.Fatal(err)
	}
	refused = nil
	if err := e.Client.RestoreLayer(t.Context(), bytes.NewReader(cut)); !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
		t.Errorf("RestoreLayer() of a configured sandbox = %v, want code invalid", err)
	}
}
