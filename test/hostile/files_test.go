package hostile_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// secret writes a file on the host that no sandbox may read.
func secret(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "host-secret")
	if err := os.WriteFile(path, []byte("only for the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPathsStayInTheSandbox(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	host := secret(t)
	r.asRootResult(id, `ln -s / /workspace/root; ln -s `+host+` /workspace/link; mkfifo /workspace/fifo; ln -s /proc/1/root /workspace/proc`)
	for _, path := range []string{host, "/../../../.." + host, "root" + host, "link", "proc" + host, "/proc/1/root" + host, "/proc/self/cwd/../../.." + host} {
		body, err := r.Sandboxes.Files.Read(t.Context(), id, path)
		if err == nil {
			got, _ := io.ReadAll(io.LimitReader(body, 1<<10))
			body.Close()
			if bytes.Contains(got, []byte("only for the host")) {
				t.Errorf("read %s = %q: a file of the host", path, got)
			}
		}
	}
	// Endless files and special files are refused; the call does not hang.
	for _, path := range []string{"/workspace/fifo", "/dev/zero", "/dev/stdin"} {
		body, err := r.Sandboxes.Files.Read(t.Context(), id, path)
		if err == nil {
			n, _ := io.Copy(io.Discard, io.LimitReader(body, 10<<20))
			body.Close()
			if n > 1<<20 {
				t.Errorf("read %s gave %d bytes and no end, want an error", path, n)
			}
		}
	}
	for _, path := range []string{"", "a\x00b", strings.Repeat("x/", 4000)} {
		if _, err := r.Sandboxes.Files.Stat(t.Context(), id, path); !client.IsCode(err, "invalid") {
			t.Errorf("stat %.20q: %v, want code invalid", path, err)
		}
	}
	r.alive(id)
	r.gone(id)
}

// upload posts a file to the sandbox's upload route and returns the status.
func (r *rig) upload(sandboxURL, filename string, content io.Reader) (int, string) {
	r.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", filename)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.Copy(part, content); err != nil {
		r.t.Fatal(err)
	}
	form.Close()
	resp, err := http.Post(sandboxURL+"/modbox/api/files/upload", form.FormDataContentType(), &body)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	msg, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	return resp.StatusCode, string(msg)
}

func TestUploadsCannotLeaveTheirFolder(t *testing.T) {
	r := newRig(t)
	sb := r.MustCreate(client.CreateOptions{Name: "victim", URLAccess: client.URLOpen})
	if status, msg := r.upload(sb.URL, "ok.txt", strings.NewReader("fine")); status/100 != 2 {
		t.Fatalf("upload of ok.txt: %d %s", status, msg)
	}
	for _, name := range []string{"..", ".", "a\x01b", strings.Repeat("n", 300)} {
		if status, msg := r.upload(sb.URL, name, strings.NewReader("x")); status/100 != 4 {
			t.Errorf("upload as %.20q: %d %s, want 4xx", name, status, msg)
		}
	}
	// A link planted in the folder must not be followed out of it, by any of the calls.
	r.asRootResult(sb.ID, `echo untouched > /etc/target; ln -s /etc/target /workspace/uploads/link; ln -s /etc /workspace/uploads/dir`)
	r.upload(sb.URL, "link", strings.NewReader("overwritten"))
	if got := r.asRoot(sb.ID, `cat /etc/target`); got != "untouched" {
		t.Errorf("an upload through a planted link wrote outside: /etc/target = %q", got)
	}
	for _, name := range []string{"dir/hostname", "../../etc/hostname", "link2/../../../etc/hostname", "..%2f..%2fetc%2fhostname"} {
		resp, err := http.Get(sb.URL + "/modbox/api/files/download?filename=" + url.QueryEscape(name))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode/100 != 4 {
			t.Errorf("download of %q: status %d, want 4xx", name, resp.StatusCode)
		}
	}
	r.gone(sb.ID)
}

func TestUploadOverTheLimit(t *testing.T) {
	r := newRig(t)
	sb := r.MustCreate(client.CreateOptions{Name: "victim", URLAccess: client.URLOpen})
	if status, msg := r.upload(sb.URL, "big", io.LimitReader(zeros{}, 51<<20)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("upload of 51 MiB: %d %s, want 413", status, msg)
	}
	if got := r.asRoot(sb.ID, `ls -A /workspace/uploads`); got != "" {
		t.Errorf("after the refused upload the folder holds %q, want nothing", got)
	}
	if status, msg := r.upload(sb.URL, "fits", io.LimitReader(zeros{}, 49<<20)); status/100 != 2 {
		t.Errorf("upload of 49 MiB: %d %s", status, msg)
	}
	r.gone(sb.ID)
}

// zeros is an endless source of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestBigFileFillsTheDiskAndIsTold(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	_, err := r.Sandboxes.Files.Write(t.Context(), id, "/workspace/big", io.LimitReader(zeros{}, 2<<30), client.WriteOptions{})
	if !client.IsCode(err, "disk_full") {
		t.Errorf("2 GiB into 512 MiB: %v, want code disk_full", err)
	}
	if got := r.asRoot(id, `ls -A /workspace | grep -v uploads`); got != "" {
		t.Errorf("the failed write left %q", got)
	}
	res := r.Bash(id, `echo ok > /workspace/x && cat /workspace/x`, time.Minute)
	if string(res.Stdout) != "ok\n" {
		t.Errorf("after the failed write: %+v", res)
	}
	r.gone(id)
}
