package agent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent"
	"github.com/modbox/modbox/internal/agentapi"
)

// write writes a file and fails the test if it cannot.
func (e *env) write(t *testing.T, path, content string, opts agentapi.WriteOptions) agentapi.FileInfo {
	t.Helper()
	info, err := e.WriteFile(t.Context(), path, strings.NewReader(content), opts)
	if err != nil {
		t.Fatalf("WriteFile(%s) = %v", path, err)
	}
	return info
}

// read returns a file's content from an offset.
func (e *env) read(t *testing.T, path string, offset, length int64) string {
	t.Helper()
	body, _, err := e.ReadFile(t.Context(), path, offset, length)
	if err != nil {
		t.Fatalf("ReadFile(%s) = %v", path, err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("reading %s: %v", path, err)
	}
	return string(data)
}

func TestWriteAndReadFile(t *testing.T) {
	e := start(t)
	info := e.write(t, "/a/b/file.txt", "hello world", agentapi.WriteOptions{Parents: true, Mode: 0o640})
	if info.Path != "/a/b/file.txt" || info.Size != 11 || info.Mode != 0o640 || info.Type != agentapi.TypeFile || info.Name != "file.txt" {
		t.Errorf("WriteFile() = %+v", info)
	}
	for _, tc := range []struct {
		offset, length int64
		want           string
	}{{0, -1, "hello world"}, {6, -1, "world"}, {6, 3, "wor"}, {0, 100, "hello world"}, {11, -1, ""}, {3, 0, ""}} {
		if got := e.read(t, "/a/b/file.txt", tc.offset, tc.length); got != tc.want {
			t.Errorf("ReadFile(%d, %d) = %q, want %q", tc.offset, tc.length, got, tc.want)
		}
	}
	got, err := e.Stat(t.Context(), "/a/b/file.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(info, got); diff != "" {
		t.Errorf("Stat() differs from what WriteFile() said: %s", diff)
	}
	if names, _ := os.ReadDir(filepath.Join(e.root, "a/b")); len(names) != 1 {
		t.Errorf("the directory holds %v", names)
	}
}

func TestLargeFile(t *testing.T) {
	e := start(t)
	const size = 100 << 20
	sum := sha256.New()
	source := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{2}), size), sum)
	if _, err := e.WriteFile(t.Context(), "/large", source, agentapi.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	body, info, err := e.ReadFile(t.Context(), "/large", 0, -1)
	if err != nil || info.Size != size {
		t.Fatalf("ReadFile() = %+v, %v", info, err)
	}
	defer body.Close()
	back := sha256.New()
	if n, err := io.Copy(back, body); err != nil || n != size || !bytes.Equal(back.Sum(nil), sum.Sum(nil)) {
		t.Errorf("got %d bytes back, %v", n, err)
	}
}

func TestReplacingAFileKeepsItsMode(t *testing.T) {
	e := start(t)
	e.write(t, "/script", "one", agentapi.WriteOptions{Mode: 0o755})
	if info := e.write(t, "/script", "two", agentapi.WriteOptions{}); info.Mode != 0o755 {
		t.Errorf("mode = %o, want 755", info.Mode)
	}
	if info := e.write(t, "/script", "three", agentapi.WriteOptions{Mode: 0o4700}); info.Mode != 0o4700 {
		t.Errorf("mode = %o, want 4700", info.Mode)
	}
	if info := e.write(t, "/plain", "x", agentapi.WriteOptions{}); info.Mode != 0o644 {
		t.Errorf("mode of a new file = %o, want 644", info.Mode)
	}
	_, err := e.WriteFile(t.Context(), "/plain", strings.NewReader("y"), agentapi.WriteOptions{Exclusive: true})
	if code(t, err) != agentapi.CodeExists || e.read(t, "/plain", 0, -1) != "x" {
		t.Errorf("exclusive write over a file = %v", err)
	}
	e.write(t, "/fresh", "y", agentapi.WriteOptions{Exclusive: true})
}

