package e2b_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
)

// TestUploadsCount uploads files for a template: they count in the quota of the workspace.
func TestUploadsCount(t *testing.T) {
	s := apitest.New(t)
	s.Want(http.StatusAccepted, "POST", "/e2b/v3/templates", map[string]any{"name": "app"})
	var at struct{ URL string }
	s.Want(http.StatusCreated, "GET", "/e2b/templates/app/files/abc", nil).Into(t, &at)
	address, err := url.Parse(at.URL)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+address.RequestURI(), strings.NewReader(strings.Repeat("x", 1234)))
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.HTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("upload: status %d, want 200", res.StatusCode)
	}
	var report wire.QuotaReport
	s.Want(http.StatusOK, "GET", "/v1/workspaces/default/quota", nil).Into(t, &report)
	if got := report.Used.DiskBy.UploadBytes; got != 1234 {
		t.Errorf("%d bytes of uploads count, want 1234", got)
	}
}
