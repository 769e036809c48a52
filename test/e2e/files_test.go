package e2e_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// shell runs a script in the sandbox, which must succeed, and returns its output.
func shell(t *testing.T, s *testserver.Server, ref, script string) string {
	t.Helper()
	res, err := s.Sandboxes.Exec(t.Context(), ref, client.Command{Shell: script})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s = %+v, %v", script, res, err)
	}
	return strings.TrimSpace(string(res.Stdout))
}

func createForFiles(t *testing.T, s *testserver.Server, disk string) string {
	t.Helper()
	sb, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Image: image, Resources: client.Resources{Disk: disk}})
	if err == nil {
		sb, err = s.Sandboxes.Wait(t.Context(), sb.ID, client.Running)
	}
	if err != nil {
		t.Fatal(err)
	}
	return sb.ID
}

// writeTree makes 2,000 files, a link, an empty directory and one large file.
func writeTree(t *testing.T, dir string) {
	t.Helper()
	for i := range 2000 {
		path := filepath.Join(dir, fmt.Sprintf("d%d/sub/f%d.txt", i%50, i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, fmt.Appendf(nil, "file %d\n", i), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	large, err := os.OpenFile(filepath.Join(dir, "large"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.CopyN(large, rand.NewChaCha8([32]byte{9}), 40<<20)
	err = errors.Join(err, large.Close(), os.Symlink("../d1/sub", filepath.Join(dir, "d0/link")), os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
}

const describeTree = `cd %s && { find . -type f -printf '%%m %%s %%P\n'; find . -mindepth 1 -type d -printf '%%m %%P/\n'; find . -type l -printf '%%P -> %%l\n'; find . -type f -print0 | sort -z | xargs -0 sha256sum; } | sort | sha256sum | cut -d' ' -f1`

// TestMetadataOfFiles shows what becomes of the metadata of files.
func TestMetadataOfFiles(t *testing.T) {
	s := testserver.Start(t)
	ctx, files := t.Context(), s.Sandboxes.Files
	id := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"}).ID // it has Python
	largest := map[string]string{"k": strings.Repeat("\x01", 4095)}        // each character is six in JSON, and eight in the URL
	small := map[string]string{"source": "https://example.com", "ü": "<1>\n"}
	for path, metadata := range map[string]map[string]string{"/kept/largest": largest, "/kept/small": small, "/tmp/moved": small} {
		info, err := files.Write(ctx, id, path, strings.NewReader("x"), client.WriteOptions{Parents: true, Metadata: metadata})
		if err != nil || !maps.Equal(info.Metadata, metadata) {
			t.Fatalf("write %s = %+v, %v", path, info, err)
		}
	}
	if _, err := files.Move(ctx, id, "/tmp/moved", "/kept/moved", false); err != nil { // another file system
		t.Fatal(err)
	}
	if info, err := files.Write(ctx, id, "/empty", strings.NewReader("x"), client.WriteOptions{Metadata: map[string]string{"e": "", "k": "v"}}); err != nil || len(info.Metadata) != 2 {
		t.Fatal(info, err)
	}
	set := func(ref, path, name, value string) {
		t.Helper()
		command := client.Command{Argv: []string{"python3", "-c", "import os, sys; os.setxattr(sys.argv[1], sys.argv[2], eval(sys.argv[3]))", path, name, value}, User: "root"}
		if res, err := s.Sandboxes.Exec(ctx, ref, command); err != nil || res.ExitCode != 0 {
			t.Fatalf("setxattr %s = %+v, %v", path, res, err)
		}
	}
	set(id, "/etc/passwd", "user.inside", "b'i'") // of the image
	set(id, "/kept", "user.large", "b'x' * 60000")
	set(id, "/kept", "user.binary", "b'\\xff'")
	set(id, "/kept", "user.dir", "b'd'")
	set(id, "/kept", "user.more", "b'x' * 4089") // with the entry before it, it has one byte too many
	want := map[string]map[string]string{
		"/kept/largest": largest, "/kept/small": small, "/kept/moved": small, "/etc/passwd": {"inside": "i"}, "/kept": {"dir": "d"},
	}
	check := func(when, ref string, want map[string]map[string]string) {
		t.Helper()
		for path, metadata := range want {
			info, err := files.Stat(ctx, ref, path)
			if err != nil || !maps.Equal(info.Metadata, metadata) {
				t.Errorf("%s: metadata of %s = %.100v, %v", when, path, info, err)
			}
		}
	}
	check("at first", id, want)
	forks, err := s.Sandboxes.Fork(ctx, id, client.ForkOptions{})
	if err != nil || len(forks) != 1 {
		t.Fatal(forks, err)
	}
	check("a fork", forks[0].Sandbox.ID, want)
	if _, err := s.Sandboxes.Checkpoints.Create(ctx, id, "kept"); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Write(ctx, id, "/kept/small", strings.NewReader("x"), client.WriteOptions{}); err != nil { // loses its metadata
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Checkpoints.Restore(ctx, id, "kept"); err != nil {
		t.Fatal(err)
	}
	check("after a checkpoint is restored", id, want)
	if err := s.Sandboxes.Checkpoints.Delete(ctx, id, "kept"); err != nil {
		t.Fatal(err)
	}
	paused := func(when string, pause func(context.Context, string) (*client.Sandbox, error), memory bool, want map[string]map[string]string) {
		t.Helper()
		if _, err := pause(ctx, id); err != nil {
			t.Fatal(err)
		}
		if !memory {
			otherBuild(t, s, id)
		}
		if _, err := s.Sandboxes.Resume(ctx, id, client.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
		check(when, id, want)
	}
	want["/empty"] = map[string]string{"e": "", "k": "v"}
	paused("after a pause", s.Sandboxes.Pause, true, want)
	want["/empty"] = map[string]string{"k": "v"} // as documented: the files alone have no empty attributes
	paused("after a pause whose memory is lost", s.Sandboxes.Pause, false, want)
	paused("after a pause without memory", s.Sandboxes.PauseWithoutMemory, true, want)
	for path := range want {
		want[path] = nil
	}
	snap, err := s.Snapshots.Create(ctx, id, client.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sb, err := s.Sandboxes.Create(ctx, client.CreateOptions{Snapshot: snap.ID})
	if err == nil {
		sb, err = s.Sandboxes.Wait(ctx, sb.ID, client.Running)
	}
	if err != nil {
		t.Fatal(err)
	}
	check("from a snapshot", sb.ID, want) // as documented: gVisor reads no attributes of an image
	if out, errOut, code := run(t, s, "x", "cp", "--metadata", "a=b=c", "-", id+":/kept/cli"); code != 0 {
		t.Fatal(out, errOut)
	}
	if out, _, _ := run(t, s, "", "files", "stat", id, "/kept/cli"); !strings.Contains(out, "a          b=c") {
		t.Errorf("stat = %s", out)
	}
	if _, errOut, code := run(t, s, "", "cp", "--metadata", "a=b", t.TempDir(), id+":/kept/dir"); code != 2 || !strings.Contains(errOut, "single file") {
		t.Errorf("cp of a directory with metadata = %d, %s", code, errOut)
	}
}

func TestArchivesOfManyAndLargeFiles(t *testing.T) {
	s := testserver.StartSmall(t)
	id := createForFiles(t, s, "3Gi")
	local := t.TempDir()
	from := filepath.Join(local, "from")
	writeTree(t, from)
	if out, errOut, code := run(t, s, "", "cp", from, id+":/one"); code != 0 {
		t.Fatalf("cp in = %s%s", out, errOut)
	}
	want := shell(t, s, id, fmt.Sprintf(describeTree, "/one"))
	if n := shell(t, s, id, "find /one | wc -l; stat -c %s /one/large"); n != "2104\n41943040" {
		t.Fatalf("the sandbox has %s", n)
	}
	for _, format := range []client.Format{client.TarGzip, client.Zip} {
		sum := sha256.New()
		r, err := s.Sandboxes.Files.DownloadArchive(t.Context(), id, "/one", format)
		if err != nil {
			t.Fatal(err)
		}
		to := "/" + string(format)
		err = s.Sandboxes.Files.UploadArchive(t.Context(), id, to, io.TeeReader(r, sum), client.UploadArchiveOptions{})
		r.Close()
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if got := shell(t, s, id, fmt.Sprintf(describeTree, to)); got != want {
			t.Errorf("%s (%s): the tree came back another", format, hex.EncodeToString(sum.Sum(nil)))
		}
		shell(t, s, id, "rm -r "+to)
	}
	back := filepath.Join(local, "back")
	if out, errOut, code := run(t, s, "", "cp", id+":/one", back); code != 0 || errOut != "" {
		t.Fatalf("cp out = %s%s", out, errOut)
	}
	a, err1 := os.ReadFile(filepath.Join(from, "large"))
	b, err2 := os.ReadFile(filepath.Join(back, "large"))
	if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
		t.Errorf("the large file came back another: %v, %v", err1, err2)
	}
	if left := shell(t, s, id, "find / -xdev -name '.modbox-*' | wc -l"); left != "0" {
		t.Errorf("%s temporary files are left", left)
	}
	r, err := s.Sandboxes.Files.DownloadArchive(t.Context(), id, "/", client.Tar) // /proc has no end
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	found := false
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(h.Name, "proc/") && h.Name != "proc/" {
			t.Fatalf("the archive of / holds %s", h.Name)
		}
		found = found || h.Name == "etc/passwd"
	}
	if !found {
		t.Error("the archive of / lacks etc/passwd")
	}
}

func TestHostileArchives(t *testing.T) {
	s := testserver.StartSmall(t)
	id := createForFiles(t, s, "256Mi")
	pack := func(headers ...tar.Header) io.Reader {
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		for _, h := range headers {
			if err := tw.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		tw.Close()
		return &b
	}
	var bomb bytes.Buffer
	z := zip.NewWriter(&bomb)
	w, err := z.Create("zeros")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, zeros{}, 192<<20); err != nil {
		t.Fatal(err)
	}
	z.Close()
	shell(t, s, id, "mkdir /w; touch /tmp/before")
	for name, archive := range map[string]io.Reader{
		"absolute":     pack(tar.Header{Name: "/etc/evil", Typeflag: tar.TypeReg}),
		"parent":       pack(tar.Header{Name: "../etc/evil", Typeflag: tar.TypeReg}),
		"link":         pack(tar.Header{Name: "l", Linkname: "/etc", Typeflag: tar.TypeSymlink}),
		"through-link": pack(tar.Header{Name: "d/", Typeflag: tar.TypeDir}, tar.Header{Name: "l", Linkname: "d", Typeflag: tar.TypeSymlink}, tar.Header{Name: "l/evil", Typeflag: tar.TypeReg}),
		"hard-link":    pack(tar.Header{Name: "h", Linkname: "../etc/passwd", Typeflag: tar.TypeLink}),
		"device":       pack(tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}),
		"bomb":         &bomb,
		"rubbish":      strings.NewReader("rubbish"),
	} {
		if err := s.Sandboxes.Files.UploadArchive(t.Context(), id, "/w", archive, client.UploadArchiveOptions{}); !client.IsCode(err, client.Invalid) {
			t.Errorf("%s = %v, want %s", name, err, client.Invalid)
		}
	}
	if out := shell(t, s, id, "find / -xdev -newer /tmp/before -name '*evil*'; find / -xdev -name '.modbox-*'"); out != "" {
		t.Errorf("made: %s", out)
	}
	full := io.MultiReader(tarHead(t, "noise", 1<<30), rand.NewChaCha8([32]byte{1}))
	if err := s.Sandboxes.Files.UploadArchive(t.Context(), id, "/w", full, client.UploadArchiveOptions{}); !client.IsCode(err, client.DiskFull) {
		t.Errorf("more than the disk holds = %v, want %s", err, client.DiskFull)
	}
	if out := shell(t, s, id, "ls /w/noise 2>/dev/null; echo more >/w/after && cat /w/after"); out != "more" {
		t.Errorf("after a full disk: %q", out)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// tarHead is the beginning of a tar with one file.
func tarHead(t *testing.T, name string, size int64) io.Reader {
	t.Helper()
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: name, Size: size, Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestWatchOfAStorm(t *testing.T) {
	s := testserver.StartSmall(t)
	id := createForFiles(t, s, "")
	shell(t, s, id, "mkdir /w")
	w, err := s.Sandboxes.Files.Watch(t.Context(), id, "/w", true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	storm := make(chan error, 1)
	go func() {
		res, err := s.Sandboxes.Exec(t.Context(), id, client.Command{Shell: `
			for d in $(seq 500); do mkdir -p /w/a/b$d/c; for f in 0 1 2 3 4 5 6 7 8 9; do echo x >/w/a/b$d/c/f$f; done; done
			mv /w/a/b1 /w/moved; rm -r /w/moved; mkdir /w/end`})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("code %d: %s", res.ExitCode, res.Stderr)
		}
		storm <- err
	}()
	created, seen := map[string]int{}, map[client.FileEventType]int{}
	for {
		e, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		seen[e.Type]++
		if e.Type == client.FileCreated {
			created[e.Path]++
		}
		if e.Path == "/w/end" {
			break
		}
	}
	if err := <-storm; err != nil {
		t.Fatal(err)
	}
	if seen[client.FileOverflow] > 0 || seen[client.FileLimit] > 0 || seen[client.FileMovedFrom] != 1 || seen[client.FileMovedTo] != 1 || seen[client.FileRemoved] != 12 {
		t.Errorf("events: %v", seen)
	}
	missing := 0
	for d := 1; d <= 500; d++ {
		for f := range 10 {
			if created[fmt.Sprintf("/w/a/b%d/c/f%d", d, f)] != 1 {
				missing++
			}
		}
	}
	if missing > 0 || len(created) != 1+500+500+5000+1 {
		t.Errorf("%d files are not told once; %d paths are told", missing, len(created))
	}
	shell(t, s, id, "rm -r /w")
	for err == nil {
		_, err = w.Next()
	}
	if err != io.EOF {
		t.Errorf("at the end of the directory: %v", err)
	}
}
