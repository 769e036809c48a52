package gateway_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/dialect/e2b/envdpb/filesystem/filesystemconnect"
	"github.com/modbox/modbox/internal/dialect/e2b/envdpb/process/processconnect"
)

// TestSandboxOfOtherServer: commands, files and ports of a sandbox of one of several servers are there at the other.
func TestSandboxOfOtherServer(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	for n := range parts {
		var made struct {
			SandboxID   string `json:"sandboxID"`
			AccessToken string `json:"envdAccessToken"`
		}
		parts[1-n].Want(http.StatusCreated, "POST", "/e2b/v2/sandboxes", `{"templateID":"base","timeout":600,"secure":true}`).Into(t, &made)
		s := parts[n]
		to := func(port string) *http.Client {
			return &http.Client{Transport: headers{s.HTTP.Transport, map[string]string{"E2b-Sandbox-Id": made.SandboxID, "E2b-Sandbox-Port": port, "X-Access-Token": made.AccessToken}}}
		}
		c := to("49983")
		v := &visitor{s, c, processconnect.NewProcessClient(c, s.URL), filesystemconnect.NewFilesystemClient(c, s.URL)}
		stream, pid := v.run("read line; echo got $line")
		if err := v.send(pid, "typed\n"); err != nil {
			t.Fatal(err)
		}
		if out, end := rest(t, stream); out != "got typed\n" || end.GetExitCode() != 0 {
			t.Errorf("the command has written %q and ended with %v", out, end)
		}
		content := strings.Repeat("0123456789", 500_000)
		var form bytes.Buffer
		files := multipart.NewWriter(&form)
		part, err := files.CreateFormFile("file", "f")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, content)
		_ = files.Close()
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/files?path=/tmp/f", &form)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", files.FormDataContentType())
		if resp, body := fetch(t, c, r); resp.StatusCode != http.StatusOK {
			t.Fatalf("upload: %s %s", resp.Status, body)
		}
		sum := sha256.Sum256([]byte("/tmp/f:read::" + made.AccessToken))
		q := url.Values{"path": {"/tmp/f"}, "signature": {"v1_" + base64.RawStdEncoding.EncodeToString(sum[:])}}
		for _, test := range []struct {
			client *http.Client
			path   string
		}{{c, "/files?path=/tmp/f"}, {s.HTTP, "/files?" + q.Encode()}} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, body := fetch(t, test.client, r); resp.StatusCode != http.StatusOK || body != content {
				t.Errorf("%s: %s, %d bytes", test.path, resp.Status, len(body))
			}
		}
		r, err = http.NewRequestWithContext(t.Context(), "GET", s.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, body := fetch(t, to("3000"), r); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("a closed port: %s %s", resp.Status, body)
		}
	}
}

// fetch sends a request and reads its answer.
func fetch(t *testing.T, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}
