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
	apitest.NotElsewhere(t, "uploads count at the server that has them")
	s := apitest.New(t)
	testUpload(t, s, s)
}

// TestUploadAtSeveralServers: the requests of a build of a template go to any of several servers.
func TestUploadAtSeveralServers(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	testUpload(t, parts[0], parts[1])
	var build struct {
		TemplateID string
		BuildID    string
	}
	parts[1].Want(http.StatusAccepted, "POST", "/e2b/v3/templates", map[string]any{"name": "other"}).Into(t, &build)
	for n, s := range parts {
		var got struct{ Status string }
		if s.Want(http.StatusOK, "GET", "/e2b/templates/"+build.TemplateID+"/builds/"+build.BuildID+"/status", nil).Into(t, &got); got.Status != "waiting" {
			t.Errorf("server %d: the build is %q, want waiting", n, got.Status)
		}
	}
	for n, s := range parts { // no such image: the build fails, and every server knows
		if a := s.Do("POST", "/e2b/v2/templates/"+build.TemplateID+"/builds/"+build.BuildID, map[string]any{"fromImage": "registry.test/none"}); (a.Status == http.StatusAccepted) != (n == 0) {
			t.Errorf("the start at server %d: %d %s", n, a.Status, a.Body)
		}
	}
}

// testUpload uploads files by an address that first has answered for a build that second has begun.
func testUpload(t *testing.T, first, second *apitest.Server) {
	t.Helper()
	s := second
	s.Want(http.StatusAccepted, "POST", "/e2b/v3/templates", map[string]any{"name": "app"})
	var at struct{ URL string }
	first.Want(http.StatusCreated, "GET", "/e2b/templates/app/files/abc", nil).Into(t, &at)
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
	first.Want(http.StatusOK, "GET", "/v1/workspaces/default/quota", nil).Into(t, &report)
	if got := report.Used.DiskBy.UploadBytes; got != 1234 {
		t.Errorf("%d bytes of uploads count, want 1234", got)
	}
}
