package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	filepb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/filesystem"
)

// files uploads and downloads as httpx does, and asks for files by both lines.
func (c *pythonClient) files(t *testing.T) {
	c.t = t
	const boundary = "0123456789abcdef0123456789abcdef"
	form := func(files ...string) string { // as httpx writes names and types
		var b strings.Builder
		for i := 0; i < len(files); i += 2 {
			name := strings.NewReplacer(`\`, `\\`).Replace(files[i])
			fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\nContent-Type: text/plain\r\n\r\n%s\r\n", boundary, name, files[i+1])
		}
		return b.String() + "--" + boundary + "--\r\n"
	}
	multipart := c.inside("49983", "Content-Type", "multipart/form-data; boundary="+boundary)
	raw := c.inside("49983", "Content-Type", "application/octet-stream")
	big := strings.Repeat("a line of text\n", 50_000)
	for _, tc := range []struct {
		query, body string
		headers     []string
		paths       []string
	}{
		{"?path=%2Ftmp%2Fpy%2Fone.txt", form("/tmp/py/one.txt", "one"), multipart, []string{"/tmp/py/one.txt"}},
		{"?username=root", form("dir/näïve \\ü.txt", "two", "/tmp/py/three", ""), multipart, []string{"/root/dir/näïve \\ü.txt", "/tmp/py/three"}},
		{"?path=%2Ftmp%2Fpy%2Fraw", "\x00\xff raw", raw, []string{"/tmp/py/raw"}},
		{"?path=%2Ftmp%2Fpy%2Fbig&username=root", zipped(t, big), append(raw, "Content-Encoding", "gzip"), []string{"/tmp/py/big"}},
	} {
		a := c.send("POST", "/files"+tc.query, tc.body, tc.headers...)
		var got []map[string]string // the client makes an object of these members, and fails for others
		into(t, a.text, &got)
		var want []map[string]string
		for _, p := range tc.paths {
			want = append(want, map[string]string{"path": p, "name": p[strings.LastIndex(p, "/")+1:], "type": "file"})
		}
		if d := cmp.Diff(want, got); a.StatusCode != http.StatusOK || d != "" {
			t.Errorf("upload %s = %d (-want +got):\n%s", tc.query, a.StatusCode, d)
		}
	}
	for path, want := range map[string]string{"/tmp/py/one.txt": "one", "/root/dir/näïve \\ü.txt": "two", "/tmp/py/three": "", "/tmp/py/raw": "\x00\xff raw", "/tmp/py/big": big} {
		for _, accepts := range []string{"gzip", httpx["Accept-Encoding"]} {
			a := c.send("GET", "/files?username=root&path="+url.QueryEscape(path), "", c.inside("49983", "Accept-Encoding", accepts)...)
			encoding := a.Header.Get("Content-Encoding")
			if encoding == "gzip" {
				a.text = unzipped(t, a.text)
			}
			if a.StatusCode != http.StatusOK || a.text != want || (encoding == "gzip") != (len(want) > 1024) {
				t.Errorf("download of %s for %q = %d %q, %d bytes, want %d", path, accepts, a.StatusCode, encoding, len(a.text), len(want))
			}
		}
	}
	if a := c.send("GET", "/files?path=nothing", "", c.inside("49983")...); a.StatusCode != http.StatusNotFound || !strings.Contains(a.text, `"message":"path '`) {
		t.Errorf("download of nothing = %d %s", a.StatusCode, a.text)
	}
	asRoot := []string{"Authorization", "Basic cm9vdDo="}
	for _, tc := range []struct {
		method, message string
		status          int
		said            string
	}{
		{"ListDir", "{\n  \"path\": \"/tmp/py\",\n  \"depth\": 1\n}", 200, `"name":"big"`},
		{"Stat", `{"path": "/tmp/py/raw"}`, 200, `"size":"6"`},
		{"Stat", `{"path": "/tmp/py/none"}`, 404, `"code":"not_found"`},
		{"MakeDir", `{"path": "/tmp/py/made"}`, 200, `"FILE_TYPE_DIRECTORY"`},
		{"MakeDir", `{"path": "/tmp/py/made"}`, 409, `"code":"already_exists"`},
		{"Move", `{"source": "/tmp/py/raw", "destination": "/tmp/py/made/moved"}`, 200, `"path":"/tmp/py/made/moved"`},
		{"Remove", `{"path": "/tmp/py/made"}`, 200, `{}`},
	} {
		if text := c.unary(tc.status, "filesystem.Filesystem/"+tc.method, tc.message, asRoot...); !strings.Contains(text, tc.said) {
			t.Errorf("%s %s = %s, want %s", tc.method, tc.message, text, tc.said)
		}
	}
	var stat filepb.StatResponse
	if a := c.binary("filesystem.Filesystem/Stat", &filepb.StatRequest{Path: "/tmp/py/big"}, &stat, asRoot...); a.StatusCode != http.StatusOK || stat.GetEntry().GetSize() != int64(len(big)) || stat.GetEntry().GetOwner() != "root" {
		t.Errorf("binary stat = %d %v", a.StatusCode, &stat)
	}
	// An error is JSON, whatever the codec.
	if a := c.binary("filesystem.Filesystem/Stat", &filepb.StatRequest{Path: "/tmp/py/none"}, &stat); a.StatusCode != http.StatusNotFound || a.Header.Get("Content-Type") != "application/json" || !strings.Contains(a.text, `"not_found"`) {
		t.Errorf("binary stat of nothing = %d %v %q", a.StatusCode, a.Header, a.text)
	}
}

// watch polls a watcher.
func (c *pythonClient) watch(t *testing.T) {
	c.t = t
	c.unary(http.StatusOK, "filesystem.Filesystem/MakeDir", `{"path": "/tmp/watched"}`)
	var made struct{ WatcherID string }
	into(t, c.unary(http.StatusOK, "filesystem.Filesystem/CreateWatcher", `{"path": "/tmp/watched", "recursive": true}`, "Keepalive-Ping-Interval", "50"), &made)
	c.send("POST", "/files?path=%2Ftmp%2Fwatched%2Fnew", "x", c.inside("49983", "Content-Type", "application/octet-stream")...)
	id := `{"watcherId": "` + made.WatcherID + `"}`
	for seen := false; !seen; { // until the time limit of the context
		var got struct {
			Events []struct{ Name, Type string }
		}
		into(t, c.unary(http.StatusOK, "filesystem.Filesystem/GetWatcherEvents", id), &got)
		for _, e := range got.Events {
			seen = seen || e.Name == "new" && e.Type == "EVENT_TYPE_CREATE"
		}
	}
	c.unary(http.StatusOK, "filesystem.Filesystem/RemoveWatcher", id)
	c.unary(http.StatusNotFound, "filesystem.Filesystem/GetWatcherEvents", id)
}