func TestMetadataOfFiles(t *testing.T) {
	e := start(t)
	want := map[string]string{"source": "https://example.com/?a=1&b=<2>", "ü key": "line\nline", "empty": ""}
	if info := e.write(t, "/dir/file", "one", agentapi.WriteOptions{Parents: true, Metadata: want}); !maps.Equal(info.Metadata, want) {
		t.Errorf("WriteFile() = %+v", info)
	}
	metadata := func(path string) map[string]string {
		t.Helper()
		info, err := e.WithMetadata().Stat(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Metadata
	}
	if list, err := e.WithMetadata().List(t.Context(), "/dir", "", 0); err != nil || len(list.Entries) != 1 || !maps.Equal(list.Entries[0].Metadata, want) {
		t.Errorf("List() = %+v, %v", list, err)
	}
	if list, err := e.List(t.Context(), "/dir", "", 0); err != nil || len(list.Entries) != 1 || list.Entries[0].Metadata != nil {
		t.Errorf("List() without metadata = %+v, %v", list, err)
	}
	if info, err := e.Stat(t.Context(), "/dir/file"); err != nil || info.Metadata != nil {
		t.Errorf("Stat() without metadata = %+v, %v", info, err)
	}
	if err := e.Move(t.Context(), agentapi.MoveRequest{From: "/dir/file", To: "/dir/moved"}); err != nil || !maps.Equal(metadata("/dir/moved"), want) {
		t.Errorf("after a move it is %v, %v", metadata("/dir/moved"), err)
	}
	if e.write(t, "/dir/moved", "two", agentapi.WriteOptions{}); metadata("/dir/moved") != nil {
		t.Errorf("after a write it is %v", metadata("/dir/moved"))
	}
	// Programs may set any attributes: of directories, not text, too many.
	at := filepath.Join(e.root, "dir")
	for name, value := range map[string]string{"user.binary": "\xff", "user.kept": strings.Repeat("y", 100)} {
		if err := unix.Setxattr(at, name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := metadata("/dir"); !maps.Equal(got, map[string]string{"kept": strings.Repeat("y", 100)}) {
		t.Errorf("the directory has %d entries", len(got))
	}
	e.write(t, "/many", "", agentapi.WriteOptions{})
	for i := range agentapi.MaxMetadata + 10 {
		if err := unix.Setxattr(filepath.Join(e.root, "many"), fmt.Sprintf("user.key-%03d", i), []byte("v"), 0); err != nil {
			t.Fatal(err)
		}
	}
	e.write(t, "/large", "", agentapi.WriteOptions{})
	for _, key := range []string{"a", "b", "c"} { // the second does not fit after the first, the third does
		value := strings.Repeat(key, map[string]int{"a": 2000, "b": agentapi.MaxMetadataBytes - 2001, "c": agentapi.MaxMetadataBytes - 2002}[key])
		if err := unix.Setxattr(filepath.Join(e.root, "large"), "user."+key, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := metadata("/large"); len(got) != 2 || len(got["a"]) != 2000 || len(got["c"]) != agentapi.MaxMetadataBytes-2002 {
		t.Errorf("the large file has %d entries, %d and %d bytes", len(got), len(got["a"]), len(got["c"]))
	}
	if got := metadata("/many"); len(got) != agentapi.MaxMetadata || got["key-000"] != "v" {
		t.Errorf("the file has %d entries", len(got))
	}
}

func TestWritingThroughASymlink(t *testing.T) {
	e := start(t)
	e.write(t, "/target", "old", agentapi.WriteOptions{})
	if err := os.Symlink("target", filepath.Join(e.root, "link")); err != nil {
		t.Fatal(err)
	}
	info := e.write(t, "/link", "new", agentapi.WriteOptions{})
	if info.Path != "/target" || e.read(t, "/target", 0, -1) != "new" {
		t.Errorf("WriteFile() = %+v", info)
	}
	if info, err := e.Stat(t.Context(), "/link"); err != nil || info.Type != agentapi.TypeSymlink || info.Target != "target" {
		t.Errorf("Stat() = %+v, %v", info, err)
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	e := start(t)
	e.write(t, "/dir/file", "old", agentapi.WriteOptions{Parents: true})
	broken := errors.New("source broke")
	source := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), errorReader{broken})
	if _, err := e.WriteFile(t.Context(), "/dir/file", source, agentapi.WriteOptions{}); !errors.Is(err, broken) {
		t.Errorf("WriteFile() = %v, want the source's error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hanging, feed := io.Pipe()
	defer feed.Close()
	go func() {
		feed.Write(bytes.Repeat([]byte("x"), 100_000))
		cancel()
	}()
	if _, err := e.WriteFile(ctx, "/dir/file", hanging, agentapi.WriteOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("WriteFile() = %v, want the context's error", err)
	}
	eventually(t, "only the old file is there", func() bool {
		names, _ := os.ReadDir(filepath.Join(e.root, "dir"))
		return len(names) == 1
	})
	if got := e.read(t, "/dir/file", 0, -1); got != "old" {
		t.Errorf("the file holds %q", got)
	}
}

// TestCloseWaitsForCalls closes the agent in the middle of writes.
func TestCloseWaitsForCalls(t *testing.T) {
	const writes = 20
	e := start(t)
	parts := func() []string {
		names, _ := filepath.Glob(filepath.Join(e.root, "dir", "*", "*"))
		return names
	}
	hanging, feed := io.Pipe()
	defer feed.Close()
	var calls sync.WaitGroup
	for i := range writes {
		calls.Go(func() {
			path := fmt.Sprintf("/dir/%d/file", i)
			if _, err := e.WriteFile(t.Context(), path, hanging, agentapi.WriteOptions{Parents: true}); err == nil {
				t.Errorf("the write of %s succeeded, want it broken off", path)
			}
		})
	}
	eventually(t, "all writes have begun", func() bool { return len(parts()) == writes })
	if err := e.agent.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if left := parts(); len(left) > 0 {
		t.Errorf("parts of files are left: %q", left)
	}
	calls.Wait()
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

func TestFullDisk(t *testing.T) {
	e := start(t)
	small := filepath.Join(e.root, "small")
	if err := os.Mkdir(small, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small filesystem is needed, which takes the right to mount: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(small, syscall.MNT_DETACH) })
	_, err := e.WriteFile(t.Context(), "/small/file", io.LimitReader(rand.NewChaCha8([32]byte{}), 8<<20), agentapi.WriteOptions{})
	if code(t, err) != agentapi.CodeDiskFull {
		t.Errorf("WriteFile() = %v", err)
	}
	if names, _ := os.ReadDir(small); len(names) != 0 {
		t.Errorf("left on the full disk: %v", names)
	}
	e.write(t, "/file", "x", agentapi.WriteOptions{})
	if err := e.Move(t.Context(), agentapi.MoveRequest{From: "/file", To: "/small/file"}); err != nil {
		t.Errorf("Move() across filesystems = %v", err)
	}
	if got := e.read(t, "/small/file", 0, -1); got != "x" {
		t.Errorf("the moved file holds %q", got)
	}
	if _, err := e.Stat(t.Context(), "/file"); code(t, err) != agentapi.CodeNoFile {
		t.Errorf("Stat() of the old name = %v", err)
	}
}

func TestRelativePathsBeginWhereCommandsRun(t *testing.T) {
	e := start(t)
	for _, dir := range []string{"root", "work/sub"} {
		if err := os.MkdirAll(filepath.Join(e.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct{ workingDir, want string }{{"", "/root"}, {"/work", "/work"}} {
		if err := e.Configure(t.Context(), agentapi.Config{WorkingDir: tc.workingDir}); err != nil {
			t.Fatal(err)
		}
		if got := collect(t, e.exec(t, agentapi.Command{Argv: []string{"pwd"}})).stdout; got != e.root+tc.want+"\n" {
			t.Errorf("commands run in %q, want %s", got, tc.want)
		}
		for path, want := range map[string]string{"f": tc.want + "/f", "./d/../f": tc.want + "/f", "new/f": tc.want + "/new/f", "../up": "/up"} {
			if info := e.write(t, path, "x", agentapi.WriteOptions{Parents: true}); info.Path != want {
				t.Errorf("WriteFile(%q) made %s, want %s", path, info.Path, want)
			}
			if got := e.read(t, want, 0, -1); got != "x" {
				t.Errorf("%s holds %q", want, got)
			}
		}
		if list, err := e.List(t.Context(), ".", "", 0); err != nil || list.Entries[0].Path != tc.want+"/f" {
			t.Errorf("List(.) = %+v, %v", list, err)
		}
		if err := e.Move(t.Context(), agentapi.MoveRequest{From: "f", To: "new/g"}); err != nil {
			t.Error(err)
		}
		if err := e.Mkdir(t.Context(), agentapi.MkdirRequest{Path: "made"}); err != nil {
			t.Error(err)
		}
		if err := e.Remove(t.Context(), "made", false); err != nil {
			t.Error(err)
		}
		if got := e.read(t, "new/g", 0, -1); got != "x" {
			t.Errorf("the moved file holds %q", got)
		}
	}
}

func TestFilesThatAreNone(t *testing.T) {
	e := start(t)
	if err := syscall.Mkfifo(filepath.Join(e.root, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(e.root, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]agentapi.ErrorCode{
		"/fifo": agentapi.CodeInvalid, "/dir": agentapi.CodeIsDir, "/none": agentapi.CodeNoFile,
		"/fifo/x": agentapi.CodeNotDir, "relative": agentapi.CodeNoFile, "": agentapi.CodeInvalid, "/a\x00b": agentapi.CodeInvalid,
	} {
		if _, _, err := e.ReadFile(t.Context(), path, 0, -1); code(t, err) != want {
			t.Errorf("ReadFile(%q) = %v, want %s", path, err, want)
		}
	}
	for path, want := range map[string]agentapi.ErrorCode{
		"/fifo": agentapi.CodeInvalid, "/dir": agentapi.CodeIsDir, "/none/x": agentapi.CodeNoFile,
		"/fifo/x": agentapi.CodeNotDir, "/" + strings.Repeat("n", 300): agentapi.CodeInvalid,
	} {
		if _, err := e.WriteFile(t.Context(), path, strings.NewReader("x"), agentapi.WriteOptions{}); code(t, err) != want {
			t.Errorf("WriteFile(%q) = %v, want %s", path, err, want)
		}
	}
	if _, _, err := e.ReadFile(t.Context(), "/dir", 5, -1); code(t, err) != agentapi.CodeIsDir {
		t.Errorf("ReadFile() = %v", err)
	}
}

func TestList(t *testing.T) {
	e := start(t)
	for _, name := range []string{"b", "a", "d", "c"} {
		e.write(t, "/dir/"+name, name, agentapi.WriteOptions{Parents: true})
	}
	if err := os.Symlink("/nowhere", filepath.Join(e.root, "dir/e")); err != nil {
		t.Fatal(err)
	}
	list, err := e.List(t.Context(), "/dir", "", 0)
	if err != nil || list.Truncated {
		t.Fatalf("List() = %+v, %v", list, err)
	}
	var names []string
	for _, f := range list.Entries {
		names = append(names, f.Path)
	}
	if diff := cmp.Diff([]string{"/dir/a", "/dir/b", "/dir/c", "/dir/d", "/dir/e"}, names); diff != "" {
		t.Error(diff)
	}
	list, err = e.List(t.Context(), "/dir", "", 2)
	if err != nil || !list.Truncated || len(list.Entries) != 2 || list.Entries[1].Name != "b" {
		t.Errorf("List(2) = %+v, %v", list, err)
	}
	list, err = e.List(t.Context(), "/dir", string(list.Last), 2)
	if err != nil || !list.Truncated || len(list.Entries) != 2 || list.Entries[0].Name != "c" || string(list.Last) != "d" {
		t.Errorf("the next List(2) = %+v, %v", list, err)
	}
	list, err = e.List(t.Context(), "/dir", string(list.Last), 2)
	if err != nil || list.Truncated || len(list.Entries) != 1 || list.Last != nil {
		t.Errorf("the last List(2) = %+v, %v", list, err)
	}
	if _, err := e.List(t.Context(), "/dir/a", "", 0); code(t, err) != agentapi.CodeNotDir {
		t.Errorf("List() of a file = %v", err)
	}
	if err := os.Mkdir(filepath.Join(e.root, "many"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		if err := os.WriteFile(filepath.Join(e.root, "many", fmt.Sprintf("%05d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list, err = e.List(t.Context(), "/many", "", 100)
	if err != nil || !list.Truncated || len(list.Entries) != 100 || list.Entries[99].Name != "00099" {
		t.Errorf("List() of many = %d entries, %v", len(list.Entries), err)
	}
}

func TestMkdirMoveRemove(t *testing.T) {
	e := start(t)
	ctx := t.Context()
	if err := e.Mkdir(ctx, agentapi.MkdirRequest{Path: "/a/b"}); code(t, err) != agentapi.CodeNoFile {
		t.Errorf("Mkdir() without parents = %v", err)
	}
	for range 2 {
		if err := e.Mkdir(ctx, agentapi.MkdirRequest{Path: "/a/b", Parents: true, Mode: 0o1777}); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := e.Stat(ctx, "/a/b"); err != nil || info.Mode != 0o1777 || info.Type != agentapi.TypeDir {
		t.Errorf("Stat() = %+v, %v", info, err)
	}
	if err := e.Mkdir(ctx, agentapi.MkdirRequest{Path: "/a/b"}); code(t, err) != agentapi.CodeExists {
		t.Errorf("Mkdir() again = %v", err)
	}
	e.write(t, "/one", "1", agentapi.WriteOptions{})
	e.write(t, "/two", "2", agentapi.WriteOptions{})
	if err := e.Move(ctx, agentapi.MoveRequest{From: "/one", To: "/two"}); code(t, err) != agentapi.CodeExists {
		t.Errorf("Move() over a file = %v", err)
	}
	if err := e.Move(ctx, agentapi.MoveRequest{From: "/one", To: "/two", Overwrite: true}); err != nil || e.read(t, "/two", 0, -1) != "1" {
		t.Errorf("Move() = %v", err)
	}
	if err := e.Move(ctx, agentapi.MoveRequest{From: "/one", To: "/three"}); code(t, err) != agentapi.CodeNoFile {
		t.Errorf("Move() of nothing = %v", err)
	}
	if err := e.Remove(ctx, "/a", false); code(t, err) != agentapi.CodeNotEmpty {
		t.Errorf("Remove() of a full directory = %v", err)
	}
	if err := e.Remove(ctx, "/a", true); err != nil {
		t.Errorf("Remove() = %v", err)
	}
	if err := e.Remove(ctx, "/a", true); code(t, err) != agentapi.CodeNoFile {
		t.Errorf("Remove() of nothing = %v", err)
	}
	if err := e.Remove(ctx, "/", true); code(t, err) != agentapi.CodeInvalid {
		t.Errorf("Remove() of everything = %v", err)
	}
}

func TestBeneath(t *testing.T) {
	e := start(t)
	ctx := t.Context()
	outside := filepath.Join(e.root, "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := e.Beneath("/up")
	if _, err := up.Stat(ctx, "x"); code(t, err) != agentapi.CodeNoFile {
		t.Errorf("Stat() before the directory exists = %v", err)
	}
	info, err := up.WriteFile(ctx, "sub/file", strings.NewReader("mine"), agentapi.WriteOptions{Parents: true})
	if err != nil || info.Path != "/up/sub/file" {
		t.Fatalf("WriteFile() = %+v, %v", info, err)
	}
	for name, target := range map[string]string{"absolute": outside, "relative": "../secret", "dir": "..", "inside": "sub/file"} {
		if err := os.Symlink(target, filepath.Join(e.root, "up", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"../secret", "/secret", "absolute", "relative", "dir/secret", "sub/../../secret", "", ".."} {
		t.Run("p"+strings.ReplaceAll(path, "/", "_"), func(t *testing.T) {
			refused := func(what string, err error) {
				t.Helper()
				var e *agentapi.Error
				if !errors.As(err, &e) || e.Code != agentapi.CodeInvalid && e.Code != agentapi.CodeIsDir {
					t.Errorf("%s(%q) = %v, want a refusal", what, path, err)
				}
			}
			body, _, err := up.ReadFile(ctx, path, 0, -1)
			if err == nil {
				data, _ := io.ReadAll(body)
				body.Close()
				t.Errorf("ReadFile(%q) gave %q", path, data)
			}
			refused("ReadFile", err)
			if path != "absolute" && path != "relative" { // as last path elements, the links themselves are described
				_, err = up.WriteFile(ctx, path, strings.NewReader("evil"), agentapi.WriteOptions{})
				refused("WriteFile", err)
				refused("Remove", up.Remove(ctx, path, true))
				refused("Mkdir", up.Mkdir(ctx, agentapi.MkdirRequest{Path: path}))
				refused("Move", up.Move(ctx, agentapi.MoveRequest{From: "inside", To: path, Overwrite: true}))
			}
			if data, err := os.ReadFile(outside); err != nil || string(data) != "secret" {
				t.Fatalf("the file outside holds %q, %v", data, err)
			}
		})
	}
	if _, err := up.List(ctx, "dir", "", 0); code(t, err) != agentapi.CodeInvalid {
		t.Errorf("List() through a link = %v", err)
	}
	if body, _, err := up.ReadFile(ctx, "inside", 0, -1); err != nil {
		t.Errorf("ReadFile() of a link that stays inside = %v", err)
	} else {
		body.Close()
	}
	if _, err := up.WriteFile(ctx, "absolute", strings.NewReader("new"), agentapi.WriteOptions{}); err != nil {
		t.Errorf("WriteFile() over a link = %v", err)
	}
	if data, _ := os.ReadFile(outside); string(data) != "secret" {
		t.Errorf("writing over a link changed what it led to: %q", data)
	}
	list, err := up.List(ctx, ".", "", 0)
	if err != nil || len(list.Entries) != 5 {
		t.Errorf("List() = %+v, %v", list, err)
	}
	if err := up.Remove(ctx, "dir", true); err != nil {
		t.Errorf("Remove() of a link = %v", err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("removing a link removed what it led to: %v", err)
	}
}

func TestOwnership(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	e := start(t)
	for path, content := range map[string]string{
		"/etc/passwd": "root:x:0:0::/root:/bin/sh\ndev:x:1234:1235::/home/dev:/bin/bash\n",
		"/etc/group":  "root:x:0:\ndev:x:1235:\nextra:x:1300:other,dev\n",
	} {
		e.write(t, path, content, agentapi.WriteOptions{Parents: true})
	}
	for _, dir := range []string{e.root, filepath.Dir(e.root)} { // so that another user can enter
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	info := e.write(t, "/home/dev/x/file", "x", agentapi.WriteOptions{User: "dev", Parents: true})
	if info.UID != 1234 || info.GID != 1235 {
		t.Errorf("WriteFile() = %+v", info)
	}
	if info, err := e.Stat(t.Context(), "/home/dev"); err != nil || info.UID != 1234 {
		t.Errorf("the parent = %+v, %v", info, err)
	}
	for user, want := range map[string]string{
		"dev":       "1234 1235 1235 1300 dev\n",
		"1234":      "1234 1235 1235 1300 dev\n",
		"dev:root":  "1234 0 0 1300 dev\n",
		"4000:4001": "4000 4001 4001 \n",
		"4000":      "4000 0 0 \n",
	} {
		s := e.exec(t, agentapi.Command{Argv: []string{"sh", "-c", `echo $(id -u) $(id -g) $(id -G) "$USER"`}, User: user, Cwd: "/"})
		if got := collect(t, s); got.stdout != want {
			t.Errorf("as %s: %q %q, want %q", user, got.stdout, got.stderr, want)
		}
	}
}

// TestReadUnreadable checks that paths without readable content are refused before the answer
// begins, and without blocking.
func TestReadUnreadable(t *testing.T) {
	e := start(t, func(o *agent.Options) { o.Root = "/" })
	for _, path := range []string{"/proc/self/mem", "/dev/zero", "/dev/null", "/dev/tty"} {
		for _, length := range []int64{-1, 10} {
			_, _, err := e.ReadFile(t.Context(), path, 0, length)
			if code(t, err) != agentapi.CodeInvalid || !strings.Contains(err.Error(), path) {
				t.Errorf("ReadFile(%s, %d) = %v, want %s that names it", path, length, err, agentapi.CodeInvalid)
			}
		}
	}
	if got := e.read(t, "/proc/self/stat", 0, -1); got == "" {
		t.Error("a file without a size has no content")
	}
}
