package console

import (
	"bytes"
	"compress/gzip"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func TestOutputPageHasNoOrigin(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("<!doctype html>")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := readFiles(fstest.MapFS{"index.html": {Data: []byte("first")}, "output.html.gz": {Data: packed.Bytes()}, "icon.svg.gz": {Data: packed.Bytes()}}, "")
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		protect(w.Header())
		f.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	w := get(outputPath)
	policy := w.Header().Get("Content-Security-Policy")
	for _, part := range []string{"sandbox allow-scripts;", "default-src 'none'", "frame-src 'none'", "frame-ancestors 'self'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy of %s lacks %s: %s", outputPath, part, policy)
		}
	}
	for _, word := range []string{"allow-same-origin", "allow-top", "allow-popups", "allow-forms", "connect-src", "http:", "https:", "*"} {
		if strings.Contains(policy, word) {
			t.Errorf("the policy of %s has %s: %s", outputPath, word, policy)
		}
	}
	if w.Code != 200 || w.Body.String() != "<!doctype html>" || w.Header().Get("X-Frame-Options") != "SAMEORIGIN" || w.Header().Get("Connection-Allowlist") != "()" {
		t.Errorf("%s = %d %v %q", outputPath, w.Code, w.Header(), w.Body)
	}
	if policy := get("/").Header().Get("Content-Security-Policy"); !strings.HasSuffix(policy, "; frame-src 'self'") {
		t.Errorf("the policy without hosts of sandboxes is %s", policy)
	}
	for _, path := range []string{"/", "/output", "/output.html/", "/icon.svg"} {
		if h := get(path).Header(); h.Get("X-Frame-Options") != "DENY" || strings.Contains(h.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s has %v", path, h)
		}
	}
}
