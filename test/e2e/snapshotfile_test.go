package e2e_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// names returns the names in a tar.gz.
func names(t *testing.T, r io.ReadCloser) (out []string) {
	t.Helper()
	defer r.Close()
	zr, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, h.Name)
	}
}

// TestSnapshotFiles: files that a sandbox wrote are listed and downloaded unchanged, including
// misleading names, and links that lead out.
func TestSnapshotFiles(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	script := `mkdir -p /srv/d && cd /srv/d && echo one >one && ln one two && ln -s ../../../etc/passwd out && mkfifo pipe && printf x >"$(printf 'red\033[31m\n\377')"`
	if res, err := s.Client.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"sh", "-c", script}}); err != nil || res.ExitCode != 0 {
		t.Fatalf("write: %+v, %v", res, err)
	}
	sn, err := s.Client.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.Client.Snapshots.Files("n", client.SnapshotFileFilter{Path: "/srv/d", SHA256: true}).Page(t.Context(), client.PageOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range page.Items {
		got = append(got, f.Path+" "+f.Type+" "+f.Target)
	}
	want := []string{"/srv/d/one file ", "/srv/d/out symlink ../../../etc/passwd", "/srv/d/pipe other ", "/srv/d/red\x1b[31m\n\ufffd file ", "/srv/d/two file "}
	if !slices.Equal(got, want) || page.Items[0].SHA256 != page.Items[4].SHA256 || len(page.Items[0].SHA256) != 64 {
		t.Errorf("files = %q, want %q", got, want)
	}
	// All of it, in pages: names and their number agree with the snapshot's record.
	total := 0
	all := s.Client.Snapshots.Files(sn.ID, client.SnapshotFileFilter{Recursive: true})
	all.PageSize = 700
	for _, err := range all.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		total++
	}
	if int64(total) != sn.FileCount {
		t.Errorf("pages have %d files, the snapshot says %d", total, sn.FileCount)
	}
	out, errOut, code := run(t, s, "", "snapshot", "files", "n", "/srv", "-r")
	if code != 0 || strings.Contains(out, "\x1b") || !strings.Contains(out, `/srv/d/red\x1b[31m\n`) {
		t.Errorf("snapshot files = %q, %q, %d", out, errOut, code)
	}
	archived := []string{"one", "out", "red\x1b[31m\n\xff", "two"}
	file := filepath.Join(t.TempDir(), "d.tar.gz")
	if _, errOut, code := run(t, s, "", "snapshot", "download", "n", "/srv/d", "-o", file); code != 0 {
		t.Fatalf("snapshot download = %q, %d", errOut, code)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, f); !slices.Equal(got, archived) {
		t.Errorf("downloaded %q, want %q", got, archived)
	}
	link, errOut, code := run(t, s, "", "snapshot", "download", "n", "/srv/d", "--url")
	if code != 0 {
		t.Fatalf("snapshot download --url = %q, %d", errOut, code)
	}
	res, err := http.Get(strings.TrimSpace(link))
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, res.Body); !slices.Equal(got, archived) {
		t.Errorf("downloaded by its address %q, want %q", got, archived)
	}
	for _, args := range [][]string{
		{"snapshot", "files", "none"}, {"snapshot", "files", "n", "/none"}, {"snapshot", "download", "n"}, {"snapshot", "download", "n", "/none", "-o", file},
	} {
		if _, errOut, code := run(t, s, "", args...); code == 0 || errOut == "" {
			t.Errorf("modbox %v = %d %q, want an error", args, code, errOut)
		}
	}
}
